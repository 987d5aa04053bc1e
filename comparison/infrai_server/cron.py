"""Scheduled calls: jobs, when they are due, and their runs. Who sends the requests is `pump.py`."""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from comparison.infrai_server.contract import Contract
from comparison.infrai_server.outbound import Outcome, Post
from comparison.infrai_server.problems import conflict, missing
from comparison.infrai_server.queues import Data, instant
from comparison.infrai_server.schedule import Schedule

_RUNS_KEPT = 1000

Json = Any


class RunState(StrEnum):
    """How a run stands (U28)."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"


@dataclass(slots=True)
class Run:
    """One run, with all its attempts."""

    run_id: str
    job_id: str
    started_at: float
    next_attempt_at: float
    ends_at: float
    """From then on it is a timeout, whatever it does."""
    state: RunState = RunState.RUNNING
    attempts: int = 0
    sending: bool = False
    finished_at: float | None = None
    status: int | None = None
    output: bytes = b""

    def as_data(self) -> Data:
        """The record as it is shown."""
        return {
            "run_id": self.run_id,
            "job_id": self.job_id,
            "status": self.state,
            "started_at": instant(self.started_at),
            "finished_at": None if self.finished_at is None else instant(self.finished_at),
            "http_status": self.status,
            "output": self.output.decode("utf-8", "replace"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A job as it was asked for."""

    name: str | None
    url: str
    expression: str | None
    schedule: Schedule | None
    run_at: float | None
    timezone: str
    timeout: int
    attempts: int
    overlap: str
    max_runs: int | None
    payload: Json
    headers: dict[str, str]
    secret: str | None
    on_failure: str | None


@dataclass(slots=True)
class Job:
    """A job as it stands."""

    job_id: str
    terms: Terms
    next_at: float | None
    enabled: bool = True
    started: int = 0
    waiting: int = 0
    """Fires that wait for the run before them, where the policy is `queue`."""
    runs: deque[Run] = field(default_factory=lambda: deque(maxlen=_RUNS_KEPT))

    def as_data(self) -> Data:
        """The record as it is shown."""
        terms = self.terms
        return {
            "job_id": self.job_id,
            "cron_id": self.job_id,
            "name": terms.name,
            "schedule": terms.expression,
            "cron_expr": terms.expression,
            "run_at": None if terms.run_at is None else instant(terms.run_at),
            "url": terms.url,
            "task": terms.url,
            "timezone": terms.timezone,
            "timeout_seconds": terms.timeout,
            "overlap_policy": terms.overlap,
            "max_runs": terms.max_runs,
            "enabled": self.enabled,
            "next_run_at": None if self.next_at is None else instant(self.next_at),
        }

    @property
    def running(self) -> bool:
        """Whether one of its runs is under way."""
        return any(run.state is RunState.RUNNING for run in self.runs)

    @property
    def used_up(self) -> bool:
        """Whether it has had all its runs."""
        return self.terms.max_runs is not None and self.started >= self.terms.max_runs


