"""Take holds from elsewhere: a batch is copied beside the tables, then moved in by one statement."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import psycopg
from pydantic_core import to_json
from sqlalchemy import Row, text

from db.bridging import messages_of
from db.engine import Tx
from db.fanout import audience_of, deliveries_of
from db.reminders import reminders_of
from domain.changes import Change, effect_key, event_of, ledger_side
from domain.errors import BadInput
from domain.identity import cohort
from domain.importing import BadLine, Incoming, changes_of
from domain.instants import rfc3339
from domain.terms import DEFAULT_LEADS, Terms

_BESIDE = """
CREATE TEMPORARY TABLE IF NOT EXISTS incoming_holds (
    line integer, repeat boolean, relative boolean, id text COLLATE "C", resource text, customer text, status text,
    version integer, expires_at timestamptz, terms jsonb, timezone text, amount bigint, currency text,
    exclusive boolean, cohort smallint, placed_at timestamptz, closed_at timestamptz, close_reason text,
    email text, phone text, locale text, leads interval[]
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS incoming_changes (
    hold_id text COLLATE "C", key text, kind text, at timestamptz, side text, event_id text, type text, body bytea
) ON COMMIT DELETE ROWS;
TRUNCATE incoming_holds, incoming_changes;
"""

_STILL_HELD = "(SELECT id AS hold_id, version, expires_at, cohort FROM taken WHERE status = 'held') AS held"

# A delivery of an imported event is as old as the import: its event may be older than any delivery may grow.
_TAKE_IF_ID_AND_RESOURCE_ARE_FREE = text(f"""
WITH taken AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, timezone, amount, currency,
                       exclusive, cohort, placed_at, closed_at, close_reason, email, phone, locale, leads)
    SELECT id, resource, customer, status, version, expires_at, terms, timezone, amount, currency,
           exclusive, cohort, placed_at, closed_at, close_reason, email, phone, locale, leads
    FROM incoming_holds AS i
    WHERE NOT repeat AND (SELECT l.side FROM ledger AS l WHERE l.hold_id = i.id LIMIT 1) IS NULL
    ORDER BY id
    ON CONFLICT DO NOTHING
    RETURNING id, version, expires_at, amount, currency, status, cohort, email, phone, leads
), change AS (
    SELECT * FROM incoming_changes AS c JOIN taken AS t ON t.id = c.hold_id
), effect AS (
    INSERT INTO effects (key, hold_id, kind, version, expires_at, at, imported)
    SELECT key, hold_id, kind, version, expires_at, at, true FROM change
), entry AS (
    INSERT INTO ledger (hold_id, side, amount, currency, reason, at)
    SELECT hold_id, side, CASE side WHEN 'open' THEN amount ELSE -amount END, currency, kind, at
    FROM change WHERE amount IS NOT NULL AND side IS NOT NULL
), event AS (
    INSERT INTO events (event_id, hold_id, type, occurred_at, body, audience)
    SELECT event_id, hold_id, type, at, body, {audience_of("type")} FROM change WHERE event_id IS NOT NULL
), delivery AS (
    {deliveries_of("change", event_id="event_id", event_type="type", at="now()", where="event_id IS NOT NULL")}
), reminder AS (
    {reminders_of("taken", at="now()")}
), message AS (
    {messages_of(_STILL_HELD, expires_at="expires_at", at="now()")}
)
SELECT array_agg(i.line) FROM incoming_holds AS i LEFT JOIN taken AS t ON t.id = i.id WHERE t.id IS NULL OR i.repeat
""")  # noqa: S608 - the parts are constants of this project

_WHY_NOT = text("""
SELECT i.line, i.id, i.resource, h.same,
       (SELECT l.side FROM ledger AS l WHERE l.hold_id = i.id LIMIT 1) IS NOT NULL AS retired,
       CASE WHEN i.exclusive AND i.status = 'held' THEN
           (SELECT o.id FROM holds AS o WHERE o.resource = i.resource AND o.exclusive AND o.status = 'held')
       END AS holder
