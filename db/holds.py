"""Place, extend, confirm, cancel and read holds. Writers touch Postgres only."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, select, text
from sqlalchemy.dialects.postgresql import insert

from db import expiry, reminders
from db.engine import Tx
from db.facts import record
from db.tables import effects, holds, ledger
from domain.changes import Change, Kind
from domain.holds import Answer, Done, Hold, Reason, Refused, Status, why_refused
from domain.identity import HoldId, cohort, extended_key, placed_key
from domain.paths import Carrier
from domain.reminding import Channel
from domain.terms import DEFAULT_LEADS, For, Lasting, Terms, deadline_ahead, same_terms

_TRIES = 3
"""Times `place` looks again at who has an exclusive resource."""

_READ = (
    holds.c.id, holds.c.resource, holds.c.customer, holds.c.status, holds.c.version, holds.c.expires_at,
    holds.c.timezone, holds.c.amount, holds.c.currency, holds.c.exclusive, holds.c.cohort, holds.c.placed_at,
    holds.c.closed_at, holds.c.close_reason, holds.c.set_aside, holds.c.email,
    holds.c.phone, holds.c.locale, holds.c.leads, func.clock_timestamp().label("read_at"),
)  # fmt: skip


def clock(tx: Tx) -> datetime:
    """This instant by the database's clock, not the transaction's start."""
    now: datetime = tx.execute(select(func.clock_timestamp())).scalar_one()
    return now


def get(tx: Tx, hold: HoldId) -> Hold | None:
    """A hold as it stands now."""
    return _one(tx.execute(select(*_READ).where(holds.c.id == hold)).one_or_none())


def lock(tx: Tx, hold: HoldId) -> Hold | None:
    """A hold's row, locked until the transaction ends. Its `read_at` may be older than the lock: ask `clock` again."""
    return _one(tx.execute(select(*_READ).where(holds.c.id == hold).with_for_update()).one_or_none())


def listing(
    tx: Tx, *, status: str | None, resource: str | None, customer: str | None, after: str | None, limit: int
) -> list[Hold]:
    """Holds in the order of their ids, after one id, at most so many. `status` may also be `lapsed`."""
    query = select(*_READ).order_by(holds.c.id).limit(limit)
    if status is not None:
        stored = Status.HELD if status in {"held", "lapsed"} else Status(status)
        query = query.where(holds.c.status == stored.value)
        if status == "held":
            query = query.where(holds.c.expires_at > func.now())
        elif status == "lapsed":
            query = query.where(holds.c.expires_at <= func.now())
    for column, value in ((holds.c.resource, resource), (holds.c.customer, customer)):
        if value is not None:
            query = query.where(column == value)
    if after is not None:
        query = query.where(holds.c.id > after)
    return [_hold(row) for row in tx.execute(query)]


def place(
    tx: Tx, hold: HoldId, terms: Terms, by: Carrier, *, leads: Sequence[timedelta] = DEFAULT_LEADS
) -> Answer:  # fmt: skip
    """Place a hold, or return the one that has this id and these terms. `leads` are for terms that give none.

    Two at once: the primary key, or the exclusive index, lets one through; the other waits for its commit and then
    finds it. Dies before commit: no hold, and no reminder of it. A lapsed hold that has the exclusive resource is
    expired first, in this transaction, by the function that expires every hold; `by` is what its receipt says.

    Raises:
        BadInput: the deadline is not ahead of the database's clock.
    """
    for _ in range(_TRIES):
        existing = _repeat_of(tx, hold, terms)
        if existing is not None:
            return existing
        taken = _free_resource(tx, terms, by) if terms.exclusive else None
        if taken is not None and taken.id != hold:
            return Refused(Reason.RESOURCE_TAKEN, taken)
        if _is_retired(tx, hold):
            return Refused(Reason.ID_RETIRED)
        now = clock(tx)
        values = _values(hold, terms, now) | contacts_of(terms, leads)
        placed = _insert(tx, values)
        if placed is not None:
            deadline_ahead(terms.lasting, now, placed.read_at)  # it may have waited for another's insert
            record(tx, Kind.PLACED, [_change(Kind.PLACED, placed, now)], at=now)
            if placed.leads is not None:
                reminders.schedule(tx, hold, now)
            return Done(placed)
    return Refused(Reason.RESOURCE_TAKEN, _holder(tx, terms.resource))


