"""Messages put straight into the queue by nobody of ours: the lane goes on, and what can be said of them is said."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis

from tests.system.conftest import System

pytestmark = pytest.mark.system

GOOD_FIELDS: dict[str, Any] = {"run": None, "path": "sweep", "refs": []}
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def envelope(body: object, **headers: Any) -> str:
    """A message as Celery writes it to Redis, with this body and these headers changed."""
    task_id = str(uuid4())
    return json.dumps({
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "expiry.expire", "id": task_id, "root_id": task_id, "parent_id": None,
                    "retries": 0, "eta": None, "expires": None, "timelimit": [None, None], "argsrepr": "()",
                    "kwargsrepr": "{}", "origin": "nobody", "ignore_result": True} | headers,
        "properties": {"correlation_id": task_id, "reply_to": "", "delivery_mode": 2, "priority": 0,
                       "delivery_info": {"exchange": "", "routing_key": "expiry"}, "body_encoding": "base64",
                       "delivery_tag": str(uuid4())},
    })  # fmt: skip


def call(**fields: Any) -> list[object]:
    return [[], GOOD_FIELDS | fields, EMBED]


_NO_REFERENCE = "reference: must be a JSON object with the four fields of a reference"
UNREADABLE = {
    "a body of five": envelope([1, 2, 3, 4, 5]),
    "a body of one": envelope([1]),
    "a body that is a text": envelope("nonsense"),
    "an id that is an object": envelope(call(), id={"x": 1}),
    "time limits that are a number": envelope(call(), timelimit=5),
    "time limits that are texts": envelope(call(), timelimit=["a", "b"]),
    "a time to wait for that is none": envelope(call(), eta="soon"),
    "an unknown task": envelope(call(), task="no.such.task"),
}
MALFORMED = {
    "run: must be null or the number of a sweep run": envelope(call(run=2**70)),
    "path: must be one of sweep, infrai, scanner, rescue": envelope(call(path="nowhere")),
    "refs: must be a list of at most 10000 references": envelope(call(refs="all")),
    "'more': is no field of a message": envelope(call(more=1)),
    "message: has arguments without a name": envelope([[1, 2], {}, EMBED]),
    f"refs: 3000 of 3000 cannot be read; the first: {_NO_REFERENCE}": envelope(call(refs=[1] * 3000)),
}  # fmt: skip


@pytest.fixture
def queue(running: System) -> Iterator[redis.Redis]:
    assert running.stack.valkey is not None
    with redis.Redis(unix_socket_path=str(running.stack.valkey.socket)) as client:
        yield client


def test_messages_that_cannot_be_read_end_no_worker_and_hold_nothing_up(running: System, queue: redis.Redis) -> None:
    worker = running.stack.pid("worker-expiry")
    for message in UNREADABLE.values():
        queue.lpush("expiry", message)
    running.place(20, "beside", seconds=1)
    running.until(lambda: running.expired("beside") == 20, "all expired", seconds=30)
    running.until(lambda: queue.llen("expiry") == 0 and queue.hlen("unacked") == 0, "the queue is empty", seconds=30)
    assert running.stack.pid("worker-expiry") == worker, running.stack.log("worker-expiry").read_text()[-3000:]
    running.assert_expired_once("beside", 20)


def test_a_message_with_wrong_fields_is_a_dead_letter_that_names_the_field(running: System, queue: redis.Redis) -> None:
    for message in MALFORMED.values():
        queue.lpush("expiry", message)
    letters = "SELECT error FROM dead_letters WHERE kind = 'malformed' ORDER BY error"
    running.until(lambda: len(running.desk.sql(letters)) >= len(MALFORMED), "a dead letter for each", seconds=30)
    assert [row.error for row in running.desk.sql(letters)] == sorted(MALFORMED)


def test_an_early_message_with_odd_numbers_changes_nothing(running: System, queue: redis.Redis) -> None:
    (name,) = running.place(1, "odd", seconds=3600)
    before = running.desk.sql("SELECT claims, claimed_until, set_aside FROM holds WHERE id = :id", id=name)
    reference = running.desk.read(name).reference.as_data()
    for odd in ({"retries": 2**40}, {"id": "nul\x00"}):
        queue.lpush("expiry", envelope(call(run=2**62, refs=[reference]), **odd))
    early = "SELECT FROM receipts WHERE tally ? 'early'"
    running.until(lambda: len(running.desk.sql(early)) == 2, "both were early", seconds=30)
    assert running.desk.sql("SELECT claims, claimed_until, set_aside FROM holds WHERE id = :id", id=name) == before
    assert running.desk.sql("SELECT sweep_run FROM receipts WHERE tally ? 'early'") == [(None,), (None,)]
    running.assert_reconciled()


def test_messages_that_want_to_wait_for_long_do_not_fill_the_worker(running: System, queue: redis.Redis) -> None:
    for _ in range(1100):
        queue.lpush("expiry", envelope(call(), eta="2099-01-01T00:00:00+00:00"))
    running.place(20, "eta", seconds=1)
    running.until(lambda: running.expired("eta") == 20, "all expired", seconds=40)
    running.until(lambda: queue.llen("expiry") == 0 and queue.hlen("unacked") == 0, "nothing waits", seconds=40)
