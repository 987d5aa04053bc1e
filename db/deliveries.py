"""Deliveries: one is taken in one committed change directly before its request, and settled with its token."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy import text

from db import dead_letters, health
from db.endpoint_keys import LIVE, SealedKey
from db.endpoints import overrides_of
from db.engine import Tx, by_index
from db.slots import DUE, LETS_THROUGH, NOTE_TIME, USABLE, Slot
from domain.endpoints import ENDPOINT_TYPES, DeliveryPolicy, EndpointId, HealthPolicy
from domain.identity import EventId
from domain.webhooks import (
    Answered,
    Delivered,
    EndpointGone,
    Failed,
    Final,
    Made,
    NotCharged,
    Result,
    Retry,
    RetryPolicy,
    Verdict,
)

_MOST_SPENT = 100
"""Deliveries found to be past their bounds that one statement ends."""
_ROUNDS = 2
"""How often one call looks again behind such ones; the next call goes on. It holds locks that others wait for."""

_AGE = "clock_timestamp() - d.aging_since - ({endpoint}.stood_still - d.still_before)"
"""SQL: how long delivery `d` has waited; the time that its endpoint stood still does not count."""

_SPENT = """
CASE
    WHEN body IS NULL THEN 'the event is gone'
    WHEN attempts - spared >= CASE trigger WHEN 'test' THEN 1 ELSE coalesce(max_attempts, :attempts) END
        THEN 'attempts used up'
    WHEN age > coalesce(max_age, CAST(:max_age AS interval)) THEN 'too old' END
"""
"""SQL: why there is no further attempt, of a row with the columns of a delivery, its endpoint's bounds and its age."""

TAKE_NEXT = f"""
held AS MATERIALIZED (
    UPDATE endpoint_slots AS s SET lease_until = clock_timestamp() + CAST(:lease AS interval), {NOTE_TIME}
    FROM endpoints AS p
    WHERE s.endpoint_id = :endpoint AND s.slot = :slot AND s.token = :token
      AND p.id = s.endpoint_id AND {LETS_THROUGH} AND s.slot < {USABLE} AND {{if_so}}
    RETURNING p.url, p.waits, p.max_attempts, p.max_age, p.client_errors_final, p.rate, p.stood_still
), due AS MATERIALIZED (
    SELECT d.event_id, d.attempts, d.spared, d.earlier, d.trigger, d.aging_since, d.still_before
    FROM deliveries AS d
    WHERE {DUE.format(endpoint=":endpoint")} AND EXISTS (SELECT FROM held) AND d.event_id <> {{except_for}}
    ORDER BY d.next_attempt_at LIMIT 1 FOR UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT *, {_SPENT} AS spent
    FROM (
        SELECT d.*, h.*, e.type, e.body, {_AGE.format(endpoint="h")} AS age
        FROM due AS d CROSS JOIN held AS h LEFT JOIN events AS e ON e.event_id = d.event_id
    ) AS known
), paced AS (
    UPDATE endpoints AS p
    SET paced_until = greatest(p.paced_until, clock_timestamp()) + interval '1 second' / p.rate
    FROM judged AS j
    WHERE p.id = :endpoint AND j.spent IS NULL AND j.rate IS NOT NULL
      AND (p.paced_until IS NULL OR p.paced_until <= clock_timestamp() + CAST(:slack AS interval))
    RETURNING p.id
), taken AS (
    UPDATE deliveries AS d
    SET attempts = d.attempts + 1, lease_token = gen_random_uuid(),
        lease_until = clock_timestamp() + CAST(:lease AS interval)
    FROM judged AS j
    WHERE d.event_id = j.event_id AND d.endpoint_id = :endpoint AND j.spent IS NULL
      AND (j.rate IS NULL OR EXISTS (SELECT FROM paced))
    RETURNING d.event_id, d.attempts AS number, d.lease_token, d.trigger
), keys AS MATERIALIZED (
    SELECT coalesce(array_agg(k.key_id ORDER BY k.created_at DESC, k.key_id), CAST(ARRAY[] AS text[])) AS key_ids,
           array_agg(k.scheme ORDER BY k.created_at DESC, k.key_id) AS schemes,
           array_agg(k.sealed ORDER BY k.created_at DESC, k.key_id) AS sealed
    FROM endpoint_keys AS k WHERE k.endpoint_id = :endpoint AND {LIVE} AND EXISTS (SELECT FROM judged)
), attempt AS (
    INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker)
    SELECT t.event_id, :endpoint, t.number, t.trigger, clock_timestamp(), k.key_ids, :worker
    FROM taken AS t CROSS JOIN keys AS k
)
"""  # noqa: S608 - the parts are constants of this project

