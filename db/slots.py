"""Slots: room for one request under way each. They are the concurrency cap, and what the sweep hands out.

The sweep marks a free slot as dispatched and publishes a message that names the endpoint. The worker takes a slot, and
keeps it while it sends. A message that finds no free slot, or nothing due, sends nothing; a lost message costs the
time of a mark, a killed worker the time of a lease, and neither costs an attempt.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from db.engine import Tx, by_index
from domain.endpoints import DeliveryPolicy, EndpointId

SWEEP = "webhooks"
"""What `status` calls this sweep."""

_FREE = "(s.lease_until IS NULL OR s.lease_until <= now())"

DUE = """
d.endpoint_id = {endpoint} AND d.state = 'pending' AND d.next_attempt_at <= now()
AND (d.lease_until IS NULL OR d.lease_until <= now())
"""
"""SQL: the delivery `d` of this endpoint may be taken. At most a slot's worth of rows is leased at any time, so these
hide nothing; and a lease that is no part of the index leaves it as it is."""

USABLE = "CASE WHEN p.breaker_until IS NULL THEN p.slots ELSE 1 END"
"""SQL: how many slots may be used: all, or the first one alone, to probe whether endpoint `p` is well again."""

LETS_THROUGH = "(p.state = 'enabled' AND (p.breaker_until IS NULL OR p.breaker_until <= now()))"
"""SQL: endpoint `p` may be sent to."""

NOTE_TIME = """
took = coalesce(CAST(:took AS interval), s.took),
took_at = CASE WHEN CAST(:took AS interval) IS NULL THEN s.took_at ELSE clock_timestamp() END
"""
"""SQL: keep in slot `s` how long its request took, if there was one."""

_BUSY = "(s.lease_until > now() OR s.dispatched_until > now())"

_KNOWN = f"""
count(*) FILTER (WHERE {_BUSY}) AS busy, (array_agg(s.took ORDER BY s.took_at DESC NULLS LAST))[1] AS took,
coalesce(bool_or(s.lease_until > now() AND s.lease_until <= now() + CAST(:lease AS interval) - CAST(:slow AS interval)),
         false) AS hangs
