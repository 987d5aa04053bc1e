"""An endpoint's health: the breaker, the warning, the end after failing for days, and who hears of it."""

from datetime import timedelta

import pytest

from db import endpoint_events, endpoints
from db.deliveries import Nothing, Settled, Taken
from db.engine import Database
from domain.endpoints import HealthPolicy, Overrides, State, Told
from domain.webhooks import Answered, Failed, FailureKind
from tests.hooks import BROKEN, OK, TIMEOUT, Hooks, fill_backlog, policy

DAY = timedelta(days=1)
OTHERS = ("endpoint.failing", "endpoint.disabled", "endpoint.recovered")


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, policy(health=HealthPolicy(breaker_after=3, breaker_longest=timedelta(seconds=15))))


def fail(hooks: Hooks, times: int = 1, name: str = "ep") -> None:
    for _ in range(times):
        hooks.make_due()
        hooks.attempt(BROKEN, name)


def told(hooks: Hooks) -> list[tuple[str, str]]:
    """Facts about endpoints and whom they go to, in their order."""
    return [
        (row.type, row.endpoint_id)
        for row in hooks.sql("""SELECT e.type, d.endpoint_id FROM events AS e JOIN deliveries AS d USING (event_id)
                                WHERE e.hold_id IS NULL ORDER BY e.occurred_at, d.endpoint_id""")
    ]


