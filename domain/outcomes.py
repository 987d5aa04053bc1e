"""What became of one reference: a closed set of values, and their count."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What became of one reference. Where several would fit, the first in this order is said."""

    EXPIRED = "expired"
    """This message expired the hold."""
    MISSING = "missing"
    """There is no such hold."""
    DUPLICATE = "duplicate"
    """It was expired before, or an earlier copy stands in the same message."""
    STALE = "stale"
    """The hold has another version or deadline, or was closed otherwise."""
    ELSEWHERE = "elsewhere"
    """Another path drives the hold's cohort."""
    EARLY = "early"
    """The deadline is still to come; the on-time message will work."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each outcome came up."""

    counts: Mapping[Outcome, int] = field(default_factory=dict)

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        """Count these."""
        return cls(Counter(outcomes))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(Counter(self.counts) + Counter(other.counts))

    def as_data(self) -> dict[str, int]:
        """Only what came up, in the order of Outcome."""
        return {outcome.value: self.counts[outcome] for outcome in Outcome if self.counts.get(outcome)}
