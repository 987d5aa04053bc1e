"""Deliveries as an operator sees them: listed, read with their attempts, and replayed once dead."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Row, select, text

from db.dead_letters import DISCARDED
from db.deliveries import letter_key
from db.engine import Tx, by_index
from db.tables import attempts
from domain.endpoints import EndpointId, State
from domain.errors import BadInput
from domain.identity import EventId

REPLAYED = "replayed"
"""What stands as outcome in the dead letter of a delivery that was replayed."""

_CONDITIONS = {
    "event": "d.event_id = :event",
    "endpoint": "d.endpoint_id = :endpoint",
    "type": "e.type = :type",
    "state": "d.state = :state",
    "since": "d.created_at >= :since",
    "until": "d.created_at < :until",
}

_FROM = """
FROM deliveries AS d LEFT JOIN events AS e ON e.event_id = d.event_id
JOIN endpoints AS p ON p.id = d.endpoint_id
"""

_COLUMNS = """
d.event_id, d.endpoint_id, e.type, d.state, d.trigger, d.attempts, d.spared, d.earlier, d.next_attempt_at, d.created_at,
d.settled_at, d.replays, d.replayed_at, d.replayed_by
"""

_ORDER = "d.created_at, d.event_id, d.endpoint_id"

_AFTER = f"({_ORDER}) > (CAST(:after_at AS timestamptz), :after_event, :after_endpoint)"

_REPLAYABLE = "d.state = 'dead' AND d.trigger <> 'test' AND p.state <> 'deleted'"

_REVIVE_IF_DEAD = f"""
WITH chosen AS MATERIALIZED (
    SELECT d.event_id, d.endpoint_id,
           p.stood_still + coalesce(clock_timestamp() - p.still_since, '0') AS still_before
    {_FROM} WHERE {_REPLAYABLE} AND {{chosen}} ORDER BY {_ORDER} LIMIT :limit FOR UPDATE OF d
)
UPDATE deliveries AS d
SET state = 'pending', trigger = 'replay', earlier = d.attempts, spared = d.attempts,
    next_attempt_at = clock_timestamp(), aging_since = clock_timestamp(), still_before = c.still_before,
    settled_at = NULL, replays = d.replays + 1, replayed_at = clock_timestamp(), replayed_by = :operator
FROM chosen AS c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id AND d.state = 'dead'
RETURNING d.event_id, d.endpoint_id
"""  # noqa: S608 - the parts are constants of this file

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

    def given(self) -> dict[str, Any]:
        """What is given, by its name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def where(self) -> str:
        """SQL: the delivery `d` of event `e` fits. Only what is given stands there, so that an index can serve it."""
        return " AND ".join([_CONDITIONS[name] for name in self.given()]) or "true"


class Position(NamedTuple):
    """A place in the order of a listing. It stays where it is, whatever becomes of the delivery it was taken from."""

    created_at: datetime
    event_id: str
    endpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one endpoint. `type` is None where the event is gone.

    Of its `attempts`, `earlier` ones were made before its last replay, and `spared` ones do not count toward its bound:
    these, and those that failed through a fault of ours since.
    """

    event_id: str
    endpoint_id: str
    type: str | None
    state: str
    trigger: str
    attempts: int
    spared: int
    earlier: int
    next_attempt_at: datetime
    created_at: datetime
    settled_at: datetime | None
    replays: int
    replayed_at: datetime | None
    replayed_by: str | None

    @property
    def position(self) -> Position:
        """Where it stands in a listing."""
        return Position(self.created_at, self.event_id, self.endpoint_id)


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


def listing(tx: Tx, selection: Selection, *, limit: int, after: Position | None = None) -> list[Delivery]:
    """The oldest of these deliveries, at most so many; those behind a position, where one is given.

    A page costs its rows, however many came before it. Deliveries of one instant have an order among them, so no number
    of them ends a walk. What is committed meanwhile with an earlier instant is not gone back for.
    """
    by_index(tx)
    asked = selection.given() | {"limit": limit}
    where = selection.where()
    if after is not None:
        where = f"{where} AND {_AFTER}"
        asked |= {"after_at": after.created_at, "after_event": after.event_id, "after_endpoint": after.endpoint_id}
    query = f"SELECT {_COLUMNS} {_FROM} WHERE {where} ORDER BY {_ORDER} LIMIT :limit"
    return [Delivery(**row._asdict()) for row in tx.execute(text(query), asked)]


def attempts_of(tx: Tx, event: EventId, endpoint: EndpointId) -> list[Attempt]:
    """Every attempt of a delivery, in their order."""
    where = (attempts.c.event_id == event, attempts.c.endpoint_id == endpoint)
    return [_attempt(row) for row in tx.execute(select(attempts).where(*where).order_by(attempts.c.number))]


def count_dead(tx: Tx, selection: Selection) -> int:
    """How many deliveries `replay_all` without a limit would replay: a dry run."""
    query = f"SELECT count(*) {_FROM} WHERE {_REPLAYABLE} AND {selection.where()}"
    return int(tx.execute(text(query), selection.given()).scalar_one())


def replay(tx: Tx, event: EventId, endpoint: EndpointId, *, operator: str) -> Replay:
    """Let one dead delivery walk the ladder anew, with all its attempts and age before it, in the operator's name.

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
    asked = selection.given() | {"operator": operator, "limit": limit}
    revived = tx.execute(text(_REVIVE_IF_DEAD.format(chosen=selection.where())), asked).all()
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
