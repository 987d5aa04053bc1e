"""Facts about endpoints: events like others, told to the others. Also the event that tests one endpoint."""

from datetime import datetime

from sqlalchemy import func, select, text

from db.engine import Tx
from db.fanout import audience_of, deliveries_of
from domain.endpoints import EndpointId, Told, endpoint_event, trial_event
from domain.errors import BadInput
from domain.identity import EventId

_WRITE_FOR_THE_OTHERS = text(f"""
WITH event AS (
    INSERT INTO events (event_id, type, occurred_at, body, audience)
    VALUES (:event_id, :type, :at, :body, {audience_of(":type", where="p.id <> :about")})
)
{deliveries_of(
    "(SELECT) AS fact",
    event_id=":event_id", event_type=":type", at="CAST(:at AS timestamptz)", where="p.id <> :about",
)}
""")  # fmt: skip  # noqa: S608 - the parts are constants of this project

_WRITE_FOR_THE_ONE = text("""
WITH one AS MATERIALIZED (
    SELECT id, stood_still, still_since FROM endpoints WHERE id = :about AND state <> 'deleted' FOR UPDATE
), event AS (
    INSERT INTO events (event_id, type, occurred_at, body, audience) SELECT :event_id, :type, :at, :body, 1 FROM one
)
INSERT INTO deliveries (event_id, endpoint_id, trigger, next_attempt_at, created_at, aging_since, still_before)
SELECT :event_id, p.id, 'test', at, at, at, p.stood_still + coalesce(at - p.still_since, '0')
FROM one AS p, CAST(:at AS timestamptz) AS at
""")


def tell(tx: Tx, endpoint: EndpointId, told: Told, reason: str) -> EventId:
    """Write that this endpoint fails, is disabled or has recovered, for every other endpoint that wants to know.

    The caller holds the endpoint's row, so that facts about one endpoint are made one after another, each with an
    instant, and so an id, of its own.
    """
    at = _clock(tx)
    event = endpoint_event(told, endpoint, reason, at)
    tx.execute(_WRITE_FOR_THE_OTHERS, {**event._asdict(), "at": at, "about": endpoint})
    trouble = None if told is Told.RECOVERED else told.value
    tx.execute(text("UPDATE endpoints SET told = :told WHERE id = :id"), {"told": trouble, "id": endpoint})
    return event.event_id


def try_out(tx: Tx, endpoint: EndpointId) -> EventId:
    """Write an event for this endpoint alone. It is delivered as any other, and not again whatever the answer.

    Twice: two events. Against its deletion: whoever locks the row first.

    Raises:
        BadInput: the endpoint is deleted or not there; nothing is written.
    """
    at = _clock(tx)
    event = trial_event(endpoint, at)
    if tx.execute(_WRITE_FOR_THE_ONE, {**event._asdict(), "at": at, "about": endpoint}).rowcount == 0:
        raise BadInput("endpoint", f"{endpoint!r} is deleted or not there; see `holdfast endpoints list`")
    return event.event_id


def _clock(tx: Tx) -> datetime:
    now: datetime = tx.execute(select(func.clock_timestamp())).scalar_one()
    return now