def _repeat_of(tx: Tx, hold: HoldId, terms: Terms) -> Answer | None:
    row = tx.execute(select(*_READ, holds.c.terms).where(holds.c.id == hold)).one_or_none()
    if row is None:
        return None
    if not same_terms(row.terms, terms):
        return Refused(Reason.TERMS_DIFFER, _hold(row))
    return Done(_hold(row), repeated=True)


def _holder(tx: Tx, resource: str) -> Hold | None:
    query = select(*_READ).where(holds.c.resource == resource, text("exclusive AND status = 'held'"))
    return _one(tx.execute(query.with_for_update()).one_or_none())


def _free_resource(tx: Tx, terms: Terms, by: Carrier) -> Hold | None:
    """The counting hold that has the resource; a lapsed one is expired instead."""
    holder = _holder(tx, terms.resource)
    if holder is None:
        return None
    now = clock(tx)
    if holder.expires_at > now:
        return holder
    expiry.expire(tx, [holder.reference], by, grace=timedelta(0), now=now)
    return None


def _is_retired(tx: Tx, hold: HoldId) -> bool:
    """Whether the ledger, which is never pruned, knows a hold of this id that is gone; in one snapshot of both."""
    known = select(ledger.c.side).where(ledger.c.hold_id == hold).exists()
    gone = ~select(holds.c.id).where(holds.c.id == hold).exists()
    return bool(tx.execute(select(known & gone)).scalar_one())


def _values(hold: HoldId, terms: Terms, now: datetime) -> dict[str, object]:
    return {
        "id": hold,
        "resource": terms.resource,
        "customer": terms.customer,
        "status": Status.HELD.value,
        "version": 1,
        "expires_at": deadline_ahead(terms.lasting, now, now),
        "terms": terms.as_data(),
        "timezone": terms.timezone,
        "amount": terms.amount,
        "currency": terms.currency,
        "exclusive": terms.exclusive,
        "cohort": cohort(hold),
        "placed_at": now,
    }


def contacts_of(terms: Terms, leads: Sequence[timedelta]) -> dict[str, object]:
    """The columns of a hold that say how its customer is reminded."""
    contacts = terms.contacts
    if contacts is None:
        return {}
    chosen = contacts.leads or leads
    return {"email": contacts.email, "phone": contacts.phone, "locale": contacts.locale, "leads": list(chosen)}


def _insert(tx: Tx, values: dict[str, object]) -> Hold | None:
    """The new hold; None where the id or the exclusive resource was taken meanwhile."""
    return _one(tx.execute(insert(holds).values(values).on_conflict_do_nothing().returning(*_READ)).one_or_none())


# The row is locked before these two statements, so the one reading of the clock that judges is the one on record.

_EXTEND_IF_COUNTING_AND_AHEAD = text("""
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE holds
SET expires_at = :deadline, version = version + 1, claimed_run = NULL, claimed_until = NULL, claims = 0,
    set_aside = false
FROM clock
WHERE id = :id AND status = 'held' AND version = :version AND expires_at > clock.now AND :deadline > clock.now
RETURNING clock.now AS at
""")


def extend(tx: Tx, hold: HoldId, version: int, lasting: Lasting) -> Answer:
    """Give a counting hold of this version a new deadline, and so the next version.

    `For` counts from the present deadline; `Until` may also be earlier, never at or before now. Judged by the
    database's clock after the row is locked, so a command that waited past the deadline is refused. Twice: the repeat
    finds version + 1 at the same deadline. Dies before commit: nothing; after commit: the repeat says so.

    Raises:
        BadInput: the new deadline is not ahead of now.
    """
    before = lock(tx, hold)
    if before is not None and _was_extended(tx, before, version, lasting):
        return Done(before, repeated=True)
    now = clock(tx)
    if before is None or not _may_change(before, version, now):
        return _refused(tx, hold, version)
    deadline = deadline_ahead(lasting, before.expires_at, now)
    asked = {"id": hold, "version": version, "deadline": deadline}
    changed = tx.execute(_EXTEND_IF_COUNTING_AND_AHEAD, asked).one_or_none()
    if changed is None:
        deadline_ahead(lasting, before.expires_at, clock(tx))
        return _refused(tx, hold, version)
    return _changed(tx, Kind.EXTENDED, hold, changed.at)


