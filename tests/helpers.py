"""What many tests do with holds, and what they compare."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text

from comparison.ground import age
from db import expiry, holds, sweeps
from db.engine import Database, Tx
from db.sweeps import Claimed, Idle, Run, TooSoon
from db.tables import metadata
from domain.holds import Answer, Done, Hold
from domain.identity import HoldId, cohort
from domain.outcomes import Outcome
from domain.paths import Carrier, Path
from domain.references import Reference
from domain.sweeping import ClaimPolicy
from domain.terms import For, Lasting, Terms

TWO_HOURS = For(timedelta(hours=2))
GRACE = timedelta(minutes=5)
LEASE = timedelta(seconds=60)
HALF_A_SECOND = timedelta(milliseconds=500)
POLICY = ClaimPolicy(
    lease=LEASE, grace=GRACE, window=10_000, batch=1000, claims_before_set_aside=3, set_aside_limit=100
)


def carrier(message: str = "message-1", *, path: Path | None = None, run: int | None = None) -> Carrier:
    """One message on its first attempt."""
    return Carrier(message_id=message, path=path, run=run, worker="worker@test")


def terms(lasting: Lasting = TWO_HOURS, **others: Any) -> Terms:
    """A seat for a customer, without money, unless said otherwise."""
    return Terms(**{"resource": "seat 14", "customer": "acme", "lasting": lasting, **others})


class Desk:
    """Commands as production gives them: each call is one transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def place(self, hold: str = "h", lasting: Lasting = TWO_HOURS, **others: Any) -> Answer:
        with self.database.transaction() as tx:
            return holds.place(tx, HoldId(hold), terms(lasting, **others), carrier("place"))

    def placed(self, hold: str = "h", lasting: Lasting = TWO_HOURS, **others: Any) -> Hold:
        """A hold newly placed."""
        answer = self.place(hold, lasting, **others)
        assert isinstance(answer, Done)
        assert not answer.repeated
        return answer.hold

    def overdue(self, hold: str = "h", by: timedelta = timedelta(minutes=1), **others: Any) -> Hold:
        """A hold of two hours whose deadline passed this long ago and which no sweep has seen."""
        self.placed(hold, **others)
        self.age(hold, timedelta(hours=2) + by)
        return self.read(hold)

    def extend(self, hold: str, version: int, lasting: Lasting) -> Answer:
        with self.database.transaction() as tx:
            return holds.extend(tx, HoldId(hold), version, lasting)

    def confirm(self, hold: str, version: int = 1) -> Answer:
        with self.database.transaction() as tx:
            return holds.confirm(tx, HoldId(hold), version)

    def cancel(self, hold: str, version: int = 1, reason: str = "not wanted") -> Answer:
        with self.database.transaction() as tx:
            return holds.cancel(tx, HoldId(hold), version, reason)

    def expire(
        self,
        *references: Reference,
        by: Carrier | None = None,
        now: datetime | None = None,
    ) -> list[Outcome]:
        with self.database.transaction() as tx:
            return expiry.expire(tx, references, by or carrier(), grace=GRACE, now=now)

    def read(self, hold: str = "h") -> Hold:
        with self.database.transaction() as tx:
            found = holds.get(tx, HoldId(hold))
        assert found is not None
        return found

    def age(self, hold: str, by: timedelta) -> None:
        """Let a held hold have happened this much earlier: as if that time had passed for it."""
        with self.database.transaction() as tx:
            age(tx, [hold], by)

    def sql(self, statement: str, **values: Any) -> list[Row[*tuple[Any, ...]]]:
        """Rows of one statement in a transaction of its own."""
        with self.database.transaction() as tx:
            result = tx.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

    def count(self, table: str, where: str = "true") -> int:
        return int(self.sql(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table, in order: equal before and after where nothing was changed."""
        with self.database.transaction() as tx:
            return {
                table.name: sorted((tuple(row) for row in tx.execute(table.select())), key=repr)
                for table in metadata.sorted_tables
            }


class Sweeper:
    """One sweeper's calls, each a transaction."""

    def __init__(self, database: Database, path: Path = Path.SWEEP) -> None:
        self.database = database
        self.path = path

    def begin(self, apart: timedelta = HALF_A_SECOND) -> TooSoon | Idle | Run:
        with self.database.transaction() as tx:
            return sweeps.begin(tx, self.path, POLICY, apart=apart)

    def run(self) -> Run:
        """A run, whenever the last one began."""
        begun = self.begin(timedelta(microseconds=-1))
        assert isinstance(begun, Run)
        return begun

    def claim(self, run: Run, limit: int = 1000) -> Claimed:
        with self.database.transaction() as tx:
            return sweeps.claim(tx, run, self.path, POLICY, limit=limit)


def without_receipts(desk: Desk) -> dict[str, list[tuple[Any, ...]]]:
    """Everything a message may change beside the record of itself."""
    return {name: rows for name, rows in desk.everything().items() if name != "receipts"}


_FILL = text("""
WITH new AS (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:cohorts AS integer[])) AS n(id, cohort)
), hold AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, amount, currency, cohort, placed_at)
    SELECT id, 'seat', 'acme', 'held', 1, :deadline, '{}', 250, 'EUR', cohort,
           CAST(:deadline AS timestamptz) - interval '2 hours'
    FROM new
), effect AS (
    INSERT INTO effects (key, hold_id, kind, version, expires_at, at)
    SELECT 'hold-placed:' || id, id, 'placed', 1, :deadline, CAST(:deadline AS timestamptz) - interval '2 hours'
    FROM new
)
INSERT INTO ledger (hold_id, side, amount, currency, reason, at)
SELECT id, 'open', 250, 'EUR', 'placed', CAST(:deadline AS timestamptz) - interval '2 hours' FROM new
""")


def fill(tx: Tx, ids: Sequence[str], *, deadline: datetime) -> list[Reference]:
    """Many held holds of 2.50 EUR with one deadline, in one statement; their references."""
    known = [HoldId(name) for name in ids]
    tx.execute(_FILL, {"ids": known, "cohorts": [cohort(name) for name in known], "deadline": deadline})
    return [Reference.to(name, 1, deadline) for name in known]


def whole_second(tx: Tx, ahead: timedelta = timedelta(0)) -> datetime:
    """This second by the database's clock, and so much later."""
    now: datetime = tx.execute(text("SELECT date_trunc('second', clock_timestamp())")).scalar_one()
    return now + ahead


def wait_until(tx: Tx, deadline: datetime) -> None:
    """Return once the database's clock has reached an instant."""
    query = text("SELECT clock_timestamp() < :deadline, pg_sleep(extract(epoch FROM :deadline - clock_timestamp()))")
    while tx.execute(query, {"deadline": deadline}).one()[0]:
        continue


def wait_for_lock(tx: Tx, waiting: int = 1) -> None:
    """Return once so many other transactions of this database wait for a lock."""
    query = text("""SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'""")
    for _ in range(1000):
        tx.execute(text("SELECT pg_stat_clear_snapshot()"))
        if tx.execute(query).scalar_one() >= waiting:
            return
        tx.execute(text("SELECT pg_sleep(0.005)"))
    raise AssertionError("nobody waited for a lock")
