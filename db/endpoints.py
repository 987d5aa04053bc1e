"""Endpoints: made, read, edited, and moved between their states. Each call locks the row it changes."""

from dataclasses import replace
from typing import Any

from sqlalchemy import Row, func, select, text
from sqlalchemy.dialects.postgresql import insert

from db.endpoint_events import tell
from db.engine import Tx
from db.tables import endpoints
from domain.endpoints import Endpoint, EndpointId, Overrides, State, Terms, Told
from domain.errors import BadInput

CANCEL_BATCH = 1000
"""Deliveries of deleted endpoints cancelled in one transaction."""

_READ = (*endpoints.c, func.clock_timestamp().label("read_at"))

_MAKE_ROOM = text("""
INSERT INTO endpoint_slots (endpoint_id, slot) SELECT :id, n FROM generate_series(0, :slots - 1) AS n
ON CONFLICT DO NOTHING
""")

_MOVE = text("""
UPDATE endpoints
SET state = :state, reason = :reason,
    still_since = CASE WHEN :state IN ('paused', 'disabled') THEN coalesce(still_since, clock_timestamp()) END,
    failing_since = failing_since + CASE WHEN :state = 'enabled'
        THEN coalesce(clock_timestamp() - greatest(still_since, failing_since), '0') ELSE interval '0' END,
    stood_still = stood_still + CASE WHEN :state IN ('paused', 'disabled') THEN interval '0'
                                     ELSE coalesce(clock_timestamp() - still_since, '0') END
WHERE id = :id
""")

_FORGET_FAILURES = text(
    "UPDATE endpoints SET failing_since = NULL, failures = 0, our_failures = 0, breaker_until = NULL WHERE id = :id"
)

# Rows a worker is just settling are left for the next time: it holds them while it waits for the endpoint's row.
_CANCEL_OF_DELETED = text("""
WITH orphan AS MATERIALIZED (
    SELECT d.event_id, d.endpoint_id
    FROM endpoints AS p CROSS JOIN LATERAL (
        SELECT event_id, endpoint_id FROM deliveries
        WHERE endpoint_id = p.id AND state = 'pending' AND (lease_until IS NULL OR lease_until <= now())
        LIMIT :limit FOR UPDATE SKIP LOCKED
    ) AS d
    WHERE p.state = 'deleted' LIMIT :limit
)
UPDATE deliveries AS d SET state = 'cancelled', settled_at = now(), lease_token = NULL, lease_until = NULL
FROM orphan AS o WHERE d.event_id = o.event_id AND d.endpoint_id = o.endpoint_id
""")


def add(tx: Tx, endpoint: EndpointId, terms: Terms) -> Endpoint:
    """Make an endpoint. It hears of what happens from this transaction's commit on.

    Raises:
        BadInput: the id is taken, also by a deleted endpoint.
    """
    values = {"id": endpoint, "created_at": func.clock_timestamp(), **_columns(terms)}
    row = tx.execute(insert(endpoints).values(values).on_conflict_do_nothing().returning(*_READ)).one_or_none()
    if row is None:
        raise BadInput("endpoint", f"{endpoint!r} is an endpoint already; use another id")
    tx.execute(_MAKE_ROOM, {"id": endpoint, "slots": terms.slots})
    return _endpoint(row)


def locked(tx: Tx, endpoint: EndpointId) -> Endpoint:
    """An endpoint as it stands until this transaction ends.

    Raises:
        BadInput: there is no such endpoint, or it is deleted.
    """
    row = tx.execute(select(*_READ).where(endpoints.c.id == endpoint).with_for_update()).one_or_none()
    if row is None:
        raise BadInput("endpoint", f"there is no endpoint {endpoint!r}; see `holdfast endpoints list`")
    if row.state == State.DELETED.value:
        raise BadInput("endpoint", f"{endpoint!r} is deleted for ever; add another")
    return _endpoint(row)


def get(tx: Tx, endpoint: EndpointId) -> Endpoint | None:
    """An endpoint as it stands now, also a deleted one."""
    return _one(tx.execute(select(*_READ).where(endpoints.c.id == endpoint)).one_or_none())


def listing(tx: Tx, *, deleted: bool = False) -> list[Endpoint]:
    """Every endpoint in the order of their ids; the deleted ones only if asked."""
    query = select(*_READ).order_by(endpoints.c.id)
    if not deleted:
        query = query.where(endpoints.c.state != State.DELETED.value)
    return [_endpoint(row) for row in tx.execute(query)]


def edit(tx: Tx, endpoint: EndpointId, terms: Terms) -> Endpoint:
    """Give an endpoint other terms. What waits for it goes to the new URL; new types count for new events only.

    Raises:
        BadInput: there is no such endpoint, or it is deleted.
    """
    known = locked(tx, endpoint).terms
    before = known.overrides
    changes = _columns(terms)
    if known.rate != terms.rate:  # a pace that another rate has set must not outlive it
        changes["paced_until"] = None
    if (before.max_attempts, before.max_age) != (terms.overrides.max_attempts, terms.overrides.max_age):
        changes["bounds_since"] = func.clock_timestamp()
    tx.execute(endpoints.update().where(endpoints.c.id == endpoint).values(changes))
    tx.execute(_MAKE_ROOM, {"id": endpoint, "slots": terms.slots})
    return _now(tx, endpoint)