"""SQL: take the next delivery `if_so`, a condition, and `except_for` one event. A piece of two
statements, with the columns NEXT of `judged AS j CROSS JOIN keys AS k LEFT JOIN taken AS t ON true`."""

NEXT = """
j.event_id, j.spent, j.attempts, j.spared, j.earlier, j.trigger, j.age, j.type, j.body, j.url, j.waits, j.max_attempts,
j.max_age, j.client_errors_final, t.number, t.lease_token, clock_timestamp() AS at, k.*
"""

_TAKE_NEXT_IF_SLOT_IS_OURS_AND_PACE_ALLOWS = text(f"""
WITH {TAKE_NEXT.format(if_so="true", except_for="''")}
SELECT {NEXT} FROM judged AS j CROSS JOIN keys AS k LEFT JOIN taken AS t ON true
""")  # noqa: S608 - the parts are constants of this project

# Only what is pending has a token, which a constraint sees to. To say so again would offer the due index to the
# planner: while it knows little about the table, it would look for the row through all that its endpoint has waiting.
_SETTLE = """
UPDATE deliveries AS d
SET state = CASE WHEN :state = 'dead'
                      AND EXISTS (SELECT FROM endpoints AS p WHERE p.id = :endpoint AND p.state = 'deleted')
            THEN 'cancelled' ELSE :state END,
    spared = d.spared + :spared,
    next_attempt_at = coalesce(clock_timestamp() + CAST(:wait AS interval), d.next_attempt_at),
    settled_at = CASE WHEN :state = 'pending' THEN NULL ELSE clock_timestamp() END,
    lease_token = NULL, lease_until = NULL
WHERE d.event_id = :event AND d.endpoint_id = :endpoint AND d.lease_token = :token
RETURNING d.state
"""
"""SQL: what would end dead for an endpoint deleted meanwhile is cancelled, as all that waited: none can replay it."""

UNWELL = """
p.failures > 0 OR p.our_failures > 0 OR p.failing_since IS NOT NULL OR p.breaker_until IS NOT NULL
OR p.told IS NOT NULL
"""
"""SQL: endpoint `p` has a health that a success changes."""

_SETTLE_IF_TOKEN_IS_NEWEST = text(f"""
WITH settled AS ({_SETTLE})
SELECT {UNWELL} AS unwell, settled.state FROM settled CROSS JOIN endpoints AS p WHERE p.id = :endpoint
""")  # noqa: S608 - the parts are constants of this file

_SETTLE_IF_TOKEN_IS_NEWEST_AND_RECORD_THE_ANSWER = text(f"""
WITH settled AS ({_SETTLE}), answered AS (
    UPDATE attempts SET duration = :duration, peer = :peer, status = :status, failure = :failure, detail = :detail
    WHERE event_id = :event AND endpoint_id = :endpoint AND number = :number AND duration IS NULL
)
SELECT {UNWELL} AS unwell, settled.state FROM settled CROSS JOIN endpoints AS p WHERE p.id = :endpoint
""")  # noqa: S608 - the parts are constants of this file

