"""The demo's webhooks: who subscribes, what the receiver does to them, and what is shown of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console
from sqlalchemy import text

from cli.receiver import AWAY, BROKEN, WELL, Receiver, Reply, Seen
from db import endpoint_edits, replays
from db.engine import Database
from domain.addresses import check_url
from domain.changes import Kind
from domain.endpoints import RESERVATION_TYPES, EndpointId, Overrides, Terms
from domain.errors import HoldfastError
from domain.holds import Hold
from domain.identity import EventId, event_id
from domain.signing import HmacKey
from gateways.vault import Vault
from tasks.sending import sealed

SHOP, LADDER, CLOSED = EndpointId("shop"), EndpointId("ladder"), EndpointId("closed")
_STEPS = tuple(timedelta(seconds=wait) for wait in (0, 1, 1, 2, 2, 2))
"""The ladder of waits, shortened: a step is the longest wait, and each wait is drawn from it."""
_ASKED = 2
"""Seconds the receiver asks for in `Retry-After`."""
_LOSES_EVERY, _ASKS_AT, _FAILS, _TRIES = 8, 5, 3, 2

_STATES = text("SELECT state, count(*) AS n FROM deliveries GROUP BY state")
_DELIVERED_TO_SHOP = text("SELECT event_id FROM deliveries WHERE endpoint_id = 'shop' AND state = 'delivered'")

Until = Callable[[Callable[[], bool], str], None]
"""Waits for a condition, and names what it waited for where that does not come about."""


class NotAsPromised(HoldfastError):
    """A webhook did not do what is promised of it."""


def shop(request: Seen) -> Reply:
    """Well, but sometimes it takes the event and then breaks; once it asks for time."""
    if request.time > 1:
        return WELL
    if request.place == _ASKS_AT:
        return Reply(503, retry_after=_ASKED)
    return BROKEN if request.place % _LOSES_EVERY == 0 else WELL


def broken_thrice(request: Seen) -> Reply:
    """Broken for an event's first three requests."""
    return BROKEN if request.time <= _FAILS else WELL


@dataclass(slots=True)
class Door:
    """Closed until somebody opens it."""

    open: bool = False

    def __call__(self, _: Seen) -> Reply:
        """Away while closed."""
        return WELL if self.open else AWAY


class Webhooks:
    """The steps about webhooks, for a demo that tells them in its order."""

    def __init__(self, db: Database, receiver: Receiver, vault: Vault, console: Console, door: Door) -> None:
        self._db, self._receiver, self._vault, self._console, self._door = db, receiver, vault, console, door

    def subscribe_shop(self) -> None:
        """An endpoint that hears of every change of a hold."""
        self._subscribe(SHOP, RESERVATION_TYPES, attempts=len(_STEPS))
        self._console.print("    an endpoint subscribes: a receiver on loopback, secret shown once")

    def subscribe_others(self) -> None:
        """Two more, each for one kind of change: one receiver fails at first, one is away."""
        self._subscribe(LADDER, (f"reservation.{Kind.EXTENDED}",), attempts=len(_STEPS))
        self._subscribe(CLOSED, (f"reservation.{Kind.CANCELLED}",), attempts=_TRIES)

    def tell(self, extended: Hold, cancelled: Hold, until: Until) -> None:
        """Wait for all deliveries, show what came, and replay the one that died."""
        dead = event_id(Kind.CANCELLED.value, cancelled.id, cancelled.version)
        until(lambda: self._states() == {"delivered", "dead"}, "every webhook delivered, and one dead")
        self._tell_shop()
        self._tell_ladder(event_id(Kind.EXTENDED.value, extended.id, extended.version + 1))
        self._replay(dead, until)

    def _subscribe(self, name: EndpointId, types: tuple[str, ...], *, attempts: int) -> None:
        """As `holdfast endpoints add` does."""
        key = HmacKey.generate()
        url = check_url(self._receiver.url(f"/{name}"), dangerous=True).url
        bounds = Overrides(waits=_STEPS, max_attempts=attempts)
        self._receiver.trust(f"/{name}", key.reveal())
        with self._db.transaction() as tx:
            terms = Terms(url=url, types=types, overrides=bounds)
            endpoint_edits.make(tx, name, terms, sealed(self._vault, name, key))

    def _states(self) -> set[str]:
        with self._db.transaction() as tx:
            return {row.state for row in tx.execute(_STATES)}

    def _attempts(self, event: EventId, endpoint: EndpointId) -> list[replays.Attempt]:
        with self._db.transaction() as tx:
            return replays.attempts_of(tx, event, endpoint)

    def _tell_shop(self) -> None:
        """Every event came, verified; those that came again had the same id and the same bytes."""
        with self._db.transaction() as tx:
            delivered = set(tx.execute(_DELIVERED_TO_SHOP).scalars())
        seen = self._receiver.seen(f"/{SHOP}")
        bodies: dict[str, bytes] = {}
        for request in seen:
            if not request.verified:
                raise NotAsPromised(f"the request of {request.event_id} does not verify")
            if bodies.setdefault(request.event_id, request.body) != request.body:
                raise NotAsPromised(f"{request.event_id} came with other bytes")
        if delivered != bodies.keys():
            raise NotAsPromised(f"{len(delivered)} events are delivered, and {len(bodies)} came")
        self._console.print(f"    {len(seen)} requests, all verified by the package standardwebhooks")
        self._console.print(f"    {len(bodies)} events; {len(seen) - len(bodies)} came again, known by their id")
        asked = next(request.event_id for request in seen if request.place == _ASKS_AT)
        first, second = self._attempts(EventId(asked), SHOP)[:2]
        waited = (second.started_at - first.started_at).total_seconds()
        if waited < _ASKED:
            raise NotAsPromised(f"Retry-After asked for {_ASKED} s, and the next request came after {waited:.1f} s")
        self._console.print(f"    one was answered 503 with Retry-After: {_ASKED}; it waited {waited:.1f} s")

    def _tell_ladder(self, event: EventId) -> None:
        self._console.print(f"    {event} walks its shortened ladder:")
        earlier = None
        for attempt, step in zip(self._attempts(event, LADDER), _STEPS, strict=False):
            waited = "" if earlier is None else f", after {(attempt.started_at - earlier).total_seconds():.1f} s"
            longest = f" (step {step.total_seconds():.0f} s)" if earlier else ""
            self._console.print(f"      attempt {attempt.number}: {attempt.status}{waited}{longest}")
            earlier = attempt.started_at

    def _replay(self, event: EventId, until: Until) -> None:
        self._console.print(f"    {event} is a dead letter:")
        self._console.print(
            f"      its receiver was away for {len(self._attempts(event, CLOSED))} attempts, all it had"
        )
        self._door.open = True
        with self._db.transaction() as tx:
            replays.replay(tx, event, CLOSED, operator="demo")
        until(lambda: self._states() == {"delivered"}, "the replay of the dead letter")
        last = self._attempts(event, CLOSED)[-1]
        self._console.print(f"      the receiver is back; replayed by `demo`: {last.status} on attempt {last.number}")