def pause(tx: Tx, endpoint: EndpointId, reason: str | None = None) -> Endpoint:
    """Send nothing for now. Its queue stays and its age cap stands still; a request under way ends by itself.

    Twice: the first reason stays. Raises BadInput as `edit` does, and for a disabled endpoint.
    """
    before = locked(tx, endpoint)
    if before.state is State.DISABLED:
        raise BadInput("endpoint", f"{endpoint!r} is disabled already: {before.reason}; enable it first")
    return before if before.state is State.PAUSED else _move(tx, endpoint, State.PAUSED, reason)


def resume(tx: Tx, endpoint: EndpointId) -> Endpoint:
    """Send to a paused endpoint again. The time it stood still counts toward no age, and toward no streak of failures.

    Twice, or two at once: the row's lock lets one through. Raises BadInput as `edit` does, and for a disabled endpoint.
    """
    before = locked(tx, endpoint)
    if before.state is State.DISABLED:
        raise BadInput("endpoint", f"{endpoint!r} is disabled: {before.reason}; use enable")
    return before if before.state is State.ENABLED else _move(tx, endpoint, State.ENABLED, None)


def disable(tx: Tx, endpoint: EndpointId, reason: str, *, quietly: bool = False) -> Endpoint:
    """Send nothing until somebody enables it; others are told, unless `quietly`. Its queue waits as for `pause`.

    Twice, or two at once: the row's lock lets one through, and the first reason stays. Raises BadInput as `edit`.
    """
    before = locked(tx, endpoint)
    if before.state is State.DISABLED:
        return before
    _move(tx, endpoint, State.DISABLED, reason)
    if not quietly:
        tell(tx, endpoint, Told.DISABLED, reason)
    return _now(tx, endpoint)


def enable(tx: Tx, endpoint: EndpointId) -> Endpoint:
    """Send again, with failures forgotten and the breaker closed. Raises BadInput as `edit` does.

    Others hear that it has recovered when a request succeeds, not now.
    """
    before = locked(tx, endpoint)
    tx.execute(_FORGET_FAILURES, {"id": endpoint})
    return _now(tx, endpoint) if before.state is State.ENABLED else _move(tx, endpoint, State.ENABLED, None)


def delete(tx: Tx, endpoint: EndpointId) -> Endpoint:
    """Delete an endpoint for ever: a state, so that its history stays readable. Its keys sign no more.

    A first batch of its deliveries is cancelled here, the rest by `cancel_of_deleted`, which tidying calls: also
    those of a transaction that saw it alive and commits later. Twice: it stays deleted.
    """
    found = get(tx, endpoint)
    if found is not None and found.state is State.DELETED:
        return found
    locked(tx, endpoint)
    revoked = text(
        "UPDATE endpoint_keys SET revoked_at = clock_timestamp() WHERE endpoint_id = :id AND revoked_at IS NULL"
    )
    tx.execute(revoked, {"id": endpoint})
    _move(tx, endpoint, State.DELETED, None)
    cancel_of_deleted(tx)
    return _now(tx, endpoint)


def cancel_of_deleted(tx: Tx, limit: int = CANCEL_BATCH) -> int:
    """Cancel up to `limit` pending deliveries of deleted endpoints; how many."""
    return tx.execute(_CANCEL_OF_DELETED, {"limit": limit}).rowcount


def _move(tx: Tx, endpoint: EndpointId, state: State, reason: str | None) -> Endpoint:
    tx.execute(_MOVE, {"id": endpoint, "state": state.value, "reason": reason})
    return _now(tx, endpoint)


def _now(tx: Tx, endpoint: EndpointId) -> Endpoint:
    found = get(tx, endpoint)
    assert found is not None
    return found


def _columns(terms: Terms) -> dict[str, Any]:
    bounds = terms.overrides
    return {
        "url": terms.url,
        "label": terms.label,
        "types": None if terms.types is None else list(terms.types),
        "waits": None if bounds.waits is None else list(bounds.waits),
        "max_attempts": bounds.max_attempts,
        "max_age": bounds.max_age,
        "client_errors_final": bounds.client_errors_final,
        "slots": terms.slots,
        "rate": terms.rate,
    }


def _one(row: Row[Any] | None) -> Endpoint | None:
    return None if row is None else _endpoint(row)


def _endpoint(row: Row[Any]) -> Endpoint:
    terms = Terms(url=row.url, label=row.label, slots=row.slots, rate=row.rate, overrides=overrides_of(row))
    return Endpoint(
        id=EndpointId(row.id),
        terms=terms if row.types is None else replace(terms, types=tuple(row.types)),
        state=State(row.state),
        reason=row.reason,
        created_at=row.created_at,
        failing_since=row.failing_since,
        failures=row.failures,
        breaker_until=row.breaker_until,
        told=None if row.told is None else Told(row.told),
        read_at=row.read_at,
    )


def overrides_of(row: Row[Any]) -> Overrides:
    """The bounds that stand in a row of `endpoints`."""
    return Overrides(
        waits=None if row.waits is None else tuple(row.waits),
        max_attempts=row.max_attempts,
        max_age=row.max_age,
        client_errors_final=row.client_errors_final,
    )
