"""An endpoint whose name server says nothing: nobody is charged, and it has no more of the lane than one that hangs."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId, HealthPolicy
from domain.webhooks import Result
from gateways.resolver import Resolver
from gateways.webhook import Limits, Sender
from tasks.delivery import Drain, Drained
from tests.gateways.posts import post
from tests.hooks import Hooks, fill_backlog, policy

DEADLINE = timedelta(milliseconds=150)
BOUNDS = policy(slow_after=timedelta(milliseconds=100), health=HealthPolicy(breaker_after=3))


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, BOUNDS)


@pytest.fixture
def silent() -> Iterator[Sender]:
    """A sender whose look-ups come to no end before the test does."""
    over = threading.Event()

    def lookup(*_: Any, **__: Any) -> list[Any]:
        over.wait(60)
        return []

    sender = Sender(Limits(deadline=DEADLINE), resolver=Resolver(lookup=lookup))
    yield sender
    over.set()
    sender.close()


def test_a_silent_name_server_makes_its_endpoint_slow_and_opens_the_breaker(hooks: Hooks, silent: Sender) -> None:
    hooks.endpoint("silent")
    fill_backlog(hooks, 9, "silent")

    def send(taken: Taken, asked_at: float) -> Result:
        return silent.send(post(taken.url, endpoint=taken.endpoint_id))

    drain = Drain(db=hooks.database, send=send, policy=BOUNDS, worker="w", budget=DEADLINE / 3)
    assert [drain(EndpointId("silent")) for _ in range(3)] == [Drained(1)] * 3
    assert hooks.rows("SELECT DISTINCT failure FROM attempts") == [("ours",)]
    assert (hooks.see("silent").failures, hooks.see("silent").breaker) == (0, "open")
    assert (drain(EndpointId("silent")), hooks.dispatch()) == (Drained(), [])
    [(took,)] = hooks.rows("SELECT took FROM endpoint_slots WHERE slot = 0")
    assert took >= BOUNDS.slow_after
    hooks.make_due()
    assert hooks.dispatch() == ["silent"]
