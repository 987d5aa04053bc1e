"""Settling what was accepted and taking the next in one statement: as `settle` and `take` do, or not at all."""

import threading
from dataclasses import replace
from uuid import uuid4

import pytest
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH
from sqlalchemy import text

from db import endpoints, onward
from db.deliveries import Nothing, Settled, Taken
from db.engine import Database
from db.slots import Slot
from domain.webhooks import Answered
from tests.hooks import OK, TOOK, Hooks, fill_backlog


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def go_on(hooks: Hooks, taken: Taken, slot: Slot, answer: Answered = OK) -> Taken | Nothing | None:
    with hooks.database.session() as session, session.transaction() as tx:
        return onward.settle_delivered_and_take(tx, taken, answer, slot, hooks.policy, took=TOOK, worker="worker@test")


def two_due(hooks: Hooks, rate: float | None = None) -> tuple[Slot, Taken]:
    """An endpoint with two due deliveries, the first of them taken."""
    hooks.endpoint(rate=rate)
    fill_backlog(hooks, 2)
    slot = hooks.held()
    return slot, hooks.taken(slot)


def states(hooks: Hooks) -> list[tuple[str, int]]:
    return hooks.rows("SELECT state, attempts FROM deliveries ORDER BY event_id")


def test_the_accepted_one_is_settled_with_its_record_and_the_next_is_taken_and_counted(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    second = go_on(hooks, first, slot)
    assert isinstance(second, Taken)
    assert (second.event_id, second.number) == ("reservation-placed:m-2:1", 1)
    assert hooks.rows("SELECT state, attempts, lease_token FROM deliveries ORDER BY event_id") == [
        ("delivered", 1, None), ("pending", 1, second.token)]  # fmt: skip
    assert hooks.rows(
        "SELECT event_id, number, worker, duration, peer, status, failure, detail FROM attempts ORDER BY event_id"
    ) == [
        ("reservation-placed:m-1:1", 1, "worker@test", TOOK, OK.peer, 200, None, "thanks"),
        ("reservation-placed:m-2:1", 1, "worker@test", None, None, None, None, None),
    ]


def test_what_is_taken_this_way_is_what_the_long_way_takes(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    short = go_on(hooks, first, slot)
    assert isinstance(short, Taken)
    hooks.lose_lease()
    long = hooks.taken(hooks.held())
    assert replace(short, number=2, token=long.token, at=long.at, age=long.age) == long
    assert short.keys[0].sealed == b"sealed"


def test_a_token_that_is_not_the_newest_changes_nothing(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    before = hooks.everything()
    assert go_on(hooks, replace(first, token=uuid4()), slot) is None
    assert hooks.everything() == before


def test_an_endpoint_whose_health_must_be_looked_after_is_left_to_the_long_way(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    hooks.sql("UPDATE endpoints SET failures = 1, failing_since = now()")
    before = hooks.everything()
    assert go_on(hooks, first, slot) is None
    assert hooks.everything() == before
    assert hooks.settle(first) is Settled.DONE
    assert hooks.see().failures == 0


def test_an_answer_that_no_table_takes_changes_nothing(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    before = hooks.everything()
    assert go_on(hooks, first, slot, replace(OK, body_cut="\x00")) is None
    hooks.sql("ALTER TABLE attempts ADD CONSTRAINT full_disk CHECK (status IS NULL)")
    assert go_on(hooks, first, slot) is None
    assert hooks.everything() == before


def test_with_its_slot_lost_it_settles_and_takes_nothing(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    assert go_on(hooks, first, replace(slot, token=uuid4())) is Nothing.DUE
    assert states(hooks) == [("delivered", 1), ("pending", 0)]


def test_a_paused_endpoint_gets_no_other(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    hooks.call(endpoints.pause)
    assert go_on(hooks, first, slot) is Nothing.DUE
    assert states(hooks) == [("delivered", 1), ("pending", 0)]


def test_an_endpoint_whose_rate_is_used_up_gets_no_other(hooks: Hooks) -> None:
    slot, first = two_due(hooks, rate=0.5)
    assert go_on(hooks, first, slot) is Nothing.DUE
    assert states(hooks) == [("delivered", 1), ("pending", 0)]


def test_what_is_past_its_bounds_is_left_for_the_long_way_to_end(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    hooks.sql("UPDATE deliveries SET aging_since = now() - interval '30 d' WHERE event_id LIKE '%m-2:%'")
    assert go_on(hooks, first, slot) is Nothing.DUE
    assert states(hooks) == [("delivered", 1), ("pending", 0)]
    assert hooks.take(slot) is Nothing.DUE
    assert states(hooks) == [("delivered", 1), ("dead", 0)]


def test_a_delivery_whose_lease_ran_out_is_settled_and_not_taken_again(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 1)
    slot = hooks.held()
    taken = hooks.taken(slot)
    hooks.sql("UPDATE deliveries SET lease_until = now() - interval '1 s'")
    assert go_on(hooks, taken, slot) is Nothing.DUE
    assert states(hooks) == [("delivered", 1)]


def test_two_who_settle_the_same_at_once_settle_it_once(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 3)
    slot = hooks.held()
    first = hooks.taken(slot)
    barrier, found = threading.Barrier(2), []

    def settle() -> None:
        barrier.wait()
        found.append(go_on(hooks, first, slot))

    threads = [threading.Thread(target=settle) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(one).__name__ for one in found) == ["NoneType", "Taken"]
    assert states(hooks) == [("delivered", 1), ("pending", 1), ("pending", 0)]


def test_the_connection_keeps_transactions_afterwards_also_after_an_error(hooks: Hooks) -> None:
    slot, first = two_due(hooks)
    with hooks.database.session() as session:
        for answer in (replace(OK, body_cut="\x00"), OK):
            with session.transaction() as tx:
                onward.settle_delivered_and_take(tx, first, answer, slot, hooks.policy, took=TOOK, worker="w")
            with session.transaction() as tx:
                tx.execute(text("UPDATE endpoints SET label = 'lost'"))
                tx.rollback()
    assert hooks.count("endpoints", "label = 'lost'") == 0


def test_the_driver_keeps_what_it_has_read_of_the_statement() -> None:
    """A longer one it would take apart again for each delivery."""
    [statement] = [value for name, value in vars(onward).items() if name.startswith("_SETTLE_DELIVERED")]
    assert len(statement) <= MAX_CACHED_STATEMENT_LENGTH
