"""Cohorts as an operator names them, and what is said of one before it is moved."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from domain.errors import BadInput
from domain.identity import COHORTS
from domain.outcomes import Outcome

_PART = re.compile(r"(\d{1,2})(?:-(\d{1,2}))?", re.ASCII)


def parse_cohorts(raw: str) -> list[int]:
    """The cohorts that a text like `7`, `0-9` or `0-4,50` names, in order, each once; `all` names every one.

    Raises:
        BadInput: it is of another form, or a range runs backwards.
    """
    if raw == "all":
        return list(range(COHORTS))
    found: set[int] = set()
    for part in raw.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise BadInput("cohorts", f"{raw[:40]!r} names none; write 7, 0-9, 0-4,50 or all (they are 0 to 99)")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadInput("cohorts", f"{part.strip()!r} runs backwards; write {last}-{first}")
        found.update(range(first, last + 1))
    return sorted(found)


def format_cohorts(cohorts: Iterable[int]) -> str:
    """The shortest text that names these: `0-9,50`."""
    ranges: list[list[int]] = []
    for one in sorted(set(cohorts)):
        if ranges and ranges[-1][1] == one - 1:
            ranges[-1][1] = one
        else:
            ranges.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one path did for one cohort within a time: expiries with their lateness, and what came of references.

    `path` None: an operator's hand. `lost`: the sweep had to expire so many for it.
    """

    path: str | None
    expired: int = 0
    p50: timedelta | None = None
    p99: timedelta | None = None
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    lost: int = 0

    def as_data(self) -> dict[str, object]:
        """As JSON carries it; lateness in seconds."""
        told = (Outcome.DUPLICATE, Outcome.STALE, Outcome.EARLY, Outcome.ELSEWHERE, Outcome.MISSING)
        return {
            "path": self.path,
            "expired": self.expired,
            "lateness_p50_s": _seconds(self.p50),
            "lateness_p99_s": _seconds(self.p99),
            **{outcome.value: self.outcomes.get(outcome, 0) for outcome in told},
            "rescued": self.lost,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One cohort as the source of truth has it. `oldest`: by how much its oldest hold is overdue.

    `unbridged`: it is on a bridge, and not all of its holds are known to have their message.
    """

    cohort: int
    path: str
    held: int = 0
    overdue: int = 0
    oldest: timedelta | None = None
    without_effect: int = 0
    without_event: int = 0
    unbridged: bool = False
    carried: tuple[Carried, ...] = ()

    def unsafe(self, grace: timedelta) -> list[str]:
        """Why this cohort had better not be moved now; empty: it is safe to move.

        Copies, early and stale messages are no reason: they change nothing.
        """
        lost = sum(one.lost for one in self.carried)
        reasons = {
            f"{self.overdue} overdue, the oldest by more than the grace time": (self.oldest or timedelta(0)) > grace,
            f"{self.without_effect} expired without an effect": self.without_effect,
            f"{self.without_event} effects without an event": self.without_event,
            f"{lost} had to be rescued": lost,
            "not all messages are written: route it again": self.unbridged,
            "nothing expired in this time, so nothing is known": not any(one.expired for one in self.carried),
        }
        return [reason for reason, holds in reasons.items() if holds]

    def as_data(self, grace: timedelta) -> dict[str, object]:
        """As JSON carries it; ages in seconds."""
        unsafe = self.unsafe(grace)
        return {
            "cohort": self.cohort,
            "path": self.path,
            "held": self.held,
            "overdue": self.overdue,
            "oldest_overdue_s": _seconds(self.oldest),
            "expired_without_effect": self.without_effect,
            "effect_without_event": self.without_event,
            "paths": [one.as_data() for one in self.carried],
            "safe": not unsafe,
            "unsafe_because": unsafe,
        }


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else round(length.total_seconds(), 3)
