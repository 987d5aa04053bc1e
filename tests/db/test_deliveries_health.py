"""An endpoint's health: failures in a row, who is charged with them, and the breaker."""

from datetime import timedelta

import pytest

from db import endpoints
from db.deliveries import Nothing, Settled, Taken
from db.engine import Database
from domain.endpoints import ENDPOINT_TYPES, HealthPolicy, State
from domain.webhooks import Answered, Failed, FailureKind
from tests.hooks import BROKEN, OK, TIMEOUT, Hooks, fill_backlog, policy

DAY = timedelta(days=1)


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, policy(health=HealthPolicy(breaker_after=3, breaker_longest=timedelta(seconds=15))))


def test_the_time_of_a_pause_counts_toward_no_streak_of_failures(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.endpoint("other")
    fill_backlog(hooks, 10)
    hooks.fail(2)
    began = hooks.see().failing_since
    hooks.sql("UPDATE endpoints SET failing_since = failing_since - interval '20 h' WHERE id = 'ep'")
    hooks.call(endpoints.pause)
    hooks.sql(
        """UPDATE endpoints SET failing_since = failing_since - interval '9 days',
                                still_since = still_since - interval '9 days' WHERE id = 'ep'"""
    )
    hooks.call(endpoints.resume)
    [(failing,)] = hooks.rows("SELECT now() - failing_since FROM endpoints WHERE id = 'ep'")
    assert began is not None
    assert timedelta(hours=20) <= failing < timedelta(hours=20, minutes=1)
    hooks.fail()
    assert (hooks.facts(), hooks.see().state) == ([], State.ENABLED)
    hooks.age_endpoint(timedelta(hours=5))
    hooks.fail()
    assert hooks.facts() == [("endpoint.failing", "other")]


def test_a_streak_that_began_within_a_pause_is_no_longer_than_since_its_end(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 1)
    slot = hooks.held()
    under_way = hooks.taken(slot)
    hooks.call(endpoints.pause)
    hooks.sql("UPDATE endpoints SET still_since = still_since - interval '9 days'")
    assert hooks.settle(under_way, BROKEN) is Settled.DONE
    hooks.call(endpoints.resume)
    [(failing,)] = hooks.rows("SELECT now() - failing_since FROM endpoints")
    assert timedelta(0) <= failing < timedelta(minutes=1)


def test_a_request_that_fails_within_a_pause_neither_warns_nor_disables_for_the_time_of_it(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    fill_backlog(hooks, 2)
    hooks.fail()
    under_way = hooks.taken(hooks.held())
    hooks.call(endpoints.pause)
    hooks.age_endpoint(9 * DAY)
    assert hooks.settle(under_way, BROKEN) is Settled.DONE
    assert (hooks.facts(), hooks.see().failures, hooks.see().state) == ([], 2, State.PAUSED)


# -- the breaker -----------------------------------------------------------------------------------------------------


def test_failures_in_a_row_open_the_breaker_and_nothing_more_is_sent(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    hooks.fail(2)
    assert (hooks.see().breaker, hooks.see().failures) == ("closed", 2)
    hooks.fail()
    assert (hooks.see().breaker, hooks.see().failures) == ("open", 3)
    [(wait,)] = hooks.sql("SELECT breaker_until - now() FROM endpoints")
    assert timedelta(seconds=4) < wait <= timedelta(seconds=5)
    assert (hooks.dispatch(), hooks.slot()) == ([], None)
    assert hooks.count("deliveries", "attempts = 0") == 7


def test_a_worker_in_the_middle_of_a_backlog_stops_when_the_breaker_opens(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    first, second = hooks.held(), hooks.held()
    for _ in range(3):
        hooks.settle(hooks.taken(first), BROKEN)
    assert [hooks.take(first), hooks.take(second)] == [Nothing.DUE, Nothing.DUE]


def test_a_half_open_breaker_lets_one_probe_through_on_the_first_slot_alone(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    other = hooks.held(), hooks.held()
    hooks.leave(other[0])
    hooks.fail(3)
    hooks.make_due()
    assert hooks.see().breaker == "half-open"
    assert hooks.take(other[1]) is Nothing.DUE
    assert hooks.dispatch() == ["ep"]
    probe = hooks.held()
    assert (probe.number, hooks.slot()) == (0, None)
    taken = hooks.taken(probe)
    assert hooks.settle(taken, OK) is Settled.DONE
    assert (hooks.see().breaker, hooks.see().failures, hooks.see().failing_since) == ("closed", 0, None)
    assert isinstance(hooks.take(other[1]), Taken)


def test_each_probe_that_fails_doubles_the_pause_up_to_its_longest(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    hooks.fail(3)
    pauses = []
    for _ in range(3):
        hooks.fail()
        pauses.append(round(hooks.sql("SELECT breaker_until - now() FROM endpoints")[0][0].total_seconds()))
    assert pauses == [10, 15, 15]


def test_failures_that_come_in_after_the_breaker_opened_say_nothing_new(hooks: Hooks) -> None:
    hooks.endpoint(slots=8)
    fill_backlog(hooks, 10)
    under_way = [hooks.taken(hooks.held()) for _ in range(6)]
    for taken in under_way:
        assert hooks.settle(taken, TIMEOUT) is Settled.DONE
    assert hooks.see().failures == 3
    assert hooks.count("deliveries", "attempts = 1 AND lease_token IS NULL") == 6


OURS = [
    Failed(FailureKind.OURS, "no answer in time", None, sent=False),
    Failed(FailureKind.BLOCKED, "", None, sent=False),
]


@pytest.mark.parametrize("answer", [Answered(429, "", None, "peer"), *OURS], ids=["429", "ours", "blocked"])
def test_what_is_not_the_receivers_fault_is_not_charged(hooks: Hooks, answer: Answered | Failed) -> None:
    hooks.endpoint()
    hooks.placed("h")
    for _ in range(4):
        hooks.make_due()
        hooks.attempt(answer)
    assert (hooks.see().failures, hooks.see().failing_since) == (0, None)


@pytest.mark.parametrize("answer", OURS, ids=["ours", "blocked"])
def test_faults_of_ours_in_a_row_open_the_breaker_and_end_nothing(hooks: Hooks, answer: Failed) -> None:
    hooks.endpoint()
    hooks.endpoint("other", types=ENDPOINT_TYPES)
    fill_backlog(hooks, 10)
    pauses = []
    for _ in range(5):
        hooks.make_due()
        hooks.attempt(answer)
        hooks.age_endpoint(30 * DAY)
        [(pause,)] = hooks.sql("SELECT breaker_until - now() FROM endpoints WHERE id = 'ep'")
        pauses.append(pause and round(pause.total_seconds()))
    assert pauses == [None, None, 5, 10, 15]
    assert (hooks.dispatch(), hooks.slot()) == ([], None)
    assert (hooks.see().state, hooks.see().failing_since, hooks.facts()) == (State.ENABLED, None, [])
    hooks.make_due()
    hooks.attempt(OK)
    assert (hooks.see().breaker, hooks.sql("SELECT our_failures FROM endpoints WHERE id = 'ep'")) == ("closed", [(0,)])


def test_faults_of_both_sides_in_a_row_open_the_breaker_and_only_the_receivers_count(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    hooks.attempt(OURS[0])
    hooks.fail(2)
    assert (hooks.see().breaker, hooks.see().failures) == ("open", 2)


def test_a_429_says_nothing_about_health(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    for _ in range(4):
        hooks.attempt(Answered(429, "", None, "peer"))
    assert hooks.see().breaker == "closed"


def test_a_healthy_endpoints_row_is_not_written(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 3)
    before = hooks.sql("SELECT xmin, ctid FROM endpoints")
    for _ in range(3):
        hooks.attempt(OK)
    assert hooks.sql("SELECT xmin, ctid FROM endpoints") == before
