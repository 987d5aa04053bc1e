"""Cohorts: which path drives each, and moving one to another path, with the messages that a bridge needs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from time import monotonic

from sqlalchemy import select, text

from db.bridging import HORIZON
from db.engine import Database, Session, Tx, by_index
from db.tables import cohort_paths
from domain.errors import HoldfastError
from domain.paths import Path

BATCH = 2000
"""Holds looked at in one transaction."""
_ONE_ROUTING_AT_A_TIME = 0x686F6C65
"""The advisory lock's key."""
_LOOK_AGAIN = 0.05
"""Seconds between two looks at who still works by the old path."""

_MOVE_UNLESS_THERE = text("""
WITH moving AS (
    SELECT cohort, path FROM cohort_paths WHERE cohort = ANY(CAST(:cohorts AS integer[])) AND path <> :path
    ORDER BY cohort FOR UPDATE
)
UPDATE cohort_paths AS c SET path = :path, came_from = m.path, routed_at = clock_timestamp(), bridged_at = NULL
FROM moving AS m WHERE c.cohort = m.cohort
RETURNING c.cohort, c.came_from
""")

_NEXT_WRITER = text("SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)")
_OLDEST_WRITER = text("SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)")

_NEXT_HOLDS = text("SELECT id FROM holds WHERE id > :after ORDER BY id LIMIT :limit")

_WRITE_MISSING_MESSAGES = text(f"""
INSERT INTO bridge_messages (hold_id, version, try, expires_at, publish_at)
SELECT h.id, h.version, coalesce(newest.try, 0) + 1, h.expires_at, greatest(now(), h.expires_at - {HORIZON})
FROM holds AS h JOIN cohort_paths AS c ON c.cohort = h.cohort
LEFT JOIN LATERAL (
    SELECT m.try, coalesce(m.published_at, m.batch_at) AS sent_at FROM bridge_messages AS m
    WHERE m.hold_id = h.id AND m.version = h.version ORDER BY m.try DESC LIMIT 1
) AS newest ON true
WHERE h.id > :after AND h.id <= :last AND h.status = 'held'
  AND h.cohort = ANY(CAST(:cohorts AS integer[])) AND c.path = 'infrai'
  AND (newest.try IS NULL OR newest.sent_at < c.routed_at)
ON CONFLICT DO NOTHING
""")  # noqa: S608 - the part is a constant of this project

_DROP_UNPUBLISHED = text("""
DELETE FROM bridge_messages AS m USING holds AS h, cohort_paths AS c
WHERE m.hold_id > :after AND m.hold_id <= :last AND m.published_at IS NULL AND m.batch IS NULL
  AND h.id = m.hold_id AND h.cohort = ANY(CAST(:cohorts AS integer[])) AND c.cohort = h.cohort AND c.path <> 'infrai'
""")

_BRIDGED = text("""
UPDATE cohort_paths SET bridged_at = clock_timestamp()
WHERE cohort = ANY(CAST(:cohorts AS integer[])) AND path = 'infrai' AND bridged_at IS NULL
""")


class RoutingUnderWay(HoldfastError):
    """Another routing has not ended; two at once in opposite directions would undo each other's messages."""


class SomebodyWritesStill(HoldfastError):
    """A transaction that may have seen the old path is still open."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Which path drives a cohort, since when, and which did before; `bridged`: its messages are all written."""

    cohort: int
    path: Path
    came_from: Path | None
    routed_at: datetime | None
    bridged: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """What a routing did. `written` and `dropped` are messages for the bridge."""

    cohorts: dict[int, Path]
    """Those that were elsewhere → where."""
    written: int = 0
    dropped: int = 0


def routings(tx: Tx) -> list[Routing]:
    """Every cohort's."""
    rows = tx.execute(select(cohort_paths).order_by(cohort_paths.c.cohort))
    return [
        Routing(
            row.cohort, Path(row.path), None if row.came_from is None else Path(row.came_from), row.routed_at,
            row.bridged_at is not None,
        )
        for row in rows
    ]  # fmt: skip