def _was_extended(tx: Tx, hold: Hold, version: int, lasting: Lasting) -> bool:
    """Whether this hold is what the same command made of that version."""
    if hold.version != version + 1:
        return False
    if not isinstance(lasting, For):
        return lasting.deadline(hold.read_at) == hold.expires_at
    keys = [placed_key(hold.id), extended_key(hold.id, version)]  # an imported hold may be placed at any version
    query = select(effects.c.expires_at).where(effects.c.key.in_(keys), effects.c.version == version)
    previous = tx.execute(query).scalar_one_or_none()
    return previous is not None and lasting.deadline(previous) == hold.expires_at


_CLOSE_IF_COUNTING = text("""
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE holds
SET status = :status, closed_at = clock.now, close_reason = :reason
FROM clock
WHERE id = :id AND status = 'held' AND version = :version AND expires_at > clock.now
RETURNING clock.now AS at
""")


def confirm(tx: Tx, hold: HoldId, version: int) -> Answer:
    """Close a counting hold of this version as confirmed. Argued as `extend`; the repeat returns the hold."""
    return _close(tx, Kind.CONFIRMED, hold, version, None)


def cancel(tx: Tx, hold: HoldId, version: int, reason: str) -> Answer:
    """Close a counting hold of this version as cancelled. Argued as `extend`; the repeat returns the hold."""
    return _close(tx, Kind.CANCELLED, hold, version, reason)


def _close(tx: Tx, kind: Kind, hold: HoldId, version: int, reason: str | None) -> Answer:
    before = lock(tx, hold)
    if before is not None and before.status.value == kind.value:
        same = before.version == version and before.close_reason == reason
        return Done(before, repeated=True) if same else Refused(Reason.CLOSED, before)
    asked = {"id": hold, "version": version, "status": kind.value, "reason": reason}
    changed = tx.execute(_CLOSE_IF_COUNTING, asked).one_or_none()
    if changed is None:
        return _refused(tx, hold, version)
    return _changed(tx, kind, hold, changed.at)


def _may_change(hold: Hold, version: int, now: datetime) -> bool:
    return hold.status is Status.HELD and hold.version == version and hold.expires_at > now


def _refused(tx: Tx, hold: HoldId, version: int) -> Refused:
    return why_refused(get(tx, hold), version)


def _changed(tx: Tx, kind: Kind, hold: HoldId, at: datetime) -> Done:
    after = get(tx, hold)
    assert after is not None
    record(tx, kind, [_change(kind, after, at)], at=at)
    return Done(after, under_way=() if after.leads is None else _remind(tx, kind, hold, at))


def _remind(tx: Tx, kind: Kind, hold: HoldId, at: datetime) -> tuple[Channel, ...]:
    """Call off what reminds of what was; after an extension, write what reminds of the new deadline."""
    reminders.call_off(tx, [hold], f"the hold was {kind}")
    under_way = reminders.under_way(tx, hold)
    if kind is Kind.EXTENDED:
        reminders.schedule(tx, hold, at)
    return under_way


def _change(kind: Kind, hold: Hold, at: datetime) -> Change:
    return Change(kind, hold.id, hold.version, hold.expires_at, hold.resource, hold.amount, hold.currency, at)


def _one(row: Row[Any] | None) -> Hold | None:
    return None if row is None else _hold(row)


def _hold(row: Row[Any]) -> Hold:
    columns = {column.key: getattr(row, column.key) for column in _READ}
    leads = None if row.leads is None else tuple(row.leads)
    return Hold(**columns | {"status": Status(row.status), "id": HoldId(row.id), "leads": leads})
