"""What an experiment found: checks, timelines and observations of each case for each candidate, and how they add up."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum

from comparison.candidate import Description
from domain.instants import rfc3339


class Status(StrEnum):
    """How a case ended for a candidate."""

    PASSED = "pass"
    FAILED = "fail"
    NOT_OFFERED = "not offered"
    """The transport does not have what the case is about; the reason names its published limit."""
    SKIPPED = "skipped"
    """The candidate's engine does not answer here."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and what was seen."""

    what: str
    passed: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Step:
    """One moment of a trial. `lane` is whose it is: publisher, transport, worker or hold."""

    at_ms: float
    lane: str
    what: str
    subject: str
    good: bool = True


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened in one order of deliveries, in order of time."""

    title: str
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case for one candidate, over all its runs."""

    candidate: str
    case: str
    status: Status
    summary: str
    runs: int = 0
    passed_runs: int = 0
    seconds: float = 0.0
    checks: Sequence[Check] = ()
    notes: Sequence[str] = ()
    timelines: Sequence[Timeline] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A candidate in the report; `description` is None where its engine does not answer."""

    name: str
    title: str
    description: Description | None
    skipped: str | None = None
    violations: Sequence[str] = ()
    """What `holdfast reconcile` says of its database at the end."""
    left: str | None = None
    """Why it could not remove what it had made; None where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseText:
    """What a case is called, and what passes."""

    id: str
    title: str
    passes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything one experiment found."""

    seed: int
    runs: int
    at: datetime
    columns: Sequence[Column]
    cases: Sequence[CaseText]
    results: Sequence[Result] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything failed, or nothing could be tried."""
        statuses = [result.status for result in self.results]
        return Status.FAILED in statuses or all(status is Status.SKIPPED for status in statuses) or self.inconsistent

    @property
    def inconsistent(self) -> bool:
        """Whether a database did not reconcile at the end."""
        return any(column.violations for column in self.columns)

    def by_place(self) -> Mapping[tuple[str, str], Result]:
        """Results by case and candidate."""
        return {(result.case, result.candidate): result for result in self.results}

    def as_data(self) -> dict[str, object]:
        """The report as JSON carries it."""
        return {
            "seed": self.seed,
            "runs": self.runs,
            "at": rfc3339(self.at),
            "failed": self.failed,
            "candidates": [asdict(column) for column in self.columns],
            "cases": [asdict(case) for case in self.cases],
            "results": [asdict(result) for result in self.results],
        }