"""
"""SQL: what an endpoint's slots `s` tell: those not free, its newest request's time, whether one has no answer yet."""

_QUICK = "(NOT {known}.hangs AND {known}.took IS NOT NULL AND {known}.took < CAST(:slow AS interval))"

# A slot that somebody is just taking is passed over: all endpoints would wait here for one worker's transaction.
#
# Endpoints known to be quick get what they ask for. The others share a part of the threads: most of it is for the first
# request of one that is new, half for the first of one that is slow, a quarter for any further one.
_DISPATCH_FREE_SLOTS_UNLESS_JUST_BEGUN = text(f"""
WITH begun AS (
    INSERT INTO sweeps AS s (name, began_at) VALUES (:name, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET began_at = excluded.began_at, ticks = s.ticks + 1
    WHERE s.began_at NOT BETWEEN excluded.began_at - CAST(:apart AS interval)
                             AND excluded.began_at + CAST(:apart AS interval)
    RETURNING s.began_at
), wanting AS MATERIALIZED (
    SELECT p.id, least(due.n, {USABLE}) AS n, {USABLE} AS usable
    FROM endpoints AS p CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (SELECT FROM deliveries AS d WHERE {DUE.format(endpoint="p.id")} LIMIT 64) AS few
    ) AS due
    WHERE EXISTS (SELECT FROM begun) AND {LETS_THROUGH} AND due.n > 0
      AND (p.rate IS NULL OR p.paced_until IS NULL OR p.paced_until <= now() + CAST(:slack AS interval))
), free AS MATERIALIZED (
    SELECT s.endpoint_id, s.slot, w.n, k.busy, k.took, {_QUICK.format(known="k")} AS quick,
           row_number() OVER (PARTITION BY s.endpoint_id ORDER BY s.slot) AS place
    FROM wanting AS w
    CROSS JOIN LATERAL (SELECT {_KNOWN} FROM endpoint_slots AS s WHERE s.endpoint_id = w.id) AS k
    JOIN endpoint_slots AS s ON s.endpoint_id = w.id AND s.slot < w.usable
    WHERE {_BUSY} IS NOT TRUE
), asking AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY quick ORDER BY further, took IS NOT NULL, random()) AS turn
    FROM (SELECT *, place + busy > 1 AS further FROM free WHERE place <= n) AS f
), trying AS MATERIALIZED (
    SELECT coalesce(sum(k.busy), 0) AS n
    FROM (SELECT {_KNOWN} FROM endpoint_slots AS s GROUP BY s.endpoint_id) AS k
    WHERE k.busy > 0 AND NOT {_QUICK.format(known="k")}
), chosen AS MATERIALIZED (
    SELECT s.endpoint_id, s.slot FROM asking AS a
    JOIN endpoint_slots AS s ON s.endpoint_id = a.endpoint_id AND s.slot = a.slot
    WHERE {_BUSY} IS NOT TRUE
      AND (a.quick OR a.turn + (SELECT n FROM trying) <= :threads * CASE
           WHEN a.further THEN 0.25 WHEN a.took IS NOT NULL THEN 0.5 ELSE 0.875 END)
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE endpoint_slots AS s SET dispatched_until = now() + CAST(:dispatch AS interval)
FROM chosen AS c WHERE s.endpoint_id = c.endpoint_id AND s.slot = c.slot
RETURNING s.endpoint_id
""")  # noqa: S608 - the parts are constants of this file

# A dispatched slot first, so that each message uses up one mark.
_TAKE_A_FREE_SLOT = text(f"""
WITH free AS MATERIALIZED (
    SELECT s.slot FROM endpoint_slots AS s JOIN endpoints AS p ON p.id = s.endpoint_id
    WHERE s.endpoint_id = :endpoint AND s.slot < {USABLE} AND {LETS_THROUGH} AND {_FREE}
    ORDER BY s.dispatched_until IS NULL OR s.dispatched_until <= now(), s.slot
    LIMIT 1 FOR UPDATE OF s SKIP LOCKED
)
UPDATE endpoint_slots AS s
SET token = gen_random_uuid(), lease_until = clock_timestamp() + CAST(:lease AS interval), dispatched_until = NULL
FROM free AS f WHERE s.endpoint_id = :endpoint AND s.slot = f.slot
RETURNING s.slot, s.token
""")  # noqa: S608 - the parts are constants of this file

_LEAVE = text(f"""
UPDATE endpoint_slots AS s
SET lease_until = NULL, dispatched_until = CASE WHEN :again THEN now() + CAST(:dispatch AS interval) END, {NOTE_TIME}
WHERE s.endpoint_id = :endpoint AND s.slot = :slot AND s.token = :token
""")  # noqa: S608 - the parts are constants of this file

_FORGETTABLE = text("SET LOCAL synchronous_commit = off")


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that this worker has, while its token is the newest."""

    endpoint: EndpointId
    number: int
    token: UUID


def dispatch(tx: Tx, policy: DeliveryPolicy, *, apart: timedelta) -> list[EndpointId]:
    """The endpoints to send a message about, one for each slot that is free and has something to do.

    Endpoints that hang, were slow the last time, or have never answered get a share of the threads only, and the first
    slot of each comes before all others: however many of them there are, threads are left for the rest.

    A tick that begins less than `apart` after the last gets none. Two sweeps at once: the sweep's row is the lock. Dies
    after commit, or the broker loses the message: the mark runs out. The database crashes and forgets the marks:
    messages find nothing left to do, so the commit does not wait for the disk.
    """
    tx.execute(_FORGETTABLE)
    by_index(tx)
    asked = {
        "name": SWEEP, "apart": apart, "dispatch": policy.dispatch, "slack": policy.pace_slack,
        "lease": policy.lease, "slow": policy.slow_after, "threads": policy.threads,
    }  # fmt: skip
    return [EndpointId(row) for row in tx.execute(_DISPATCH_FREE_SLOTS_UNLESS_JUST_BEGUN, asked).scalars()]


def take(tx: Tx, endpoint: EndpointId, policy: DeliveryPolicy) -> Slot | None:
    """Take a free slot, if the endpoint is enabled and its breaker lets one through. Two at once take two, or one."""
    row = tx.execute(_TAKE_A_FREE_SLOT, {"endpoint": endpoint, "lease": policy.lease}).one_or_none()
    return None if row is None else Slot(endpoint, row.slot, row.token)


def leave(tx: Tx, slot: Slot, policy: DeliveryPolicy, *, again: bool = False, took: timedelta | None = None) -> None:
    """Give a slot back; `again` marks it as dispatched, for the message that the caller publishes after the commit.

    `took` is how long its last request took, if there was one. A worker that lost it leaves nothing.
    """
    where = {"endpoint": slot.endpoint, "slot": slot.number, "token": slot.token}
    tx.execute(_LEAVE, {**where, "again": again, "dispatch": policy.dispatch, "took": took})
