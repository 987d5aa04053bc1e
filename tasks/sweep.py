"""The sweep: claim what is due in short transactions, and publish references to it in chunks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from db import sweeps
from db.engine import Database
from domain.paths import Path
from domain.references import Reference
from domain.sweeping import ClaimPolicy
from settings import settings
from tasks.app import database, policy, task, worker_name
from tasks.lane import BrokerUnavailable, ExpiryLane, HereAndNow, Lane

log = structlog.get_logger(__name__)

_LOOK_AGAIN = 0.02
"""Seconds between two looks at a lane that holds much of the window."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one tick did. `run` is None where it saw nothing due, or was a copy of a tick that had just begun."""

    run: int | None = None
    claimed: int = 0
    published: int = 0
    too_soon: bool = False
    error: str | None = None

    def as_data(self) -> dict[str, object]:
        """The run as JSON carries it."""
        return {
            "run": self.run,
            "claimed": self.claimed,
            "published": self.published,
            "too_soon": self.too_soon,
            "error": self.error,
        }


@task("sweep.expiries", soft_limit=settings().sweep_soft_limit, hard_limit=settings().sweep_hard_limit)
def sweep_expiries(path: str) -> dict[str, object]:
    """One tick: publish a reference to each due hold of this path's cohorts."""
    swept = sweep(database(), Path(path), policy(), ExpiryLane(), apart=settings().tick / 2)
    if swept.run is not None:
        log.info("sweep.ran", path=path, **swept.as_data())
    return swept.as_data()


@task("scanner.expiries", soft_limit=settings().sweep_soft_limit, hard_limit=settings().sweep_hard_limit)
def scan() -> dict[str, object]:
    """One tick of the plain in-database scan: expire what is due of the scanner's cohorts, here and now.

    It claims as every sweep does, so two scans at once, or one beside a rescue, share what is due.
    """
    lane = HereAndNow(database(), policy(), worker_name())
    swept = sweep(database(), Path.SCANNER, policy(), lane, apart=settings().tick / 2)
    if swept.run is not None:
        log.info("scanner.ran", **swept.as_data())
    return swept.as_data()


def sweep(db: Database, path: Path, bounds: ClaimPolicy, lane: Lane, *, apart: timedelta) -> Swept:
    """Begin a tick, and if anything is due, claim and publish until nothing is, or a bound is reached.

    Two beats, an old tick: `sweeps.begin` lets one through. Dies at any point: what was claimed and not published
    waits one lease. The broker is away: what it did not take is given back, and the next tick takes it again.
    """
    with db.transaction() as tx:
        begun = sweeps.begin(tx, path, bounds, apart=apart)
    if not isinstance(begun, sweeps.Run):
        return Swept(too_soon=isinstance(begun, sweeps.TooSoon))
    structlog.contextvars.bind_contextvars(run=begun.id)
    run = _Progress(db, begun, path, bounds, lane)
    error: str | None = "the run was cut short"
    try:
        run.work_until(time.monotonic() + settings().run_budget.total_seconds())
        error = None
    except BrokerUnavailable as fault:
        error = str(fault)
        log.warning("sweep.broker_unavailable")
    finally:
        with db.transaction() as tx:
            sweeps.finish(tx, begun, error)
    return Swept(begun.id, run.claimed, run.published, error=error)


class _Progress:
    """One run's loop: claim a batch, publish it, mind the bounds."""

    def __init__(self, db: Database, run: sweeps.Run, path: Path, bounds: ClaimPolicy, lane: Lane) -> None:
        self._db, self._run, self._path, self._bounds, self._lane = db, run, path, bounds, lane
        self.claimed = 0
        self.published = 0

    def work_until(self, deadline: float) -> None:
        """Go on until nothing is due or `deadline` (monotonic); not at all while the lane holds a window's worth."""
        if self._lane.depth() >= self._window_of_messages:
            return
        room, since = self._room(), sweeps.LONG_AGO
        while time.monotonic() < deadline:
            if room <= 0:
                room = self._wait_for_room()
            if room <= 0:
                return
            with self._db.transaction() as tx:
                limit = min(self._bounds.batch, room)
                claimed = sweeps.claim(tx, self._run, self._path, self._bounds, limit=limit, since=since)
            if not claimed.ids:
                return
            since = claimed.latest
            self.claimed += len(claimed.ids)
            self._publish(claimed)
            room -= len(claimed.ids)

    def _wait_for_room(self) -> int:
        """Room once workers have taken half of what waits; none if they do not in a tick's time: the next one sees."""
        patience = time.monotonic() + settings().tick.total_seconds()
        while time.monotonic() < patience:
            if self._lane.depth() <= self._window_of_messages // 2 and (room := self._room()) > 0:
                return room
            time.sleep(_LOOK_AGAIN)  # noqa: TID251 - a bounded wait for workers, with no transaction open
        return 0

    def _room(self) -> int:
        """How many more holds may be in flight. It reads a window of rows, so the lane is asked first."""
        with self._db.transaction() as tx:
            return self._bounds.window - sweeps.in_flight(tx, self._bounds.window)

    @property
    def _window_of_messages(self) -> int:
        return max(1, self._bounds.window // settings().chunk)

    def _publish(self, claimed: sweeps.Claimed) -> None:
        """Publish in chunks; what the broker does not take is given back."""
        left = set(claimed.ids)
        try:
            for path, references in ((self._path, claimed.own), (Path.RESCUE, claimed.rescued)):
                for chunk in _chunks(references, settings().chunk):
                    self._lane.publish(self._run.id, path, chunk)
                    left.difference_update(reference.hold_id for reference in chunk)
        finally:
            done = len(claimed.ids) - len(left)
            self.published += done
            with self._db.transaction() as tx:
                sweeps.published(tx, self._run, done)
                if left:
                    sweeps.release(tx, self._run, sorted(left))


def _chunks(references: Sequence[Reference], size: int) -> list[Sequence[Reference]]:
    return [references[start : start + size] for start in range(0, len(references), size)]
