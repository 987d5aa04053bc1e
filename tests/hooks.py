"""What many tests do with endpoints and deliveries."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from db import deliveries, endpoint_keys, endpoints, replays, slots
from db.deliveries import Nothing, Settled, Taken
from db.endpoint_keys import SealedKey
from db.engine import Database
from db.slots import Slot
from domain.endpoints import DeliveryPolicy, Endpoint, EndpointId, Terms
from domain.identity import EventId
from domain.webhooks import Answered, Failed, FailureKind, Result, judge
from tests.helpers import Desk

LEASE = timedelta(seconds=30)
BOUNDS = DeliveryPolicy(lease=LEASE)
NO_WAIT = timedelta(0)
OK = Answered(200, "thanks", None, "192.0.2.1:443")
BROKEN = Answered(500, "oh", None, "192.0.2.1:443")
TIMEOUT = Failed(FailureKind.TIMEOUT, "the deadline came waiting for the answer", "192.0.2.1:443", sent=True)
TOOK = timedelta(milliseconds=20)


class Hooks(Desk):
    """Endpoints and their lane as production calls them: each call is one transaction."""

    def __init__(self, database: Database, policy: DeliveryPolicy = BOUNDS) -> None:
        super().__init__(database)
        self.policy = policy

    def endpoint(self, name: str = "ep", **terms: Any) -> Endpoint:
        """A new endpoint with one key."""
        with self.database.transaction() as tx:
            made = endpoints.add(tx, EndpointId(name), Terms(**{"url": f"https://{name}.example.com/", **terms}))
            key = SealedKey(f"key-{name}", "v1", b"sealed")
            endpoint_keys.rotate(tx, EndpointId(name), key, grace=NO_WAIT)
            return made

    def see(self, name: str = "ep") -> Endpoint:
        with self.database.transaction() as tx:
            found = endpoints.get(tx, EndpointId(name))
        assert found is not None
        return found

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows of one statement, to be taken apart."""
        return [tuple(row) for row in self.sql(statement, **values)]

    def call(self, function: Any, name: str = "ep", *args: Any, **kwargs: Any) -> Any:
        """One of the functions of an endpoint, in a transaction of its own."""
        with self.database.transaction() as tx:
            return function(tx, EndpointId(name), *args, **kwargs)

    def dispatch(self, apart: timedelta = timedelta(microseconds=-1)) -> list[EndpointId]:
        with self.database.transaction() as tx:
            return slots.dispatch(tx, self.policy, apart=apart)

    def slot(self, name: str = "ep") -> Slot | None:
        with self.database.transaction() as tx:
            return slots.take(tx, EndpointId(name), self.policy)

    def held(self, name: str = "ep") -> Slot:
        """A slot newly taken."""
        found = self.slot(name)
        assert found is not None
        return found

    def leave(self, slot: Slot, took: timedelta | None = None) -> None:
        with self.database.transaction() as tx:
            slots.leave(tx, slot, self.policy, took=took)

    def take(self, slot: Slot) -> Taken | Nothing:
        with self.database.transaction() as tx:
            return deliveries.take(tx, slot, self.policy, worker="worker@test")

    def taken(self, slot: Slot) -> Taken:
        """A delivery newly taken."""
        found = self.take(slot)
        assert isinstance(found, Taken)
        return found

    def settle(self, taken: Taken, result: Result = OK) -> Settled:
        verdict = judge(result, taken.made(TOOK), taken.policy, random=Random(7))
        with self.database.transaction() as tx:
            return deliveries.settle(tx, taken, result, verdict, self.policy, took=TOOK)

    def attempt(self, result: Result = OK, name: str = "ep", *, took: timedelta = TOOK) -> Taken:
        """Slot, delivery, answer, all in a row; the slot is free again afterwards."""
        slot = self.held(name)
        taken = self.taken(slot)
        assert self.settle(taken, result) is Settled.DONE
        self.leave(slot, took)
        return taken

    def fail(self, times: int = 1, name: str = "ep") -> None:
        """So many attempts in a row that are charged to the receiver, each as soon as it may be made."""
        for _ in range(times):
            self.make_due()
            self.attempt(BROKEN, name)

    def facts(self) -> list[tuple[str, str]]:
        """Facts about endpoints and whom they go to, in their order."""
        return [
            (row.type, row.endpoint_id)
            for row in self.sql("""SELECT e.type, d.endpoint_id FROM events AS e JOIN deliveries AS d USING (event_id)
                                   WHERE e.hold_id IS NULL ORDER BY e.occurred_at, d.endpoint_id""")
        ]

    def make_due(self) -> None:
        """Let every wait be over: of deliveries, breakers and rates."""
        self.sql("UPDATE deliveries SET next_attempt_at = now() - interval '1 s' WHERE state = 'pending'")
        self.sql("UPDATE endpoints SET breaker_until = now() - interval '1 s' WHERE breaker_until IS NOT NULL")
        self.sql("UPDATE endpoints SET paced_until = NULL")

    def lose_lease(self) -> None:
        """As if every lease had run out."""
        self.sql("UPDATE deliveries SET lease_until = now() - interval '1 s' WHERE lease_until IS NOT NULL")
        self.sql("UPDATE endpoint_slots SET lease_until = now() - interval '1 s' WHERE lease_until IS NOT NULL")

    def delivery(self, event: str = "reservation-placed:h:1", name: str = "ep") -> replays.Delivery:
        """One delivery as an operator sees it."""
        with self.database.transaction() as tx:
            [found] = replays.listing(tx, replays.Selection(event=EventId(event), endpoint=EndpointId(name)), limit=2)
        return found

    def attempts(self, event: str = "reservation-placed:h:1", name: str = "ep") -> list[replays.Attempt]:
        with self.database.transaction() as tx:
            return replays.attempts_of(tx, EventId(event), EndpointId(name))

    def age_endpoint(self, by: timedelta) -> None:
        """As if every endpoint's failures and standing still had begun this much earlier."""
        self.sql(
            """UPDATE endpoints SET failing_since = failing_since - CAST(:by AS interval),
                                    still_since = still_since - CAST(:by AS interval)""",
            by=by,
        )


def policy(**changes: Any) -> DeliveryPolicy:
    """The bounds, but for these."""
    return replace(BOUNDS, **changes)


def fill_backlog(desk: Desk, count: int, name: str = "ep", prefix: str = "m") -> None:
    """So many due deliveries of one endpoint, oldest first by number, each with its event."""
    desk.sql(
        """WITH event AS (
               INSERT INTO events (event_id, hold_id, type, occurred_at, body)
               SELECT 'reservation-placed:' || h || chr(58) || 1, h,
                      'reservation.placed', now(), '{}'
               FROM generate_series(1, :count) AS n, concat(CAST(:prefix AS text), '-', n) AS h
               RETURNING event_id, hold_id
           )
           INSERT INTO deliveries (event_id, endpoint_id, next_attempt_at, created_at, aging_since, still_before)
           SELECT event_id, CAST(:name AS text),
                  now() - interval '1 h' + split_part(hold_id, '-', 2)::int * interval '1 ms',
                  now() - interval '1 h', now() - interval '1 h', '0' FROM event""",
        prefix=prefix,
        count=count,
        name=name,
    )
