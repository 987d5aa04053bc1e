"""Pruning of events that no hold takes along: about endpoints, tests of one, and what was waited for once."""

import threading
from datetime import timedelta

import pytest

from db import endpoint_events, endpoints, reconcile, replays
from db.engine import Database
from db.pruning import prune
from db.replays import Selection
from domain.endpoints import EndpointId, Overrides
from tests.hooks import BROKEN, OK, Hooks

YEAR = timedelta(days=365)
EVENTS = "SELECT event_id FROM events ORDER BY 1"


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def later(hooks: Hooks) -> None:
    """As if all this had happened two years ago; what still waits has waited for a paused endpoint, and is no older."""
    for table, instants in (
        ("events", ("occurred_at",)), ("attempts", ("started_at",)), ("holds", ("placed_at", "closed_at")),
        ("deliveries", ("created_at", "settled_at", "aging_since", "replayed_at")),
    ):  # fmt: skip
        changes = ", ".join(f"{at} = {at} - interval '2 years'" for at in instants)
        hooks.sql(f"UPDATE {table} SET {changes}" + (" WHERE state <> 'pending'" if table == "deliveries" else ""))


def tried(hooks: Hooks, *results: object) -> list[str]:
    """Tests of endpoint `ep`, with these answers; their events."""
    events = []
    for result in results:
        events.append(hooks.call(endpoint_events.try_out))
        if result is not None:
            hooks.make_due()
            hooks.attempt(result)  # type: ignore[arg-type]
    return events


def pruned(hooks: Hooks, *, batch: int = 1000) -> int:
    found = prune(hooks.database, older_than=YEAR, batch=batch).events
    with hooks.database.transaction() as tx:
        assert reconcile.violations(tx) == []
    return found


def test_tests_go_with_delivery_and_attempts_once_they_are_settled_and_old(hooks: Hooks) -> None:
    hooks.endpoint()
    *_, waiting = tried(hooks, OK, BROKEN, None)
    assert pruned(hooks) == 0
    later(hooks)
    assert pruned(hooks, batch=1) == 2
    assert hooks.rows(EVENTS) == [(waiting,)]
    assert [hooks.count(table) for table in ("deliveries", "attempts")] == [1, 0]


def test_facts_about_endpoints_go_once_nobody_waits_for_them_and_none_may_be_replayed(hooks: Hooks) -> None:
    hooks.endpoint("ep", overrides=Overrides(max_attempts=1))
    for name in ("a", "b", "c"):
        hooks.endpoint(name)
        hooks.call(endpoints.disable, name, "by hand")
        hooks.call(endpoints.delete, name)
    for result in (OK, BROKEN):
        hooks.make_due()
        hooks.attempt(result)
    later(hooks)
    assert hooks.rows("SELECT state FROM deliveries WHERE endpoint_id = 'ep' ORDER BY created_at") == [
        ("delivered",), ("dead",), ("pending",),
    ]  # fmt: skip
    assert pruned(hooks) == 1
    with hooks.database.transaction() as tx:
        assert replays.replay_all(tx, Selection(), operator="jo", limit=9) == 1
    hooks.make_due()
    hooks.attempt(OK)
    hooks.attempt(OK)
    assert pruned(hooks) == 0
    later(hooks)
    assert pruned(hooks) == 2
    assert hooks.rows(EVENTS) == []


def test_an_event_that_outlived_its_hold_goes_once_it_was_delivered(hooks: Hooks) -> None:
    hooks.endpoint(types=("reservation.placed",))
    hooks.placed("h")
    hooks.cancel("h")
    hooks.placed("held")
    later(hooks)
    assert (pruned(hooks), hooks.count("holds")) == (1, 1)
    assert hooks.rows(EVENTS) == [("reservation-placed:h:1",), ("reservation-placed:held:1",)]
    for _ in range(2):
        hooks.make_due()
        hooks.attempt(OK)
    assert pruned(hooks) == 0
    later(hooks)
    assert pruned(hooks) == 1
    assert hooks.rows(EVENTS) == [("reservation-placed:held:1",)]


def test_two_who_prune_at_once_delete_each_event_once(hooks: Hooks) -> None:
    hooks.endpoint()
    tried(hooks, *[OK] * 12)
    later(hooks)
    barrier = threading.Barrier(4)
    counts: list[int] = []

    def work() -> None:
        barrier.wait()
        counts.append(prune(hooks.database, older_than=YEAR, batch=3).events)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 12
    assert [hooks.count(table) for table in ("events", "deliveries", "attempts")] == [0, 0, 0]


def test_a_delivery_of_a_deleted_endpoint_keeps_no_event(hooks: Hooks) -> None:
    hooks.endpoint()
    [event] = tried(hooks, None)
    hooks.call(endpoints.delete, "ep")
    later(hooks)
    assert hooks.rows(EVENTS) == [(event,)]
    assert hooks.delivery(event, EndpointId("ep")).state == "cancelled"
    assert (pruned(hooks), hooks.rows(EVENTS)) == (1, [])
