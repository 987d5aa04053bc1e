"""Deliveries are settled with the newest token only: what an answer came to, and what follows."""

from datetime import timedelta

import pytest

from db import deliveries, endpoints
from db.deliveries import Nothing, Settled
from db.engine import Database
from domain.endpoints import Overrides
from domain.webhooks import Answered, Delivered, Failed, FailureKind
from tests.hooks import BROKEN, OK, TIMEOUT, Hooks

PLACED = "reservation-placed:h:1"


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def test_a_success_is_final_and_its_answer_on_record(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    hooks.attempt(OK)
    [attempt] = hooks.attempts()
    assert (attempt.status, attempt.failure, attempt.detail, attempt.peer) == (200, None, "thanks", "192.0.2.1:443")
    assert attempt.duration == timedelta(milliseconds=20)
    assert hooks.delivery().state == "delivered"
    assert hooks.delivery().settled_at is not None
    assert hooks.take(hooks.held()) is Nothing.DUE


def test_a_failure_waits_in_a_column_and_is_tried_again(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    hooks.attempt(TIMEOUT)
    [attempt] = hooks.attempts()
    assert (attempt.status, attempt.failure, attempt.detail) == (None, "timeout", TIMEOUT.detail)
    [(wait, state)] = hooks.rows("SELECT next_attempt_at - now(), state FROM deliveries")
    assert timedelta(0) < wait <= timedelta(seconds=5)
    assert state == "pending"
    hooks.make_due()
    assert hooks.attempt(OK).number == 2
    assert [attempt.status for attempt in hooks.attempts()] == [None, 200]


def test_a_receiver_that_asks_for_time_gets_it(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    hooks.attempt(Answered(503, "", timedelta(minutes=20), "peer"))
    [(wait,)] = hooks.sql("SELECT next_attempt_at - now() FROM deliveries")
    assert timedelta(minutes=19) < wait <= timedelta(minutes=20)


def test_the_last_attempt_that_fails_leaves_a_dead_letter(hooks: Hooks) -> None:
    hooks.endpoint(overrides=Overrides(max_attempts=2))
    hooks.placed("h")
    for _ in range(2):
        hooks.attempt(BROKEN)
        hooks.make_due()
    assert hooks.delivery().state == "dead"
    assert hooks.sql("SELECT key, error, attempts FROM dead_letters") == [
        (f"delivery:{PLACED}:ep", "attempts used up", 2)
    ]


def test_a_fault_of_ours_uses_up_no_attempt_of_the_receiver(hooks: Hooks) -> None:
    hooks.endpoint(overrides=Overrides(max_attempts=1))
    hooks.placed("h")
    for _ in range(3):
        hooks.attempt(Failed(FailureKind.OURS, "no sockets left", None, sent=False))
        hooks.make_due()
    assert (hooks.delivery().state, hooks.delivery().attempts, hooks.delivery().spared) == ("pending", 3, 3)
    assert hooks.see().failures == 0
    assert hooks.attempt(OK).number == 4
    assert hooks.delivery().state == "delivered"


def test_a_worker_that_lost_its_lease_cannot_settle(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    slow = hooks.taken(hooks.held())
    hooks.lose_lease()
    fast = hooks.taken(hooks.held())
    assert hooks.settle(slow, BROKEN) is Settled.LOST
    [(token, state)] = hooks.rows("SELECT lease_token, state FROM deliveries")
    assert (token, state, hooks.see().failures) == (fast.token, "pending", 0)
    assert [attempt.status for attempt in hooks.attempts()] == [500, None]
    assert hooks.settle(fast, OK) is Settled.DONE
    assert hooks.settle(fast, BROKEN) is Settled.LOST
    assert (hooks.delivery().state, hooks.attempts()[1].status) == ("delivered", 200)


def test_a_delivery_settled_without_its_record_stays_settled(hooks: Hooks, database: Database) -> None:
    hooks.endpoint()
    hooks.placed("h")
    taken = hooks.taken(hooks.held())
    with database.transaction() as tx:
        done = deliveries.settle(tx, taken, OK, Delivered(), hooks.policy, took=timedelta(0), record=False)
    assert (done, hooks.delivery().state, hooks.attempts()[0].duration) == (Settled.DONE, "delivered", None)


def test_a_410_disables_the_endpoint_and_pauses_its_deliveries(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.endpoint("other", types=("endpoint.disabled",))
    hooks.placed("h")
    hooks.placed("second")
    hooks.attempt(Answered(410, "", None, "peer"))
    assert (hooks.see().state.value, hooks.see().reason) == ("disabled", "the receiver answered 410 Gone")
    assert [hooks.delivery(f"reservation-placed:{h}:1").state for h in ("h", "second")] == ["pending", "pending"]
    assert hooks.slot() is None
    [(event, endpoint)] = hooks.rows("SELECT event_id, endpoint_id FROM deliveries WHERE event_id LIKE 'endpoint%'")
    assert (event.split(":")[:2], endpoint) == (["endpoint-disabled", "ep"], "other")
    hooks.call(endpoints.enable)
    hooks.make_due()
    hooks.attempt(OK)
    hooks.attempt(OK)
    assert hooks.count("deliveries", "state = 'delivered' AND endpoint_id = 'ep'") == 2
