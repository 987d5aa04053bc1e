"""What happened to one hold, step by step, in order of time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from domain.holds import Hold
from domain.identity import HoldId
from domain.instants import rfc3339


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened; its facts are texts, numbers, instants or None."""

    at: datetime
    what: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def as_data(self) -> dict[str, object]:
        """The step as JSON carries it."""
        return {"at": rfc3339(self.at), "what": self.what, "facts": {k: _plain(v) for k, v in self.facts.items()}}


def _plain(fact: object) -> object:
    return rfc3339(fact) if isinstance(fact, datetime) else fact


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything about one hold. `hold` is None once it was pruned: then the steps are what remains."""

    hold_id: HoldId
    hold: Hold | None
    steps: tuple[Step, ...]

    def as_data(self, *, show_contacts: bool = False) -> dict[str, object]:
        """The trace as JSON carries it; the hold's contacts are masked unless they are asked for."""
        return {
            "id": self.hold_id,
            "hold": None if self.hold is None else self.hold.as_data(show_contacts=show_contacts),
            "steps": [step.as_data() for step in self.steps],
        }


def in_time(steps: Iterable[Step]) -> tuple[Step, ...]:
    """In order of time; steps of one instant stay in the order given, which is that of their causes."""
    return tuple(sorted(steps, key=lambda step: step.at))
