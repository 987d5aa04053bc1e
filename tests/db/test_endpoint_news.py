"""What others are told of an endpoint: that it fails, is disabled, has recovered; and the event that tests one."""

import re
from datetime import timedelta

import pytest

from db import endpoint_events, endpoints
from db.deliveries import Settled
from db.engine import Database
from domain.endpoints import ENDPOINT_TYPES, HealthPolicy, Overrides, State, Told
from domain.webhooks import Answered
from tests.hooks import BROKEN, OK, Hooks, fill_backlog, policy

DAY = timedelta(days=1)


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, policy(health=HealthPolicy(breaker_after=3, breaker_longest=timedelta(seconds=15))))


def test_failing_for_days_warns_once_then_disables_and_the_others_hear_of_it(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",), overrides=Overrides(max_attempts=100))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    hooks.placed("h")
    hooks.fail(3)
    hooks.age_endpoint(DAY - timedelta(minutes=1))
    hooks.fail()
    assert hooks.facts() == []
    hooks.age_endpoint(timedelta(minutes=2))
    hooks.fail(2)
    assert (hooks.facts(), hooks.see().told) == ([("endpoint.failing", "ops")], Told.FAILING)
    hooks.age_endpoint(4 * DAY)
    hooks.sql("UPDATE deliveries SET aging_since = now()")
    hooks.fail()
    assert hooks.facts() == [("endpoint.failing", "ops"), ("endpoint.disabled", "ops")]
    assert (hooks.see().state, hooks.see().told) == (State.DISABLED, Told.DISABLED)
    reason = r"failing for 5d1m(\d+s)? without a success, at last with status 500"
    assert re.fullmatch(reason, hooks.see().reason or "")
    assert hooks.delivery().state == "pending"


def test_nothing_is_disabled_without_a_warning_before(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    hooks.fail(3)
    hooks.age_endpoint(9 * DAY)
    hooks.fail()
    assert (hooks.see().state, hooks.see().told) == (State.ENABLED, Told.FAILING)
    hooks.fail()
    assert hooks.see().state is State.DISABLED


def test_a_success_ends_the_streak_and_whoever_was_warned_hears_of_it(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    fill_backlog(hooks, 10)
    hooks.fail(1)
    hooks.age_endpoint(2 * DAY)
    hooks.fail(1)
    hooks.make_due()
    hooks.attempt(OK)
    assert hooks.facts() == [("endpoint.failing", "ops"), ("endpoint.recovered", "ops")]
    assert (hooks.see().failing_since, hooks.see().told) == (None, None)
    hooks.attempt(OK)
    assert len(hooks.facts()) == 2


def test_a_short_trouble_is_told_to_nobody(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    fill_backlog(hooks, 10)
    hooks.fail(2)
    hooks.make_due()
    hooks.attempt(OK)
    assert hooks.facts() == []


def test_an_enabled_endpoint_starts_afresh_and_its_first_success_is_told(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    hooks.placed("h")
    hooks.call(endpoints.disable, "ep", "by hand")
    hooks.call(endpoints.disable, "ep", "by hand, again")
    assert (hooks.facts(), hooks.see().reason) == ([("endpoint.disabled", "ops")], "by hand")
    hooks.call(endpoints.enable)
    assert (hooks.see().failures, hooks.see().breaker, hooks.facts()) == (0, "closed", [("endpoint.disabled", "ops")])
    hooks.attempt(OK)
    assert hooks.facts()[1:] == [("endpoint.recovered", "ops")]


def test_a_success_under_way_when_its_endpoint_was_disabled_is_no_recovery(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    fill_backlog(hooks, 3)
    slot = hooks.held()
    under_way = hooks.taken(slot)
    hooks.attempt(Answered(410, "", None, "peer"))
    assert hooks.settle(under_way, OK) is Settled.DONE
    assert hooks.facts() == [("endpoint.disabled", "ops")]
    assert (hooks.see().state, hooks.see().told) == (State.DISABLED, Told.DISABLED)
    hooks.leave(slot)
    hooks.call(endpoints.enable)
    hooks.make_due()
    hooks.attempt(OK)
    assert hooks.facts()[1:] == [("endpoint.recovered", "ops")]


def test_a_success_under_way_when_its_endpoint_was_deleted_is_told_to_nobody(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    hooks.placed("h")
    hooks.call(endpoints.disable, "ep", "by hand")
    hooks.call(endpoints.enable)
    under_way = hooks.taken(hooks.held())
    hooks.call(endpoints.delete)
    assert hooks.settle(under_way, OK) is Settled.DONE
    assert (hooks.facts(), hooks.delivery().state) == ([("endpoint.disabled", "ops")], "delivered")


def test_facts_about_endpoints_never_go_to_the_one_they_speak_of(hooks: Hooks) -> None:
    for name in ("a", "b", "c"):
        hooks.endpoint(name)
    hooks.call(endpoints.disable, "a", "by hand")
    assert hooks.facts() == [("endpoint.disabled", "b"), ("endpoint.disabled", "c")]
    [(body,)] = hooks.sql("SELECT convert_from(body, 'UTF8')::jsonb FROM events")
    assert body["data"] == {"endpoint_id": "a", "reason": "by hand"}
    assert body["type"] == "endpoint.disabled"


@pytest.mark.parametrize("answer", [BROKEN, Answered(410, "", None, "peer")], ids=["500", "410"])
def test_facts_about_endpoints_raise_no_further_ones(hooks: Hooks, answer: Answered) -> None:
    hooks.endpoint("a")
    hooks.endpoint("ops", types=ENDPOINT_TYPES)
    hooks.endpoint("more", types=ENDPOINT_TYPES)
    hooks.call(endpoints.disable, "a", "by hand")
    hooks.attempt(BROKEN, "ops")
    hooks.age_endpoint(9 * DAY)
    before = hooks.facts()
    for _ in range(3):
        hooks.make_due()
        if hooks.see("ops").state is State.ENABLED:
            hooks.attempt(answer, "ops")
    assert hooks.facts() == before == [("endpoint.disabled", "more"), ("endpoint.disabled", "ops")]
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