FROM incoming_holds AS i
LEFT JOIN LATERAL (
    SELECT h.terms - vague.names = i.terms - vague.names AS same
    FROM holds AS h
    CROSS JOIN LATERAL (SELECT array_remove(ARRAY[
        CASE WHEN i.relative THEN 'until' END,
        CASE WHEN h.terms->'contacts' = 'null' AND i.terms->'contacts' IS NOT NULL THEN 'contacts' END
    ], NULL) AS names) AS vague -- erased contacts are taken to have been the same ones
    WHERE h.id = i.id
    OFFSET 0 -- one look-up by key a line, never a scan of all holds
) AS h ON true
WHERE i.line = ANY(CAST(:lines AS integer[]))
ORDER BY i.line
""")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a batch: how many holds are new, how many were there before, and the lines that are bad."""

    taken: int
    already_there: int
    bad: list[BadLine]


Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds to take, and the changes their history entails, as they are copied."""

    holds: list[Values]
    changes: list[Values]


def prepare(
    holds: Iterable[Incoming], *, emit: bool, leads: Sequence[timedelta] = DEFAULT_LEADS
) -> Batch:  # fmt: skip
    """Lay holds out for `take`, in the order of their ids: neighbours go to the same pages. `emit` makes events.

    `leads` are for holds with contacts that give none.
    """
    batch = Batch([], [])
    previous = None
    for hold in sorted(holds, key=lambda hold: (hold.id, hold.line)):
        repeat = hold.id == previous
        batch.holds.append(_hold_values(hold, leads, repeat=repeat))
        if not repeat:
            batch.changes.extend(_change_values(change, emit=emit) for change in changes_of(hold))
        previous = hold.id
    return batch


def take(tx: Tx, batch: Batch) -> Answer:
    """Take the holds of a batch that are new, with what their history entails; say of the others why not.

    Two at once, or with live traffic: rows go in by id, in one order, and the primary key and the exclusive index let
    one through; the other is judged in a second statement that sees what it waited for. Effects (marked as imported),
    ledger entries and events follow from the holds really inserted, so a batch taken twice has no second effect.
    Dies before commit: nothing of the batch; after it: the same lines again are already there. Hence an import that
    died may be run again from its first line.
    """
    if not batch.holds:
        return Answer(0, 0, [])
    _copy(tx, batch)
    left = tx.execute(_TAKE_IF_ID_AND_RESOURCE_ARE_FREE).scalar_one() or []
    bad: list[BadLine] = []
    if left:
        problems = [(row.line, _problem(row)) for row in tx.execute(_WHY_NOT, {"lines": left})]
        bad = [BadLine(line, problem) for line, problem in problems if problem is not None]
    return Answer(len(batch.holds) - len(left), len(left) - len(bad), bad)


def _problem(row: Row[Any]) -> BadInput | None:
    """Why a line was not taken; None where its hold is already there with the same terms."""
    if row.same is not None:
        return None if row.same else BadInput("id", f"{row.id!r} is a hold with other terms already; use another")
    if row.retired:
        return BadInput("id", f"{row.id!r} belonged to a hold that was pruned; use another")
    if row.holder is not None:
        return BadInput("resource", f"{row.resource!r} is taken by the exclusive hold {row.holder!r}")
    return BadInput("id", f"{row.id!r} is on a refused line above, or was just given up by another; import it again")


def _copy(tx: Tx, batch: Batch) -> None:
    connection = tx.connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    connection.execute(_BESIDE)
    for table, rows in (("incoming_holds", batch.holds), ("incoming_changes", batch.changes)):
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


def _hold_values(hold: Incoming, leads: Sequence[timedelta], *, repeat: bool) -> Values:
    """In the order of `incoming_holds`; a repeat has the id of an earlier line."""
    terms = hold.terms
    return (
        hold.line, repeat, hold.relative, hold.id, terms.resource, terms.customer, hold.status.value, hold.version,
        _instant(hold.expires_at), to_json(terms.as_data()).decode(), terms.timezone, terms.amount, terms.currency,
        terms.exclusive, cohort(hold.id), _instant(hold.placed_at), _instant(hold.closed_at), hold.close_reason,
        *_contact_values(terms, leads),
    )  # fmt: skip


def _contact_values(terms: Terms, leads: Sequence[timedelta]) -> Values:
    contacts = terms.contacts
    if contacts is None:
        return (None, None, None, None)
    return (contacts.email, contacts.phone, contacts.locale, list(contacts.leads or leads))


def _change_values(change: Change, *, emit: bool) -> Values:
    """In the order of `incoming_changes`."""
    event = event_of(change) if emit else (None, None, None)
    return (
        change.hold_id, effect_key(change), change.kind.value, _instant(change.at), ledger_side(change.kind), *event,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else rfc3339(instant)