def route(db: Database, cohorts: Sequence[int], path: Path, *, patience: timedelta = timedelta(minutes=1)) -> Moved:
    """Let a path drive these cohorts from now on; those it drives already get what messages they lack.

    First the path is changed and committed. From then on the old path's messages are `elsewhere`; a claim of its sweep
    runs out in one lease at most. A hold that was placed meanwhile, by a transaction whose statement still saw the old
    path, has no message for the bridge: so this waits until every transaction that had written by then has ended, and
    only then looks at the holds. Placing waits for nothing and locks nothing.

    Two at once: the second is refused. Dies at any point: the same command again does what is left; until then the
    sweep rescues what is overdue. A clock that is wrong: instants are the database's.

    Raises:
        RoutingUnderWay: another routing has not ended.
        SomebodyWritesStill: a transaction stayed open for longer than `patience`.
    """
    with db.session() as session, _alone(session):
        with session.transaction() as tx:
            asked = {"cohorts": list(cohorts), "path": path}
            moved = {row.cohort: Path(row.came_from) for row in tx.execute(_MOVE_UNLESS_THERE, asked)}
        _wait_for_older_writers(session, patience)
        if path is not Path.INFRAI:
            return Moved(moved, dropped=_each_batch(session, cohorts, _drop))
        written = _each_batch(session, cohorts, _fill)
        with session.transaction() as tx:
            tx.execute(_BRIDGED, {"cohorts": list(cohorts)})
        return Moved(moved, written=written)


@contextmanager
def _alone(session: Session) -> Iterator[None]:
    """One routing at a time; the lock goes with the connection, whatever becomes of this process."""
    key = {"key": _ONE_ROUTING_AT_A_TIME}
    with session.transaction() as tx:
        if not tx.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar_one():
            raise RoutingUnderWay("another `holdfast cohorts route` is under way; try again when it has ended")
    try:
        yield
    finally:
        with session.transaction() as tx:
            tx.execute(text("SELECT pg_advisory_unlock(:key)"), key)


def _wait_for_older_writers(session: Session, patience: timedelta) -> None:
    """Return once every transaction that has written before now has ended.

    A hold's row is written before the statement that looks for its path, so whoever looked before the move had a
    transaction number before it.
    """
    with session.transaction() as tx:
        newest = tx.execute(_NEXT_WRITER).scalar_one()
    until = monotonic() + patience.total_seconds()
    while True:
        with session.transaction() as tx:
            oldest = tx.execute(_OLDEST_WRITER).scalar_one()
        if oldest >= newest:
            return
        if monotonic() > until:
            raise SomebodyWritesStill(
                "the cohorts are moved, but a transaction that began before stays open; end it (see pg_stat_activity), "
                "then give the same command again, which writes what messages are missing"
            )
        Event().wait(_LOOK_AGAIN)


def _each_batch(session: Session, cohorts: Sequence[int], act: Callable[[Tx, dict[str, object]], int]) -> int:
    """Once over all holds by key, a bounded transaction at a time; how many messages that touched."""
    after: str | None = ""
    total = 0
    while after is not None:
        with session.transaction() as tx:
            by_index(tx)
            ids = tx.execute(_NEXT_HOLDS, {"after": after, "limit": BATCH}).scalars().all()
            if ids:
                total += act(tx, {"after": after, "last": ids[-1], "cohorts": list(cohorts)})
            after = ids[-1] if len(ids) == BATCH else None
    return total


def _fill(tx: Tx, asked: dict[str, object]) -> int:
    """Write the messages that are missing.

    Twice, or beside `place` and `extend`: the key lets one through. One that was published before the cohort came
    here may have been consumed as `elsewhere`, so the hold gets another try; a copy changes nothing. So may one whose
    publisher has not yet said how its call ended: repeated under the same key, that call makes no second message.
    """
    return tx.execute(_WRITE_MISSING_MESSAGES, asked).rowcount


def _drop(tx: Tx, asked: dict[str, object]) -> int:
    """Forget messages that nobody needs any more. What is under way is published, and will be `elsewhere`."""
    return tx.execute(_DROP_UNPUBLISHED, asked).rowcount


def unbridged(tx: Tx) -> list[int]:
    """Cohorts on path `infrai` whose messages are not all known to be written."""
    query = select(cohort_paths.c.cohort).where(cohort_paths.c.path == Path.INFRAI.value)
    return list(tx.execute(query.where(cohort_paths.c.bridged_at.is_(None)).order_by(cohort_paths.c.cohort)).scalars())