@dataclass(slots=True)
class Crons:
    """All jobs. Whoever calls holds the server's lock."""

    contract: Contract
    jitter: Callable[[], float] = lambda: 0.0
    """Seconds by which the next fire is late (U31)."""
    failures: list[Post] = field(default_factory=list)
    """What is to be sent to `on_failure_webhook` (U27)."""
    _jobs: dict[str, Job] = field(default_factory=dict)

    def add(self, terms: Terms, now: float) -> Data:
        """cron.create."""
        job = Job(f"job_{secrets.token_hex(10)}", terms, None)
        job.next_at = self._next(job, now)
        self._jobs[job.job_id] = job
        return job.as_data()

    def get(self, job_id: str) -> Job:
        """One job.

        Raises:
            Problem: NOT_FOUND.
        """
        if job_id not in self._jobs:
            raise missing(f"there is no job {job_id[:60]}")
        return self._jobs[job_id]

    def all(self) -> list[Job]:
        """Every job, oldest first (U33)."""
        return list(self._jobs.values())

    def delete(self, job_id: str) -> None:
        """cron.delete; a run under way ends unseen."""
        del self._jobs[self.get(job_id).job_id]

    def pause(self, job_id: str) -> Data:
        """cron.pause."""
        job = self.get(job_id)
        job.enabled, job.next_at, job.waiting = False, None, 0
        return job.as_data()

    def resume(self, job_id: str, now: float) -> Data:
        """cron.resume: from now on, without what would have run meanwhile (U29)."""
        job = self.get(job_id)
        job.enabled = not job.used_up
        job.next_at = self._next(job, now)
        job.enabled = job.next_at is not None
        return job.as_data()

    def trigger(self, job_id: str, now: float) -> Data:
        """cron.trigger: also while paused; it counts toward `max_runs` (U29)."""
        job = self.get(job_id)
        if job.used_up:
            raise conflict(f"job {job_id} has had its {job.terms.max_runs} runs")
        return self._start(job, now).as_data()

    def fire(self, now: float) -> None:
        """Start what is due. However much time has passed at once, a job fires once: nothing is made up for."""
        for job in self._jobs.values():
            if job.waiting and not job.running:
                job.waiting -= 1
                self._start(job, now)
            if job.next_at is None or job.next_at > now:
                continue
            job.next_at = None if job.terms.run_at is not None else self._next(job, now)
            if not job.running or job.terms.overlap == "allow":
                self._start(job, now)
            elif job.terms.overlap == "queue":
                job.waiting += 1
            if job.terms.run_at is not None:
                job.enabled = False

    def to_attempt(self, now: float) -> list[tuple[Job, Run]]:
        """The runs whose next attempt is due; they are marked, so that each is attempted once."""
        found = []
        for job in self._jobs.values():
            for run in job.runs:
                if run.state is RunState.RUNNING and not run.sending and run.next_attempt_at <= now:
                    run.sending, run.attempts = True, run.attempts + 1
                    found.append((job, run))
        return found

    def attempted(self, job: Job, run: Run, outcome: Outcome, now: float) -> None:
        """Settle an attempt: the run has succeeded, failed, timed out, or will be attempted again (U25)."""
        run.sending = False
        run.status, run.output = outcome.status, outcome.output[: self.contract.run_output]
        if outcome.accepted:
            self._finish(run, RunState.SUCCEEDED, now)
            return
        wait = self.contract.run_backoff * 2 ** (run.attempts - 1)
        if outcome.timed_out or now + wait >= run.ends_at:
            self._finish(run, RunState.TIMEOUT if outcome.timed_out else RunState.FAILED, now)
        elif run.attempts < job.terms.attempts:
            run.next_attempt_at = now + wait
            return
        else:
            self._finish(run, RunState.FAILED, now)
        if job.terms.on_failure is not None:
            told = {"job_id": job.job_id, "run_id": run.run_id, "error": outcome.error}
            self.failures.append(Post(job.terms.on_failure, told, 30.0))

    def _start(self, job: Job, now: float) -> Run:
        run = Run(f"run_{secrets.token_hex(10)}", job.job_id, now, now, now + job.terms.timeout)
        job.runs.append(run)
        job.started += 1
        if job.used_up:
            job.enabled, job.next_at, job.waiting = False, None, 0
        return run

    def _finish(self, run: Run, state: RunState, now: float) -> None:
        run.state, run.finished_at = state, now

    def _next(self, job: Job, now: float) -> float | None:
        if not job.enabled or job.used_up:
            return None
        if job.terms.run_at is not None:
            return job.terms.run_at if job.terms.run_at > now else None
        assert job.terms.schedule is not None
        found = job.terms.schedule.after(datetime.fromtimestamp(now, UTC))
        return None if found is None else found.timestamp() + self.jitter()
