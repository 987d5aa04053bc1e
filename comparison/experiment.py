"""The experiment: each case with each candidate, so many times over, and what came of it."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime

from comparison.candidate import Candidate, NotAvailable
from comparison.cases import CASES, Case
from comparison.ground import Ground
from comparison.result import Column, Report, Result, Status
from comparison.trial import Trial

Progress = Callable[[str, str, Status | None], None]
"""Told of a candidate and a case, when it begins (None) and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A candidate that takes part: its name and title, how it is made, and a database for it alone."""

    name: str
    title: str
    make: Callable[[str], Candidate]
    """Takes the database's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be tried: every case, so many runs, with the shuffles that a seed gives."""

    runs: int
    seed: int
    cases: Sequence[Case] = CASES
    burst: int = 1000
    """Messages of the shuffled case."""
    patience: float = 12.0
    """Seconds a message may take that must come."""

    def rng(self, candidate: str, case: str, run: int) -> random.Random:
        """What shuffles one trial: by the seed, whatever else is tried beside it."""
        return random.Random(f"{self.seed}:{candidate}:{case}:{run}")  # noqa: S311 - a shuffle to be repeated


Grounds = Callable[[], AbstractContextManager[Ground]]
"""Makes a fresh, migrated database and removes it afterwards."""


def experiment(
    entrants: Iterable[Entrant], plan: Plan, grounds: Grounds, *, at: datetime, progress: Progress
) -> Report:
    """Try them one after the other, so that none disturbs another."""
    columns: list[Column] = []
    results: list[Result] = []
    for entrant in entrants:
        with grounds() as ground:
            column, found = _try_candidate(entrant, plan, ground, progress)
        columns.append(column)
        results += found
    return Report(
        seed=plan.seed,
        runs=plan.runs,
        at=at,
        columns=columns,
        cases=[case.text for case in plan.cases],
        results=results,
    )


def _try_candidate(entrant: Entrant, plan: Plan, ground: Ground, progress: Progress) -> tuple[Column, list[Result]]:
    candidate = entrant.make(ground.db.engine.url.render_as_string(hide_password=False))
    try:
        candidate.start()
    except NotAvailable as reason:
        return _skipped(entrant, plan, str(reason))
    except Exception as fault:  # noqa: BLE001 - one that cannot even start must not cost the others their results
        return _skipped(entrant, plan, f"it did not start: {_told(fault)}")
    bench = _Bench(entrant.name, candidate, ground, plan)
    results: list[Result] = []
    try:
        for case in plan.cases:
            progress(entrant.title, case.title, None)
            results.append(bench.try_case(case))
            progress(entrant.title, case.title, results[-1].status)
        description = candidate.describe()
    finally:
        left = _stopped(candidate)
    column = Column(
        name=entrant.name, title=entrant.title, description=description, violations=ground.violations(), left=left
    )
    return column, results


def _stopped(candidate: Candidate) -> str | None:
    """Stop it; why it could not remove what it had made, if so."""
    try:
        candidate.stop()
    except Exception as fault:  # noqa: BLE001 - whatever it is, what was found is told
        return _told(fault)
    return None


def _skipped(entrant: Entrant, plan: Plan, reason: str) -> tuple[Column, list[Result]]:
    column = Column(name=entrant.name, title=entrant.title, description=None, skipped=reason)
    return column, [
        Result(candidate=entrant.name, case=case.id, status=Status.SKIPPED, summary=reason) for case in plan.cases
    ]


@dataclass(frozen=True, slots=True)
class _Bench:
    """One candidate that has been started, and the database it is tried on."""

    name: str
    candidate: Candidate
    ground: Ground
    plan: Plan

    def try_case(self, case: Case) -> Result:
        """Try a case as often as planned; the first trial that failed is shown, else the last."""
        lacks = self.candidate.describe().lacks
        for ability in sorted(case.needs):
            if ability in lacks:
                summary = f"{ability}: {lacks[ability]}"
                return Result(candidate=self.name, case=case.id, status=Status.NOT_OFFERED, summary=summary)
        began = time.monotonic()
        trials = [self._try_once(case, run) for run in range(self.plan.runs)]
        shown = next((trial for trial in trials if not trial.passed), trials[-1])
        passed = sum(trial.passed for trial in trials)
        return Result(
            candidate=self.name, case=case.id,
            status=Status.PASSED if passed == len(trials) else Status.FAILED,
            summary=_summary(shown), runs=len(trials), passed_runs=passed, seconds=time.monotonic() - began,
            checks=shown.checks, notes=shown.notes, timelines=shown.timelines,
        )  # fmt: skip

    def _try_once(self, case: Case, run: int) -> Trial:
        """One trial. Whatever a candidate raises is a finding about it, and what it left behind is taken away."""
        rng = self.plan.rng(self.name, case.id, run)
        trial = Trial(
            self.candidate, self.ground, f"{case.id}-{run}", rng, burst=self.plan.burst, patience=self.plan.patience
        )
        try:
            case.run(trial)
        except Exception as fault:  # noqa: BLE001 - a transport may fail in ways of its own
            trial.check("the case runs to its end", _told(fault), passed=False)
            trial.end_timeline("until it failed")
        if not trial.passed:
            with suppress(Exception):
                trial.drain(most=2000)
            with suppress(Exception):
                self.ground.settle(f"{trial.prefix}-")
        return trial


def _summary(trial: Trial) -> str:
    failed = [check for check in trial.checks if not check.passed]
    return f"{failed[0].what}; seen: {failed[0].seen}" if failed else f"{len(trial.checks)} checks hold"


def _told(fault: Exception) -> str:
    return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"[:300]
