"""Forget closed holds that ended long ago, in bounded batches; never the ledger, never a dead letter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text

from db.engine import Database, Tx, by_index
from db.holds import clock
from db.reminder_desk import WAITING
from db.reminders import OF_HOLD
from domain.changes import Change, Kind, effect_key
from domain.identity import HoldId, event_id, placed_key

BATCH = 1000
"""Holds looked at in one transaction."""

_NEWEST_OLD_RUN = text("""
SELECT coalesce(max(id), 0) FROM (
    SELECT id FROM sweep_runs WHERE started_at < :before ORDER BY started_at DESC LIMIT 100 -- ids all but follow time
) AS newest
""")

_NEXT_BY_KEY = text("""
SELECT id, CASE WHEN claimed_run <= :newest_run THEN claimed_run END AS old_run,
       status <> 'held' AND closed_at < :before AS old
FROM holds WHERE id > :after ORDER BY id LIMIT :limit
""")

_DELETE_IF_CLOSED_AND_OLD = text("""
WITH locked AS MATERIALIZED (
    SELECT id FROM holds WHERE id = ANY(CAST(:ids AS text[])) ORDER BY id FOR UPDATE
)
DELETE FROM holds AS h USING locked AS l WHERE h.id = l.id AND h.status <> 'held' AND h.closed_at < :before
RETURNING h.id, h.status, h.version, h.expires_at, h.resource, h.amount, h.currency, h.closed_at,
          h.leads IS NOT NULL AS reminded
""")

_VERSION_PLACED_AT = text("SELECT hold_id, version FROM effects WHERE key = ANY(CAST(:keys AS text[]))")

_DELETE_MESSAGES = text("DELETE FROM bridge_messages WHERE hold_id = ANY(CAST(:ids AS text[]))")

_DELETE_EFFECTS = text("DELETE FROM effects WHERE key = ANY(CAST(:keys AS text[]))")

# An event that somebody still waits for, or may replay, stays with its deliveries and attempts when its hold goes.
_STAYS = "d.state = 'pending' OR (d.state = 'dead' AND d.trigger <> 'test')"

_WITH_DELIVERIES = """
delivery AS (
    DELETE FROM deliveries AS d USING gone WHERE d.event_id = gone.event_id
), attempt AS (
    DELETE FROM attempts AS a USING gone WHERE a.event_id = gone.event_id
)
"""

_DELETE_EVENTS = text(f"""
WITH gone AS (
    DELETE FROM events AS e WHERE e.event_id = ANY(CAST(:ids AS text[]))
      AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.event_id = e.event_id AND ({_STAYS}))
    RETURNING e.event_id
), {_WITH_DELIVERIES}
SELECT count(*) FROM gone
""")  # noqa: S608 - the parts are constants of this file

# About endpoints, tests of one, and what was still waited for when its hold went. Nothing can begin to wait for an old
# event: deliveries are written with it, and what is settled is never due again, but for the dead.
_DELETE_OLD_EVENTS_OF_NO_HOLD = text(f"""
WITH next AS MATERIALIZED (
    SELECT event_id, hold_id, occurred_at FROM events WHERE event_id > :after ORDER BY event_id LIMIT :limit
), gone AS (
    DELETE FROM events AS e USING next AS n
    WHERE e.event_id = n.event_id AND n.occurred_at < :before
      AND (n.hold_id IS NULL OR NOT EXISTS (SELECT FROM holds AS h WHERE h.id = n.hold_id))
      AND NOT EXISTS (
          SELECT FROM deliveries AS d WHERE d.event_id = e.event_id AND ({_STAYS} OR d.settled_at >= :before))
    RETURNING e.event_id
), {_WITH_DELIVERIES}
SELECT (SELECT count(*) FROM gone) AS gone, count(*) AS seen, max(event_id) AS last FROM next
""")  # noqa: S608 - the parts are constants of this file

# What waits for an operator stays when its hold goes, without its text and address: no later pass would find them, and
# without a hold it cannot be sent again.
_DELETE_REMINDERS = text(f"""
WITH gone AS (
    DELETE FROM reminders AS r USING unnest(CAST(:holds AS text[])) AS g(id)
    WHERE {OF_HOLD.format(hold="g.id")} AND NOT ({WAITING})
    RETURNING r.key
), attempt AS (
    DELETE FROM reminder_attempts AS a USING gone WHERE a.key = gone.key
), erased AS (
    UPDATE reminders AS r SET message = NULL FROM unnest(CAST(:holds AS text[])) AS g(id)
    WHERE {OF_HOLD.format(hold="g.id")} AND ({WAITING}) AND r.message IS NOT NULL
)
SELECT count(*) FROM gone
""")  # noqa: S608 - constants of this project

_DELETE_OLD_RECEIPTS = text("""
DELETE FROM receipts WHERE id = ANY(ARRAY(SELECT id FROM receipts WHERE at < :before ORDER BY at LIMIT :limit))
""")

_RUNS_OF_RECEIPTS = text("""
SELECT DISTINCT sweep_run FROM receipts WHERE sweep_run <= :newest_run
""")

_DELETE_UNNEEDED_RUNS = text("""
WITH next AS MATERIALIZED (
    SELECT id, started_at, finished_at FROM sweep_runs
    WHERE id > :after AND id <= :newest_run ORDER BY id LIMIT :limit
), gone AS (
    DELETE FROM sweep_runs AS r USING next AS n
    WHERE r.id = n.id AND coalesce(n.finished_at, n.started_at) < :before
      AND n.id <> ALL(CAST(:needed AS bigint[]))
      AND NOT EXISTS (SELECT FROM dead_letters AS d WHERE d.sweep_run = n.id)
      AND NOT EXISTS (SELECT FROM sweeps AS s WHERE s.last_run = n.id)
    RETURNING r.id
)
SELECT max(n.id) AS last, (SELECT count(*) FROM gone) AS gone FROM next AS n
""")


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one transaction, or several together, looked at and deleted."""

    looked_at: int = 0
    holds: int = 0
    effects: int = 0
    events: int = 0
    reminders: int = 0
    receipts: int = 0
    sweep_runs: int = 0

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        deleted = [f"{n:,} {name.replace('_', ' ')}" for name, n in self.as_data().items() if name != "looked_at"]
        return f"{self.looked_at:,} holds looked at; deleted {', '.join(deleted)}"

    def as_data(self) -> dict[str, int]:
        """The counts as JSON carries them."""
        return asdict(self)


