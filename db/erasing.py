"""Erase how customers of closed holds were reached, and the texts they got; what happened to them stays on record."""

from datetime import datetime, timedelta

from sqlalchemy import text

from db.engine import Database, Tx, by_index
from db.holds import clock
from db.reminders import OF_HOLD

BATCH = 1000
"""Holds looked at in one transaction."""

_NEXT_BY_KEY = text("""
SELECT id, leads IS NOT NULL AND status <> 'held' AND closed_at < :before AND terms->'contacts' <> 'null' AS old
FROM holds WHERE id > :after ORDER BY id LIMIT :limit
""")

_ERASE_IF_CLOSED_AND_OLD = text("""
WITH locked AS MATERIALIZED (
    SELECT id FROM holds WHERE id = ANY(CAST(:ids AS text[])) ORDER BY id FOR UPDATE
)
UPDATE holds AS h
SET email = NULL, phone = NULL, locale = NULL, terms = jsonb_set(h.terms, '{contacts}', 'null')
FROM locked AS l WHERE h.id = l.id AND h.status <> 'held' AND h.closed_at < :before
RETURNING h.id
""")

_ERASE_TEXTS = text(f"""
UPDATE reminders AS r SET message = NULL
FROM unnest(CAST(:holds AS text[])) AS g(id) WHERE {OF_HOLD.format(hold="g.id")} AND r.message IS NOT NULL
""")  # noqa: S608 - a constant of this project


def erase(database: Database, *, older_than: timedelta, batch: int = BATCH) -> int:
    """Erase the contacts of holds that closed longer ago than this by the database's clock; returns how many.

    One pass over the primary key, a batch a transaction, a hold and its texts together: a pass that dies is made good
    by the next. Two at once: rows are locked in id order, and a hold erased already is passed over. A held hold's
    contacts stay, however old.
    """
    with database.transaction() as tx:
        before = clock(tx) - older_than
    erased, after = 0, ""
    while True:
        with database.transaction() as tx:
            count, last = _erase_next(tx, before, after, batch)
        erased += count
        if last is None:
            return erased
        after = last


def _erase_next(tx: Tx, before: datetime, after: str, batch: int) -> tuple[int, str | None]:
    """How many of the next holds by key were erased, and the last key; None at the end."""
    by_index(tx)
    rows = tx.execute(_NEXT_BY_KEY, {"before": before, "after": after, "limit": batch}).all()
    old = [row.id for row in rows if row.old]
    gone = tx.execute(_ERASE_IF_CLOSED_AND_OLD, {"ids": old, "before": before}).scalars().all() if old else []
    if gone:
        tx.execute(_ERASE_TEXTS, {"holds": list(gone)})
    return len(gone), (rows[-1].id if len(rows) == batch else None)