# All at once: one after the other, the old age of a backlog would hold the slot for seconds.
_END_THE_NEXT_THAT_ARE_SPENT = text(f"""
WITH few AS MATERIALIZED (
    SELECT d.event_id FROM deliveries AS d WHERE {DUE.format(endpoint=":endpoint")}
    ORDER BY d.next_attempt_at LIMIT {_MOST_SPENT}
), locked AS MATERIALIZED (
    SELECT d.event_id, d.attempts, d.spared, d.trigger, p.max_attempts, p.max_age, e.body,
           {_AGE.format(endpoint="p")} AS age
    FROM few JOIN deliveries AS d ON d.event_id = few.event_id
    JOIN endpoints AS p ON p.id = d.endpoint_id LEFT JOIN events AS e ON e.event_id = d.event_id
    WHERE {DUE.format(endpoint=":endpoint")} FOR UPDATE OF d SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT event_id, {_SPENT} AS spent FROM locked
), ended AS (
    UPDATE deliveries AS d SET state = 'dead', settled_at = clock_timestamp(), lease_token = NULL, lease_until = NULL
    FROM judged AS j WHERE d.event_id = j.event_id AND d.endpoint_id = :endpoint AND j.spent IS NOT NULL
    RETURNING d.event_id, d.endpoint_id, d.attempts, d.trigger, j.spent
)
{dead_letters.BURY} (key, kind, reference, error, attempts, created_at)
SELECT concat('delivery:', event_id, ':', endpoint_id), 'delivery',
       jsonb_build_object('event_id', event_id, 'endpoint_id', endpoint_id), spent, greatest(attempts, 1),
       clock_timestamp()
FROM ended WHERE trigger <> 'test'
{dead_letters.OR_ONCE_MORE}
""")  # noqa: S608 - the parts are constants of this project


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A delivery that this worker may send once, now: its attempt is counted and on record."""

    event_id: EventId
    endpoint_id: EndpointId
    type: str
    body: bytes
    url: str
    keys: tuple[SealedKey, ...]
    policy: RetryPolicy
    number: int
    spared: int
    earlier: int
    trigger: str
    age: timedelta
    """As `Made` has it."""
    at: datetime
    """The instant of the attempt, by the database's clock: what is signed."""
    token: UUID

    def made(self, took: timedelta) -> Made:
        """The attempt as its judge sees it, after it took so long."""
        return Made(number=self.number, age=self.age + took, earlier=self.earlier, spared=self.spared)


class Nothing(StrEnum):
    """Why a worker that has a slot sends nothing."""

    DUE = "nothing is due"
    PACED = "the endpoint's rate is used up for now"


class Settled(StrEnum):
    """Whether the settling counted."""

    DONE = "done"
    LOST = "lost"
    """The token is not the newest: somebody else has the delivery, or it was ended."""


def take(tx: Tx, slot: Slot, policy: DeliveryPolicy, *, worker: str, took: timedelta | None = None) -> Taken | Nothing:
    """Take the endpoint's next due delivery, directly before its request. Commit, then send.

    One change: the slot is still ours and its lease renewed, the endpoint still enabled and its breaker closed (or
    this the probe), the rate not used up, the row due and nobody's; then the attempt is counted, inserted, and has its
    token. So both caps and the rate hold even if no answer is ever recorded. What is found past its bounds becomes a
    dead letter on the way. `took` is how long this slot's request before took, if there was one.

    Ten at once: each skips what the others have locked, and after their commit the lease hides it. Dies after commit:
    one lease later somebody else takes it, with the next number. An endpoint that is paused while this runs may get
    this one request.
    """
    by_index(tx)
    asked = asked_for(slot, policy, worker, took)
    for _ in range(_ROUNDS):
        row = tx.execute(_TAKE_NEXT_IF_SLOT_IS_OURS_AND_PACE_ALLOWS, asked).one_or_none()
        if row is None:
            return Nothing.DUE
        if row.spent is None:
            return Nothing.PACED if row.number is None else taken_from(row, slot, policy)
        tx.execute(_END_THE_NEXT_THAT_ARE_SPENT, asked)
    return Nothing.DUE


def asked_for(slot: Slot, policy: DeliveryPolicy, worker: str, took: timedelta | None) -> dict[str, Any]:
    """What TAKE_NEXT asks for."""
    return {
        "endpoint": slot.endpoint, "slot": slot.number, "token": slot.token, "worker": worker, "lease": policy.lease,
        "attempts": policy.retry.attempts, "max_age": policy.retry.max_age, "slack": policy.pace_slack,
        "took": took,
    }  # fmt: skip


