"""Deliveries as an operator sees them: listed, read with their attempts, and replayed once dead."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, select, text

from db.dead_letters import DISCARDED
from db.deliveries import letter_key
from db.engine import Tx
from db.tables import attempts
from domain.endpoints import EndpointId, State
from domain.errors import BadInput
from domain.identity import EventId

REPLAYED = "replayed"
"""What stands as outcome in the dead letter of a delivery that was replayed."""

_CHOSEN = """
(CAST(:event AS text) IS NULL OR d.event_id = :event)
AND (CAST(:endpoint AS text) IS NULL OR d.endpoint_id = :endpoint)
AND (CAST(:type AS text) IS NULL OR e.type = :type)
AND (CAST(:state AS text) IS NULL OR d.state = :state)
AND (CAST(:since AS timestamptz) IS NULL OR d.created_at >= :since)
AND (CAST(:until AS timestamptz) IS NULL OR d.created_at < :until)
"""

_FROM = """
FROM deliveries AS d LEFT JOIN events AS e ON e.event_id = d.event_id
JOIN endpoints AS p ON p.id = d.endpoint_id
"""

_LIST = text(f"""
SELECT d.event_id, d.endpoint_id, e.type, d.state, d.trigger, d.attempts, d.spared, d.next_attempt_at, d.created_at,
       d.settled_at, d.replays, d.replayed_at, d.replayed_by
{_FROM} WHERE {_CHOSEN} ORDER BY d.created_at, d.event_id, d.endpoint_id LIMIT :limit
""")

_COUNT_DEAD = text(
    f"SELECT count(*) {_FROM} WHERE d.state = 'dead' AND d.trigger <> 'test' AND p.state <> 'deleted' AND {_CHOSEN}"
)

_REVIVE_IF_DEAD = text(f"""
WITH chosen AS MATERIALIZED (
    SELECT d.event_id, d.endpoint_id,
           p.stood_still + coalesce(clock_timestamp() - p.still_since, '0') AS still_before
    {_FROM} WHERE d.state = 'dead' AND d.trigger <> 'test' AND p.state <> 'deleted' AND {_CHOSEN}
    ORDER BY d.created_at, d.event_id, d.endpoint_id LIMIT :limit FOR UPDATE OF d
)
UPDATE deliveries AS d
SET state = 'pending', trigger = 'replay', spared = d.attempts, next_attempt_at = clock_timestamp(),
    aging_since = clock_timestamp(), still_before = c.still_before, settled_at = NULL, replays = d.replays + 1,
    replayed_at = clock_timestamp(), replayed_by = :operator
FROM chosen AS c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id AND d.state = 'dead'
RETURNING d.event_id, d.endpoint_id
""")  # noqa: S608 - the parts are constants of this file

_GIVE_UP_IF_DEAD = text("""
UPDATE deliveries SET state = 'cancelled' WHERE event_id = :event AND endpoint_id = :endpoint AND state = 'dead'
""")

_CLOSE_LETTERS = text("""
UPDATE dead_letters SET replayed_at = clock_timestamp(), replayed_by = :operator, outcome = :outcome
WHERE key = ANY(CAST(:keys AS text[]))
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which deliveries are meant: all that fit everything that is given. `since` counts, `until` does not."""

    event: EventId | None = None
    endpoint: EndpointId | None = None
    type: str | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one endpoint. `type` is None where the event is gone; `spared` attempts were nobody's fault."""

    event_id: str
    endpoint_id: str
    type: str | None
    state: str
    trigger: str
    attempts: int
    spared: int
    next_attempt_at: datetime
    created_at: datetime
    settled_at: datetime | None
    replays: int
    replayed_at: datetime | None
    replayed_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request. Without a duration, nobody recorded how it ended: it may have reached the receiver."""

    event_id: str
    endpoint_id: str
    number: int
    trigger: str
    started_at: datetime
    key_ids: list[str]
    worker: str
    duration: timedelta | None
    peer: str | None
    status: int | None
    failure: str | None
    detail: str | None


class Replay(StrEnum):
    """What a replay of one delivery came to."""

    REVIVED = "revived"
    WAITING = "waiting"
    """It is pending already, as after a quick first replay: one attempt, not two."""


def listing(tx: Tx, selection: Selection, *, limit: int) -> list[Delivery]:
    """The oldest of these deliveries, at most so many."""
    return [Delivery(**row._asdict()) for row in tx.execute(_LIST, {**asdict(selection), "limit": limit})]


def attempts_of(tx: Tx, event: EventId, endpoint: EndpointId) -> list[Attempt]:
    """Every attempt of a delivery, in their order."""
    where = (attempts.c.event_id == event, attempts.c.endpoint_id == endpoint)
    return [_attempt(row) for row in tx.execute(select(attempts).where(*where).order_by(attempts.c.number))]


def count_dead(tx: Tx, selection: Selection) -> int:
    """How many deliveries `replay_all` would replay: a dry run."""
    return int(tx.execute(_COUNT_DEAD, asdict(selection)).scalar_one())


def replay(tx: Tx, event: EventId, endpoint: EndpointId, *, operator: str) -> Replay:
    """Let one dead delivery be tried again, with all its attempts and age before it, in the operator's name.

    Two at once: the row's lock lets one through, and the other finds it waiting. It is sent by the lane, so it keeps to
    the endpoint's slots, rate and state as every delivery does.

    Raises:
        BadInput: there is no such delivery, it is delivered or cancelled, or its endpoint is deleted.
    """
    if replay_all(tx, Selection(event=event, endpoint=endpoint), operator=operator, limit=1):
        return Replay.REVIVED
    query = text("""SELECT d.state, p.state AS endpoint FROM deliveries AS d JOIN endpoints AS p ON p.id = d.endpoint_id
                    WHERE d.event_id = :event AND d.endpoint_id = :endpoint""")
    row = tx.execute(query, {"event": event, "endpoint": endpoint}).one_or_none()
    if row is None:
        raise BadInput("delivery", f"there is none of {event[:80]!r} for {endpoint!r}; see `holdfast deliveries list`")
    if row.state == "pending":
        return Replay.WAITING
    if row.endpoint == State.DELETED.value:
        raise BadInput("delivery", "its endpoint is deleted; add another")
    raise BadInput("delivery", f"is {row.state}; only a dead one can be replayed")


def replay_all(tx: Tx, selection: Selection, *, operator: str, limit: int) -> int:
    """Replay the dead ones of these, oldest first, at most so many; how many. Argued as `replay`."""
    asked = {**asdict(selection), "operator": operator, "limit": limit}
    revived = tx.execute(_REVIVE_IF_DEAD, asked).all()
    if revived:
        keys = [letter_key(EventId(row.event_id), EndpointId(row.endpoint_id)) for row in revived]
        tx.execute(_CLOSE_LETTERS, {"keys": keys, "operator": operator, "outcome": REPLAYED})
    return len(revived)


def give_up(tx: Tx, event: EventId, endpoint: EndpointId, *, operator: str) -> bool:
    """Cancel a dead delivery for good and close its dead letter, in the operator's name; False if it is not dead."""
    if tx.execute(_GIVE_UP_IF_DEAD, {"event": event, "endpoint": endpoint}).rowcount == 0:
        return False
    closed = {"keys": [letter_key(event, endpoint)], "operator": operator, "outcome": DISCARDED}
    tx.execute(_CLOSE_LETTERS, closed)
    return True


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(**row._asdict())
