"""The plain cron sweep: no messages at all. The row is the queue, and a tick applies what is due."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from sqlalchemy import text

from comparison.bodies import as_body
from comparison.candidate import Ability, Delivery, Description, Doorway, Engine, Limit, Standing, Worker
from comparison.registry import Place
from db.engine import Database
from domain.paths import Path
from domain.references import Reference
from domain.terms import LONGEST_HOLD
from tasks.app import policy
from tasks.sweep import sweep

_LEASE = timedelta(seconds=2)
"""A claim's lease here: what a sweeper that died has claimed is free again after it. In production it is a minute."""
_NO_MESSAGES = "it has no messages: a tick reads the rows that are due"


class _Handing:
    """A lane that hands each claimed reference to the worker at once."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.handed = 0

    def depth(self) -> int:
        """Nothing waits."""
        return 0

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:  # noqa: ARG002 - a lane's
        """Hand these over, one by one."""
        for reference in references:
            self.handed += 1
            self._worker(Delivery(as_body(reference), f"run-{run}-{reference.hold_id}"))


class PlainSweep:
    """Holdfast's own sweep, driven by hand as cron would drive it."""

    def __init__(self, database: str) -> None:
        self._url = database
        self._db = Database(database)

    def describe(self) -> Description:
        """The database is the engine."""
        with self._db.transaction() as tx:
            server = str(tx.execute(text("SELECT current_setting('server_version')")).scalar_one())
        return Description(
            name="sweep",
            title="Plain cron sweep",
            engine=Engine("PostgreSQL", server, Standing.REAL),
            redelivery=f"when the claim of the sweeper that died runs out, {_LEASE.total_seconds():g} s here",
            comes_back=_LEASE.total_seconds(),
            payload=Limit(None, _NO_MESSAGES),
            delay=Limit(
                int(LONGEST_HOLD.total_seconds()), f"the row waits; a hold lasts {LONGEST_HOLD.days} days at most"
            ),
            client=f"the sweep of Holdfast {version('holdfast')}",
            cron="whatever runs `holdfast sweep --here`; here the experiment itself",
            lacks={
                Ability.MESSAGES: _NO_MESSAGES,
                Ability.ACKS: "there is nothing to acknowledge: the row is closed by the commit",
                Ability.DELAY: "there is nothing to delay: the deadline stands in the row",
            },
        )

    def start(self) -> None:
        """Nothing to start."""

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        """Nothing is published: the row says it all."""

    def deliver(self, worker: Worker, patience: float) -> bool:  # noqa: ARG002 - a tick sees at once what is due
        """One tick. False: nothing was due, or it is claimed."""
        return self._tick(worker) > 0

    def tick(self, act: Callable[[], None], patience: float) -> bool:  # noqa: ARG002 - cron is us
        """Cron is the experiment itself."""
        act()
        return True

    def advance(self, by: timedelta) -> bool:  # noqa: ARG002 - the database's clock is the world's
        """The database's clock is not ours to move."""
        return False

    def doorway(self) -> Doorway:
        """The same database."""
        return Doorway(__name__, {"database": self._url})

    def serve(self, worker: Worker) -> None:
        """Tick until killed: what is due may still be claimed by one that died."""
        while True:
            self._tick(worker)
            self._pause()

    def stop(self) -> None:
        """Close the connections."""
        self._db.close()

    def _tick(self, worker: Worker) -> int:
        lane = _Handing(worker)
        sweep(self._db, Path.SWEEP, replace(policy(), lease=_LEASE), lane, apart=timedelta(0))
        return lane.handed

    def _pause(self) -> None:
        """A moment by the database's clock."""
        with self._db.transaction() as tx:
            tx.execute(text("SELECT pg_sleep(0.1)"))


def make(place: Place) -> PlainSweep:
    """The candidate at this place."""
    return PlainSweep(place.database)


def attach(address: Mapping[str, Any]) -> PlainSweep:
    """The same database, from another process."""
    return PlainSweep(address["database"])
