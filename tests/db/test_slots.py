"""Slots: handed out by the sweep once each, taken by workers, back after a moment whatever is lost."""

from datetime import timedelta

import pytest

from db import endpoints, slots
from db.engine import Database
from domain.endpoints import EndpointId, Terms
from tests.hooks import OK, Hooks, fill_backlog


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def test_a_tick_asks_for_as_many_drains_as_there_are_free_slots_with_something_to_do(hooks: Hooks) -> None:
    hooks.endpoint("busy", slots=3)
    hooks.endpoint("calm", slots=3)
    hooks.endpoint("idle")
    fill_backlog(hooks, 50, "busy", "b")
    fill_backlog(hooks, 2, "calm", "c")
    assert sorted(hooks.dispatch()) == ["busy"] * 3 + ["calm"] * 2
    assert hooks.dispatch() == ["calm"]


def test_an_idle_tick_changes_the_sweeps_row_and_nothing_else(hooks: Hooks) -> None:
    hooks.endpoint()
    before = hooks.everything()
    assert hooks.dispatch() == []
    after = hooks.everything()
    assert {name for name in after if after[name] != before[name]} == {"sweeps"}


def test_of_two_ticks_at_once_one_does_nothing(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 9)
    assert len(hooks.dispatch(timedelta(minutes=1))) == 4
    hooks.sql("UPDATE endpoint_slots SET dispatched_until = NULL")
    assert hooks.dispatch(timedelta(minutes=1)) == []


def test_a_lost_message_costs_the_time_of_a_mark_and_no_attempt(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    for _ in range(10):
        assert hooks.dispatch() == ["ep"]
        hooks.sql("UPDATE endpoint_slots SET dispatched_until = now() - interval '1 ms' WHERE dispatched_until > now()")
    assert (hooks.delivery().attempts, hooks.count("attempts")) == (0, 0)
    hooks.attempt(OK)
    assert (hooks.delivery().state, hooks.delivery().attempts) == ("delivered", 1)


def test_a_killed_workers_slot_is_free_after_its_lease(hooks: Hooks) -> None:
    hooks.endpoint(slots=1)
    hooks.placed("h")
    killed = hooks.held()
    hooks.taken(killed)
    assert (hooks.dispatch(), hooks.slot()) == ([], None)
    hooks.lose_lease()
    assert hooks.dispatch() == ["ep"]
    newer = hooks.held()
    hooks.leave(killed)
    assert hooks.sql("SELECT token, lease_until > now() FROM endpoint_slots") == [(newer.token, True)]


def test_each_message_uses_up_a_mark_of_its_own(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 4)
    assert len(hooks.dispatch()) == 4
    for _ in range(4):
        hooks.leave(hooks.held())
    assert len(hooks.dispatch()) == 4


def test_fewer_slots_count_at_once_and_more_are_there_at_once(hooks: Hooks) -> None:
    hooks.endpoint(slots=2)
    fill_backlog(hooks, 9)
    first, second = hooks.held(), hooks.held()
    url = hooks.see().terms.url
    hooks.call(endpoints.edit, "ep", Terms(url=url, slots=1))
    hooks.taken(first)
    assert hooks.take(second) == "nothing is due"
    hooks.call(endpoints.edit, "ep", Terms(url=url, slots=6))
    assert len(hooks.dispatch()) == 4


def test_a_rate_that_is_used_up_for_longer_than_a_tick_asks_for_nothing(hooks: Hooks) -> None:
    hooks.endpoint(rate=1.0)
    fill_backlog(hooks, 9)
    slot = hooks.held()
    hooks.taken(slot)
    hooks.leave(slot)
    assert hooks.dispatch() == []
    hooks.sql("UPDATE endpoints SET paced_until = now() + interval '200 ms'")
    assert hooks.dispatch() == ["ep"] * 4


def test_a_tick_passes_over_a_slot_that_is_just_being_taken_and_asks_for_the_others(hooks: Hooks) -> None:
    for name in ("busy", "calm"):
        hooks.endpoint(name, slots=1)
        fill_backlog(hooks, 2, name, name)
    with hooks.database.transaction() as worker:
        assert slots.take(worker, EndpointId("busy"), hooks.policy) is not None
        assert hooks.dispatch() == ["calm"]
    assert hooks.dispatch() == []
