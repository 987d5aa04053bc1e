"""Webhooks through a real stack: each fact arrives and verifies; kill -9 and a flushed broker lose none of them."""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
from sqlalchemy import text

from db import endpoints
from domain.endpoints import EndpointId
from domain.terms import For
from tests.gateways.receiver import Request, Talk, answer, receiving
from tests.system.conftest import System, system
from tests.system.subscribers import HOOKS, Gate, Subscriber, accepting, kill_the_worker, subscribe, subscriber

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def hooked() -> Iterator[System]:
    """One stack for this module's tests; each makes endpoints of its own, and deletes them."""
    with system(**HOOKS) as started:
        yield started


class Stubborn:
    """Refuses each event the first time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[str] = set()

    def __call__(self, talk: Talk, request: Request) -> None:
        with self._lock:
            new = request.headers["webhook-id"] not in self._seen
            self._seen.add(request.headers["webhook-id"])
        talk.say(answer(500 if new else 200))


def test_every_fact_arrives_and_verifies_with_one_id_and_the_same_bytes_on_each_attempt(hooked: System) -> None:
    with subscriber(hooked, "facts", Stubborn()) as receiver:
        hooked.place(1, "expires", seconds=1)
        hooked.place(2, "lives", seconds=3600)
        hooked.desk.extend("lives-000", 1, For(timedelta(hours=2)))
        hooked.desk.confirm("lives-000", 2)
        hooked.desk.cancel("lives-001", 1)
        hooked.until(lambda: receiver.delivered() == 7, "seven facts delivered")
        assert receiver.ids() == Counter(dict.fromkeys([
            "reservation-placed:expires-000:1", "reservation-expired:expires-000:1",
            "reservation-placed:lives-000:1", "reservation-extended:lives-000:2", "reservation-confirmed:lives-000:2",
            "reservation-placed:lives-001:1", "reservation-cancelled:lives-001:1",
        ], 2))  # fmt: skip
        assert receiver.attempts() == [(2, 7)]
        receiver.assert_true_to_what_is_stored()
        hooked.assert_reconciled()


@contextmanager
def port_that_takes_no_connection() -> Iterator[tuple[int, Callable[[], None]]]:
    """A port whose queue is full: whoever connects waits. The function frees the port."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = open_sockets.enter_context(socket.socket())
            filler.setblocking(False)  # noqa: FBT003 - the library's signature
            filler.connect_ex(("127.0.0.1", port))
        yield port, open_sockets.close


def test_a_worker_killed_before_its_post_has_spent_one_attempt_and_the_next_one_arrives(hooked: System) -> None:
    with port_that_takes_no_connection() as (port, free):
        subscribe(hooked, "before", f"http://127.0.0.1:{port}/hook")
        hooked.place(1, "before", seconds=3600)
        hooked.until(lambda: hooked.desk.count("attempts", "endpoint_id = 'before' AND duration IS NULL"), "taken")
        kill_the_worker(hooked)
        free()
    with receiving(accepting) as receiver:
        hooked.desk.sql("UPDATE endpoints SET url = :url WHERE id = 'before'", url=receiver.url)
        hooked.until(lambda: hooked.desk.count("deliveries", "endpoint_id = 'before' AND state = 'delivered'"), "sent")
        assert [r.headers["webhook-id"] for r in receiver.requests] == ["reservation-placed:before-000:1"]
    attempts = hooked.desk.sql("SELECT number, status FROM attempts WHERE endpoint_id = 'before' ORDER BY number")
    assert (attempts[0], attempts[-1][1]) == ((1, None), 200)
    assert hooked.desk.sql("SELECT attempts FROM deliveries WHERE endpoint_id = 'before'") == [(len(attempts),)]
    with hooked.database.transaction() as tx:
        endpoints.delete(tx, EndpointId("before"))


def assert_sent_twice(running: System, receiver: Subscriber, event: str) -> None:
    """Two requests with one id and the same bytes, two attempts counted, the first without an end."""
    running.until(lambda: receiver.delivered() == 1, "delivered")
    first, second = receiver.requests
    assert (first.headers["webhook-id"], second.headers["webhook-id"]) == (event, event)
    assert first.body == second.body
    receiver.assert_true_to_what_is_stored()
    rows = running.desk.sql(
        "SELECT number, status FROM attempts WHERE endpoint_id = :name ORDER BY number", name=receiver.name
    )
    assert [tuple(row) for row in rows] == [(1, None), (2, 200)]
    assert receiver.attempts() == [(2, 1)]
    running.assert_reconciled()


def test_a_worker_killed_during_its_post_is_followed_by_one_with_the_same_id_and_bytes(hooked: System) -> None:
    gate = Gate()
    with subscriber(hooked, "during", gate) as receiver:
        hooked.place(1, "during", seconds=3600)
        assert gate.came.wait(30)
        kill_the_worker(hooked)
        gate.open.set()
        assert_sent_twice(hooked, receiver, "reservation-placed:during-000:1")


def test_a_worker_killed_between_the_2xx_and_its_settling_sends_the_same_again(hooked: System) -> None:
    gate = Gate()
    with subscriber(hooked, "after", gate) as receiver:
        hooked.place(1, "after", seconds=3600)
        assert gate.came.wait(30)
        with hooked.database.engine.begin() as tx:
            tx.execute(text("SELECT FROM deliveries WHERE endpoint_id = 'after' FOR UPDATE"))
            gate.open.set()
            hooked.until(lambda: settling(hooked), "a worker that has its answer and waits to settle")
            kill_the_worker(hooked)
            hooked.until(lambda: not settling(hooked), "its session is gone", seconds=20)
        assert_sent_twice(hooked, receiver, "reservation-placed:after-000:1")


def settling(running: System) -> list[Any]:
    """Sessions that wait to settle; one whose worker is dead goes on until the server looks for its client."""
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%settled AS%'"
    return list(running.desk.sql(query))


def test_a_broker_flushed_ten_times_loses_no_attempt_and_uses_up_none(hooked: System) -> None:
    def slowly(talk: Talk, _: Request) -> None:
        talk.over.wait(0.05)
        talk.say(answer(200))

    with subscriber(hooked, "flushed", slowly) as receiver:
        hooked.place(60, "flushed", seconds=3600)
        with redis.Redis(unix_socket_path=str(hooked.stack.valkey.socket)) as client:  # type: ignore[union-attr]
            for flush in range(1, 11):
                hooked.until(lambda flush=flush: len(receiver.requests) >= 5 * flush, "some more")  # type: ignore[misc]
                client.flushall()
        hooked.until(lambda: receiver.delivered() == 60, "all delivered")
        assert receiver.ids() == Counter({f"reservation-placed:flushed-{n:03}:1": 1 for n in range(60)})
        assert receiver.attempts() == [(1, 60)]
        assert receiver.under_way() == 0
        hooked.assert_reconciled()
