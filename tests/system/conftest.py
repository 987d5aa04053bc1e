"""Whole stacks of the suite's own: real Postgres and Valkey, real workers and beat, with short leases."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.local.programs import APP
from cli.local.stack import Stack
from db import reconcile
from db.engine import Database
from settings import Settings
from tests.helpers import Desk

LEASE = timedelta(seconds=4)
QUICK: dict[str, Any] = {
    "statement_timeout": timedelta(seconds=1),
    "expiry_soft_limit": timedelta(seconds=2),
    "expiry_hard_limit": timedelta(seconds=3),
    "claim_lease": LEASE,
    "visibility_timeout": timedelta(seconds=6),
    "run_budget": timedelta(seconds=3),
    "webhook_deadline": timedelta(seconds=2),
    "webhook_lease": timedelta(seconds=4),
    "reminder_deadline": timedelta(seconds=2),
    "log_format": "json",
}
"""Short waits, in the order the settings demand."""


class System:
    """A running stack, and what tests ask of it."""

    def __init__(self, stack: Stack, database: Database) -> None:
        self.stack = stack
        self.database = database
        self.desk = Desk(database)

    def until(self, reached: Callable[[], Any], what: str, seconds: float = 60) -> None:
        """Watch other processes until something is so."""
        ends = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > ends:
                raise AssertionError(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.05)

    def place(self, count: int, prefix: str, seconds: float) -> list[str]:
        """So many holds of 2.50 EUR that come due after so many seconds."""
        ids = [f"{prefix}-{number:03}" for number in range(count)]
        with self.database.transaction() as tx:
            from db import holds
            from domain.identity import HoldId
            from domain.terms import For
            from tests.helpers import carrier, terms

            for name in ids:
                lasting = For(timedelta(seconds=seconds))
                holds.place(tx, HoldId(name), terms(lasting, amount=250, currency="EUR"), carrier())
        return ids

    def expired(self, prefix: str) -> int:
        return self.desk.count("holds", f"id LIKE '{prefix}-%' AND status = 'expired'")

    def assert_expired_once(self, prefix: str, count: int) -> None:
        """Each hold has one expiry effect, one closing entry, one event; nothing that must hold is violated."""
        assert self.expired(prefix) == count
        assert self.desk.count("effects", f"hold_id LIKE '{prefix}-%' AND kind = 'expired'") == count
        assert self.desk.count("ledger", f"hold_id LIKE '{prefix}-%' AND side = 'close'") == count
        assert self.desk.count("events", f"hold_id LIKE '{prefix}-%' AND type = 'reservation.expired'") == count
        self.assert_reconciled()

    def assert_reconciled(self) -> None:
        with self.database.transaction() as tx:
            assert reconcile.violations(tx) == []

    def alive(self, program: str) -> bool:
        return self.stack.is_running(program)


@contextmanager
def system(*, app: str = APP, environment: dict[str, str] | None = None, **settings: Any) -> Iterator[System]:
    """A stack in a folder of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        chosen = Settings(home=Path(home), **QUICK | settings)
        with Stack(chosen, app=app, environment=environment) as stack:
            stack.stop_program("flower")
            database = Database(stack.database_url)
            try:
                yield System(stack, database)
            finally:
                database.close()


@pytest.fixture(scope="module")
def running() -> Iterator[System]:
    """One stack for a module's tests; each uses holds of its own."""
    with system() as started:
        yield started