def _ignore(_step: Pruned) -> None:
    """Tell nobody."""


def prune(
    database: Database, *, older_than: timedelta, batch: int = BATCH, tell: Callable[[Pruned], None] = _ignore
) -> Pruned:
    """Delete what closed longer ago than this by the database's clock; `tell` hears of each transaction."""
    with database.transaction() as tx:
        before = clock(tx) - older_than
    total = Pruned()
    for step in steps(database, before, batch=batch):
        tell(step)
        total += step
    return total


def steps(database: Database, before: datetime, *, batch: int = BATCH) -> Iterator[Pruned]:
    """Delete what was closed before an instant, and the records nothing remaining needs, a transaction at a time.

    One pass over the primary key, `batch` holds a transaction. A hold goes with its effects and events or not at all,
    so a pass that dies is made good by the next one. Two at once: rows are locked in id order, and what follows is
    taken from the rows really deleted. A held hold stays, however old. Then one over the events, for those of no hold:
    they go, with deliveries and attempts, once all of these were settled before the instant.

    A receipt's instant is the closing instant of each hold it expired, so once the holds of an age are gone nothing
    points at the receipts of that age. A sweep run stays while a hold, a receipt or a dead letter names it.
    """
    with database.transaction() as tx:
        newest_run = int(tx.execute(_NEWEST_OLD_RUN, {"before": before}).scalar_one())
    bounds = {"before": before, "newest_run": newest_run, "limit": batch}
    needed: set[int] = set()
    after: str | None = ""
    while after is not None:
        with database.transaction() as tx:
            after, pruned = _prune_holds(tx, bounds | {"after": after}, needed)
        yield pruned
    yield from _prune_events_of_no_hold(database, bounds)
    yield from _prune_receipts(database, bounds)
    yield from _prune_runs(database, bounds, needed)