def taken_from(row: Any, slot: Slot, policy: DeliveryPolicy) -> Taken:
    """The delivery in a row of NEXT that says it was taken."""
    bounds = overrides_of(row).over(policy.retry)
    if row.trigger == "test":
        bounds = RetryPolicy(attempts=1)
    return Taken(
        event_id=EventId(row.event_id),
        endpoint_id=slot.endpoint,
        type=row.type,
        body=row.body,
        url=row.url,
        keys=tuple(map(SealedKey, row.key_ids, row.schemes or (), row.sealed or ())),
        policy=bounds,
        number=row.number,
        spared=row.spared,
        earlier=row.earlier,
        trigger=row.trigger,
        age=row.age,
        at=row.at,
        token=row.lease_token,
    )


def settle(
    tx: Tx, taken: Taken, result: Result, verdict: Verdict, policy: DeliveryPolicy, *, took: timedelta,
    record: bool = True,
) -> Settled:  # fmt: skip
    """Write what one attempt came to, and what follows for the delivery and for the endpoint's health.

    Only with the newest token: a worker that lost its lease changes the record of its own attempt and nothing else.
    `record` False leaves out that record: for when it cannot be written, since what was delivered stays delivered.
    """
    by_index(tx)
    statement = _SETTLE_IF_TOKEN_IS_NEWEST_AND_RECORD_THE_ANSWER if record else _SETTLE_IF_TOKEN_IS_NEWEST
    next_step = verdict.then if isinstance(verdict, EndpointGone) else verdict
    where = {
        "event": taken.event_id, "endpoint": taken.endpoint_id, "number": taken.number, "token": taken.token,
    }  # fmt: skip
    answer = _answer(result, took) if record else {}
    row = tx.execute(statement, where | answer | _columns(next_step)).one_or_none()
    if row is None:
        return Settled.LOST
    if isinstance(next_step, Final) and row.state == "dead" and taken.trigger != "test":
        _bury(tx, taken.event_id, taken.endpoint_id, next_step.reason.value, taken.number)
    _note_health(tx, taken, result, verdict, policy.health, unwell=row.unwell)
    return Settled.DONE


def _columns(step: Delivered | Retry | Final | NotCharged) -> dict[str, Any]:
    match step:
        case Delivered():
            return {"state": "delivered", "wait": None, "spared": 0}
        case Retry(wait=wait):
            return {"state": "pending", "wait": wait, "spared": 0}
        case NotCharged(wait=wait):
            return {"state": "pending", "wait": wait, "spared": 1}
        case Final():
            return {"state": "dead", "wait": None, "spared": 0}
        case _:
            assert_never(step)


def _answer(result: Result, took: timedelta) -> dict[str, Any]:
    match result:
        case Answered(status=status, body_cut=body, peer=peer):
            return {"duration": took, "status": status, "failure": None, "detail": body, "peer": peer}
        case Failed(kind=kind, detail=detail, peer=peer):
            return {"duration": took, "status": None, "failure": kind.value, "detail": detail, "peer": peer}
        case _:
            assert_never(result)


def _note_health(tx: Tx, taken: Taken, result: Result, verdict: Verdict, policy: HealthPolicy, *, unwell: bool) -> None:
    """Touch the endpoint's row only where its health changes: a healthy one is never waited for."""
    quietly = taken.type in ENDPOINT_TYPES
    why = f"status {result.status}" if isinstance(result, Answered) else result.kind.value
    match verdict:
        case Delivered():
            if unwell:
                health.succeeded(tx, taken.endpoint_id, quietly=quietly)
        case EndpointGone():
            health.gone(tx, taken.endpoint_id, quietly=quietly)
        case Retry(charged=True) | Final(charged=True):
            health.failed(tx, taken.endpoint_id, policy, why, quietly=quietly)
        case NotCharged():
            health.failed_by_us(tx, taken.endpoint_id, policy)
        case Retry() | Final():
            pass
        case _:
            assert_never(verdict)


def letter_key(event: EventId, endpoint: EndpointId) -> str:
    """The key of a dead delivery's dead letter."""
    return f"delivery:{event}:{endpoint}"


def _bury(tx: Tx, event: EventId, endpoint: EndpointId, reason: str, attempts: int) -> None:
    reference = {"event_id": event, "endpoint_id": endpoint}
    dead_letters.bury(tx, letter_key(event, endpoint), "delivery", reference, reason, attempts=max(attempts, 1))