def test_the_time_of_a_pause_counts_toward_no_streak_of_failures(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.endpoint("other")
    fill_backlog(hooks, 10)
    fail(hooks, 2)
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
    fail(hooks)
    assert (told(hooks), hooks.see().state) == ([], State.ENABLED)
    hooks.age_endpoint(timedelta(hours=5))
    fail(hooks)
    assert told(hooks) == [("endpoint.failing", "other")]


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


# -- the breaker -----------------------------------------------------------------------------------------------------


def test_failures_in_a_row_open_the_breaker_and_nothing_more_is_sent(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    fail(hooks, 2)
    assert (hooks.see().breaker, hooks.see().failures) == ("closed", 2)
    fail(hooks)
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
    fail(hooks, 3)
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
    fail(hooks, 3)
    pauses = []
    for _ in range(3):
        fail(hooks)
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
    hooks.endpoint("other", types=OTHERS)
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
    assert (hooks.see().state, hooks.see().failing_since, told(hooks)) == (State.ENABLED, None, [])
    hooks.make_due()
    hooks.attempt(OK)
    assert (hooks.see().breaker, hooks.sql("SELECT our_failures FROM endpoints WHERE id = 'ep'")) == ("closed", [(0,)])


def test_faults_of_both_sides_in_a_row_open_the_breaker_and_only_the_receivers_count(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 10)
    hooks.attempt(OURS[0])
    fail(hooks, 2)
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


# -- warned, disabled, recovered -------------------------------------------------------------------------------------


def test_failing_for_days_warns_once_then_disables_and_the_others_hear_of_it(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",), overrides=Overrides(max_attempts=100))
    hooks.endpoint("ops", types=OTHERS)
    hooks.placed("h")
    fail(hooks, 3)
    hooks.age_endpoint(DAY - timedelta(minutes=1))
    fail(hooks)
    assert told(hooks) == []
    hooks.age_endpoint(timedelta(minutes=2))
    fail(hooks, 2)
    assert (told(hooks), hooks.see().told) == ([("endpoint.failing", "ops")], Told.FAILING)
    hooks.age_endpoint(4 * DAY)
    hooks.sql("UPDATE deliveries SET aging_since = now()")
    fail(hooks)
    assert told(hooks) == [("endpoint.failing", "ops"), ("endpoint.disabled", "ops")]
    assert (hooks.see().state, hooks.see().told) == (State.DISABLED, Told.DISABLED)
    assert hooks.see().reason == "failing for 5d1m without a success, at last with status 500"
    assert hooks.delivery().state == "pending"


def test_nothing_is_disabled_without_a_warning_before(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    fail(hooks, 3)
    hooks.age_endpoint(9 * DAY)
    fail(hooks)
    assert (hooks.see().state, hooks.see().told) == (State.ENABLED, Told.FAILING)
    fail(hooks)
    assert hooks.see().state is State.DISABLED


def test_a_success_ends_the_streak_and_whoever_was_warned_hears_of_it(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=OTHERS)
    fill_backlog(hooks, 10)
    fail(hooks, 1)
    hooks.age_endpoint(2 * DAY)
    fail(hooks, 1)
    hooks.make_due()
    hooks.attempt(OK)
    assert told(hooks) == [("endpoint.failing", "ops"), ("endpoint.recovered", "ops")]
    assert (hooks.see().failing_since, hooks.see().told) == (None, None)
    hooks.attempt(OK)
    assert len(told(hooks)) == 2


def test_a_short_trouble_is_told_to_nobody(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=OTHERS)
    fill_backlog(hooks, 10)
    fail(hooks, 2)
    hooks.make_due()
    hooks.attempt(OK)
    assert told(hooks) == []


def test_an_enabled_endpoint_starts_afresh_and_its_first_success_is_told(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=OTHERS)
    hooks.placed("h")
    hooks.call(endpoints.disable, "ep", "by hand")
    hooks.call(endpoints.disable, "ep", "by hand, again")
    assert (told(hooks), hooks.see().reason) == ([("endpoint.disabled", "ops")], "by hand")
    hooks.call(endpoints.enable)
    assert (hooks.see().failures, hooks.see().breaker, told(hooks)) == (0, "closed", [("endpoint.disabled", "ops")])
    hooks.attempt(OK)
    assert told(hooks)[1:] == [("endpoint.recovered", "ops")]


def test_facts_about_endpoints_never_go_to_the_one_they_speak_of(hooks: Hooks) -> None:
    for name in ("a", "b", "c"):
        hooks.endpoint(name)
    hooks.call(endpoints.disable, "a", "by hand")
    assert told(hooks) == [("endpoint.disabled", "b"), ("endpoint.disabled", "c")]
    [(body,)] = hooks.sql("SELECT convert_from(body, 'UTF8')::jsonb FROM events")
    assert body["data"] == {"endpoint_id": "a", "reason": "by hand"}
    assert body["type"] == "endpoint.disabled"


@pytest.mark.parametrize("answer", [BROKEN, Answered(410, "", None, "peer")], ids=["500", "410"])
def test_facts_about_endpoints_raise_no_further_ones(hooks: Hooks, answer: Answered) -> None:
    hooks.endpoint("a")
    hooks.endpoint("ops", types=OTHERS)
    hooks.endpoint("more", types=OTHERS)
    hooks.call(endpoints.disable, "a", "by hand")
    hooks.attempt(BROKEN, "ops")
    hooks.age_endpoint(9 * DAY)
    before = told(hooks)
    for _ in range(3):
        hooks.make_due()
        if hooks.see("ops").state is State.ENABLED:
            hooks.attempt(answer, "ops")
    assert told(hooks) == before == [("endpoint.disabled", "more"), ("endpoint.disabled", "ops")]
    assert hooks.see("ops").state is (State.DISABLED if answer.status == 410 else State.ENABLED)


# -- a test event ----------------------------------------------------------------------------------------------------


def test_a_test_goes_to_its_endpoint_alone_once_and_dies_without_a_dead_letter(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("other")
    event = hooks.call(endpoint_events.try_out)
    taken = hooks.attempt(BROKEN)
    assert (taken.event_id, taken.type, taken.trigger, taken.number) == (event, "webhook.test", "test", 1)
    assert hooks.delivery(event).state == "dead"
    assert (hooks.count("deliveries"), hooks.count("dead_letters")) == (1, 0)