def _prune_holds(tx: Tx, bounds: dict[str, Any], needed: set[int]) -> tuple[str | None, Pruned]:
    """The next holds by key; returns the last key, None at the end. Notes the old runs that remaining holds name."""
    by_index(tx)
    rows = tx.execute(_NEXT_BY_KEY, bounds).all()
    needed.update(row.old_run for row in rows if not row.old and row.old_run is not None)
    gone = _delete_holds(tx, [row.id for row in rows if row.old], bounds)
    keys, events = _names(gone, _versions_placed_at(tx, gone))
    pruned = Pruned(
        looked_at=len(rows),
        holds=len(gone),
        effects=tx.execute(_DELETE_EFFECTS, {"keys": keys}).rowcount if gone else 0,
        events=tx.execute(_DELETE_EVENTS, {"ids": events}).scalar_one() if gone else 0,
        reminders=_delete_reminders(tx, [row.id for row in gone if row.reminded]),
    )
    if gone:
        tx.execute(_DELETE_MESSAGES, {"ids": [row.id for row in gone]})
    return (rows[-1].id if len(rows) == bounds["limit"] else None), pruned


def _delete_holds(tx: Tx, ids: list[str], bounds: dict[str, Any]) -> Sequence[Row[Any]]:
    return tx.execute(_DELETE_IF_CLOSED_AND_OLD, bounds | {"ids": ids}).all() if ids else []


def _delete_reminders(tx: Tx, ids: list[str]) -> int:
    return int(tx.execute(_DELETE_REMINDERS, {"holds": ids}).scalar_one()) if ids else 0


def _versions_placed_at(tx: Tx, gone: Sequence[Row[Any]]) -> dict[str, int]:
    """The version each hold began with: 1, or what it was imported with."""
    keys = [placed_key(row.id) for row in gone]
    return {row.hold_id: row.version for row in tx.execute(_VERSION_PLACED_AT, {"keys": keys})} if keys else {}


def _names(gone: Iterable[Row[Any]], begun: dict[str, int]) -> tuple[list[str], list[str]]:
    """The effect keys and event ids that these holds can have: they follow from id, version and deadline."""
    changes = [change for row in gone for change in _history(row, begun.get(row.id, row.version))]
    return (
        [effect_key(change) for change in changes],
        [event_id(change.kind.value, change.hold_id, change.version) for change in changes],
    )


def _history(row: Row[Any], begun: int) -> Iterator[Change]:
    """A closed hold's changes; only what keys are made of is exact."""
    last = Change(
        Kind(row.status), HoldId(row.id), row.version, row.expires_at, row.resource, row.amount, row.currency,
        row.closed_at,
    )  # fmt: skip
    yield last._replace(kind=Kind.PLACED, version=begun)
    for version in range(begun + 1, row.version + 1):
        yield last._replace(kind=Kind.EXTENDED, version=version)
    yield last


def _prune_events_of_no_hold(database: Database, bounds: dict[str, Any]) -> Iterator[Pruned]:
    """One pass over the events' keys."""
    after: str | None = ""
    while after is not None:
        with database.transaction() as tx:
            by_index(tx)
            row = tx.execute(_DELETE_OLD_EVENTS_OF_NO_HOLD, bounds | {"after": after}).one()
        yield Pruned(events=row.gone)
        after = row.last if row.seen == bounds["limit"] else None


def _prune_receipts(database: Database, bounds: dict[str, Any]) -> Iterator[Pruned]:
    gone = bounds["limit"]
    while gone == bounds["limit"]:
        with database.transaction() as tx:
            gone = tx.execute(_DELETE_OLD_RECEIPTS, bounds).rowcount
        yield Pruned(receipts=gone)


def _prune_runs(database: Database, bounds: dict[str, Any], needed: set[int]) -> Iterator[Pruned]:
    with database.transaction() as tx:
        needed.update(tx.execute(_RUNS_OF_RECEIPTS, bounds).scalars())
    after: int | None = 0
    while after is not None:
        with database.transaction() as tx:
            row = tx.execute(_DELETE_UNNEEDED_RUNS, bounds | {"after": after, "needed": sorted(needed)}).one()
        yield Pruned(sweep_runs=row.gone)
        after = row.last
