"""The disposable database an experiment stands on: places holds, lets time pass for them, and reads what came about."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta

from sqlalchemy import text

from db import expiry, holds, reconcile
from db.engine import Database, Tx
from domain.holds import Done, Hold
from domain.identity import HoldId
from domain.paths import Carrier
from domain.terms import For, Terms

_BY = Carrier(message_id="experiment", path=None, run=None, worker="experiment")

_AGE_EFFECTS = text("""
UPDATE effects AS e SET at = e.at - CAST(:by AS interval), expires_at = e.expires_at - CAST(:by AS interval)
FROM holds AS h WHERE h.id = ANY(CAST(:ids AS text[])) AND h.status = 'held' AND e.hold_id = h.id
""")
_AGE_HOLDS = text("""
UPDATE holds SET placed_at = placed_at - CAST(:by AS interval), expires_at = expires_at - CAST(:by AS interval)
WHERE id = ANY(CAST(:ids AS text[])) AND status = 'held'
""")

_AGE_MESSAGES = text("""
UPDATE bridge_messages SET expires_at = expires_at - CAST(:by AS interval),
       publish_at = publish_at - CAST(:by AS interval)
WHERE hold_id = ANY(CAST(:ids AS text[])) AND published_at IS NULL
""")

_STATES = text("""
SELECT h.id, h.status, h.version,
       (SELECT count(*) FROM effects AS e WHERE e.hold_id = h.id AND e.kind = 'expired') AS expiries,
       (SELECT count(*) FROM ledger AS l WHERE l.hold_id = h.id) AS entries,
       (SELECT coalesce(sum(l.amount), 0) FROM ledger AS l WHERE l.hold_id = h.id) AS balance,
       (SELECT count(*) FROM events AS v WHERE v.hold_id = h.id AND v.type = 'reservation.expired') AS events
FROM holds AS h WHERE h.id = ANY(CAST(:ids AS text[])) ORDER BY h.id
""")

_DUE = text("""
SELECT id FROM holds WHERE starts_with(id, :prefix) AND status = 'held' AND expires_at <= now() ORDER BY id
""")

_DEAD_LETTERS = text("SELECT count(*) FROM dead_letters")

AMOUNT = 2500
"""Cents on each hold, so that each has a ledger to keep."""


@dataclass(frozen=True, slots=True)
class State:
    """What a database says of one hold: how often it was expired, its ledger (entries and their sum), its events."""

    status: str
    version: int
    expiries: int
    entries: int
    balance: int
    events: int

    def __str__(self) -> str:
        return (
            f"{self.status}: version {self.version}, expiry effects {self.expiries}, ledger entries {self.entries} "
            f"with balance {self.balance}, expiry events {self.events}"
        )

    def as_data(self) -> dict[str, object]:
        """The state as JSON carries it."""
        return asdict(self)


def expired_once(version: int = 1) -> State:
    """A hold that left `held` once, with its one effect, its ledger closed, its one event."""
    return State("expired", version, 1, 2, 0, 1)


def untouched(version: int = 1) -> State:
    """A hold that no message has changed."""
    return State("held", version, 0, 1, AMOUNT, 0)


class Ground:
    """One database that belongs to one candidate's run and to nobody else."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def place(self, *ids: str, lasting: timedelta = timedelta(hours=2)) -> list[Hold]:
        """New holds with money on them."""
        terms = Terms(resource="spot", customer="experiment", lasting=For(lasting), amount=AMOUNT, currency="EUR")
        with self.db.transaction() as tx:
            return [_done(holds.place(tx, HoldId(one), terms, _BY)) for one in ids]

    def extend(self, hold: Hold, by: timedelta) -> Hold:
        """The next version of a hold."""
        with self.db.transaction() as tx:
            return _done(holds.extend(tx, hold.id, hold.version, For(by)))

    def pass_time(self, ids: Iterable[str], by: timedelta) -> list[Hold]:
        """Let these held holds have been placed so much earlier, as if the time had passed; as they are afterwards."""
        names = list(ids)
        with self.db.transaction() as tx:
            age(tx, names, by)
            return [_known(tx, HoldId(one)) for one in names]

    def overdue(self, *ids: str, by: timedelta = timedelta(minutes=1)) -> list[Hold]:
        """New holds of two hours whose deadline passed this long ago."""
        self.place(*ids)
        return self.pass_time(ids, timedelta(hours=2) + by)

    def states(self, ids: Iterable[str]) -> dict[str, State]:
        """What the database says of these holds; one it does not know is not in it."""
        with self.db.transaction() as tx:
            rows = tx.execute(_STATES, {"ids": list(ids)}).all()
        return {
            r.id: State(r.status, r.version, int(r.expiries), int(r.entries), int(r.balance), int(r.events))
            for r in rows
        }

    def settle(self, prefix: str) -> None:
        """Expire what is due of the holds whose ids begin so, that no later sweep of others finds them."""
        with self.db.transaction() as tx:
            due = tx.execute(_DUE, {"prefix": prefix}).scalars().all()
            references = [_known(tx, HoldId(one)).reference for one in due]
            expiry.expire(tx, references, _BY, grace=timedelta(0))

    def dead_letters(self) -> int:
        """How many commands wait for an operator."""
        with self.db.transaction() as tx:
            return int(tx.execute(_DEAD_LETTERS).scalar_one())

    def violations(self) -> list[str]:
        """What `holdfast reconcile` says of this database, by the names of its checks."""
        with self.db.transaction() as tx:
            return sorted({found.check for found in reconcile.violations(tx)})


def age(tx: Tx, ids: Iterable[str], by: timedelta) -> None:
    """Move the instants of these held holds and of their effects into the past; no effect key of theirs has one."""
    for statement in (_AGE_EFFECTS, _AGE_MESSAGES, _AGE_HOLDS):
        tx.execute(statement, {"ids": list(ids), "by": by})


def _done(answer: object) -> Hold:
    assert isinstance(answer, Done), answer
    return answer.hold


def _known(tx: Tx, hold: HoldId) -> Hold:
    found = holds.get(tx, hold)
    assert found is not None
    return found
