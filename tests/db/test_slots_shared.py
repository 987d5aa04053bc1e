"""How endpoints share the lane: those that hang, are slow, or new, have a part of its threads."""

from collections import Counter
from datetime import timedelta

import pytest

from db.engine import Database
from domain.endpoints import EndpointId
from tests.hooks import OK, TIMEOUT, Hooks, fill_backlog, policy

SHARED = policy(threads=16)
"""Further requests of new and slow endpoints: 4 of the 16; first ones of the slow: 8; of the new: 14."""
HANG = timedelta(seconds=15)


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, SHARED)


def endpoints(hooks: Hooks, count: int, prefix: str, due: int = 9) -> list[EndpointId]:
    names = [EndpointId(f"{prefix}{number}") for number in range(count)]
    for name in names:
        hooks.endpoint(name)
        fill_backlog(hooks, due, name, name)
    return names


def seen(hooks: Hooks, names: list[EndpointId], took: timedelta) -> None:
    """As if each had been asked once, and had taken so long."""
    for name in names:
        hooks.attempt(TIMEOUT if took >= HANG else OK, name, took=took)


def hang(hooks: Hooks, names: list[EndpointId], slots: int = 1) -> None:
    """As if so many requests to each had been under way for two seconds, and nobody had heard of an end."""
    for name in names:
        for _ in range(slots):
            hooks.taken(hooks.held(name))
    hooks.sql("UPDATE endpoint_slots SET lease_until = lease_until - interval '2 s' WHERE lease_until IS NOT NULL")


def test_a_few_new_endpoints_get_their_first_slot_and_some_more(hooks: Hooks) -> None:
    names = endpoints(hooks, 3, "new")
    asked = Counter(hooks.dispatch())
    assert (set(asked), asked.total()) == (set(names), 4)
    assert hooks.dispatch() == []


def test_many_new_endpoints_get_one_slot_each_before_any_gets_two(hooks: Hooks) -> None:
    endpoints(hooks, 20, "new")
    asked = Counter(hooks.dispatch())
    assert (len(asked), asked.total()) == (14, 14)
    assert hooks.dispatch() == []


def test_slow_endpoints_leave_room_for_new_ones_and_both_leave_room_for_the_quick(hooks: Hooks) -> None:
    slow = endpoints(hooks, 20, "slow")
    seen(hooks, slow, HANG)
    asked = Counter(hooks.dispatch())
    assert (len(asked), asked.total()) == (8, 8)
    new, quick = endpoints(hooks, 9, "new"), endpoints(hooks, 3, "quick")
    seen(hooks, quick, timedelta(milliseconds=999))
    asked = Counter(hooks.dispatch())
    assert {name: asked[name] for name in quick} == dict.fromkeys(quick, 4)
    assert asked.total() == 6 + 12
    assert set(asked) <= {*new, *quick}


def test_endpoints_that_begin_to_hang_are_slow_from_then_on(hooks: Hooks) -> None:
    names = endpoints(hooks, 4, "hang")
    seen(hooks, names, timedelta(milliseconds=20))
    hang(hooks, names)
    assert hooks.dispatch() == []  # four are under way, and any other would be a further one
    endpoints(hooks, 1, "new")
    assert hooks.dispatch() == ["new0"]
    endpoints(hooks, 20, "more")
    assert len(hooks.dispatch()) == 14 - 5


def test_what_an_endpoint_did_last_counts_whichever_of_its_slots_did_it(hooks: Hooks) -> None:
    [name] = endpoints(hooks, 1, "ep", due=20)
    hang(hooks, endpoints(hooks, 6, "slow"))
    first, second = hooks.held(name), hooks.held(name)
    hooks.leave(first, HANG)
    hooks.leave(second, timedelta(milliseconds=20))
    assert hooks.dispatch().count(name) == 4
    hooks.sql("UPDATE endpoint_slots SET dispatched_until = NULL")
    hooks.leave(hooks.held(name), HANG)
    assert hooks.dispatch().count(name) == 1


def test_a_slot_that_was_never_used_changes_nothing_about_its_endpoint(hooks: Hooks) -> None:
    [name] = endpoints(hooks, 1, "ep")
    others = endpoints(hooks, 6, "slow")
    hang(hooks, others)
    hooks.attempt(OK, name)
    assert hooks.sql("SELECT count(*) FROM endpoint_slots WHERE endpoint_id = 'ep0' AND took IS NULL") == [(3,)]
    assert hooks.dispatch().count(name) == 4


def test_after_a_worker_was_killed_the_new_are_served_beside_what_it_left(hooks: Hooks) -> None:
    """Its leases run on and nobody knows that it is gone: they count as requests that hang."""
    left = endpoints(hooks, 8, "left")
    hang(hooks, left)
    endpoints(hooks, 1, "new")
    assert hooks.dispatch() == ["new0"]
    hooks.lose_lease()
    assert set(hooks.dispatch()) <= set(left)
