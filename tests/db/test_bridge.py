"""What is published next: within the horizon, in one batch at a time, and again under the same name after a crash."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from db import bridge, cohorts, trace
from db.bridge import Backlog, Batch, Open, Paused, Resting
from db.engine import Database, Tx
from domain.identity import HoldId
from domain.paths import Path
from domain.terms import For, Until
from domain.tracing import Step
from tests.helpers import Desk, whole_second

LEASE = timedelta(seconds=60)
OLD = timedelta(minutes=5)
WEEK = timedelta(days=7)
SECOND = timedelta(seconds=1)


@pytest.fixture
def desk(database: Database) -> Desk:
    desk = Desk(database)
    desk.sql("UPDATE cohort_paths SET path = 'infrai', routed_at = now(), bridged_at = now()")
    return desk


def take(desk: Desk, limit: int = 100) -> Batch | None:
    with desk.database.transaction() as tx:
        return bridge.take(tx, limit, lease=LEASE, old=OLD)


def taken(desk: Desk, limit: int = 100) -> Batch:
    batch = take(desk, limit)
    assert batch is not None
    return batch


def let_leases_end(desk: Desk, *, taken: timedelta = timedelta(0)) -> None:
    desk.sql(
        "UPDATE bridge_messages SET claimed_until = now(), batch_at = batch_at - CAST(:by AS interval) "
        "WHERE batch IS NOT NULL",
        by=taken,
    )


def ids(batch: Batch) -> list[str]:
    return [line.hold_id for line in batch.lines]


def test_only_what_is_within_seven_days_is_taken_and_its_delay_leads_to_the_deadline(
    desk: Desk, database: Database
) -> None:
    with database.transaction() as tx:
        now = whole_second(tx)
    desk.placed("far", Until(now + WEEK + 60 * SECOND))
    desk.placed("edge", Until(now + WEEK))
    desk.placed("due", Until(now + 3600 * SECOND))
    desk.age("due", timedelta(hours=2))
    batch = taken(desk)
    assert ids(batch) == ["due", "edge"]
    due, edge = batch.lines
    assert batch.delay(due) == timedelta(0)
    assert WEEK - 30 * SECOND < batch.delay(edge) <= WEEK
    assert batch.at + batch.delay(edge) == now + WEEK
    assert take(desk) is None


def test_what_was_published_is_never_taken_again(desk: Desk, database: Database) -> None:
    for name in ("a", "b", "c"):
        desk.placed(name)
    batch = taken(desk, 2)
    with database.transaction() as tx:
        assert bridge.published(tx, batch, ["m1", "m2"]) == 2
        assert bridge.published(tx, batch, ["m3", "m4"]) == 0
    let_leases_end(desk)
    assert len(taken(desk).lines) == 1
    rows = desk.sql("SELECT hold_id, message_id FROM bridge_messages WHERE published_at IS NOT NULL ORDER BY hold_id")
    assert rows == list(zip(ids(batch), ["m1", "m2"], strict=True))


def test_a_batch_nobody_settled_is_taken_again_word_for_word(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.placed(name, For(timedelta(hours=1)))
    first = taken(desk, 2)
    assert taken(desk).id != first.id
    assert take(desk) is None
    let_leases_end(desk)
    again = sorted((taken(desk), taken(desk)), key=lambda batch: -len(batch.lines))
    assert again[0] == first
    assert take(desk) is None


def test_one_whose_delays_no_longer_fit_becomes_the_next_try_of_each(desk: Desk) -> None:
    desk.placed("a")
    first = taken(desk)
    let_leases_end(desk, taken=OLD + SECOND)
    second = taken(desk)
    assert second.id != first.id
    assert second.at > first.at
    assert [(line.hold_id, line.try_) for line in second.lines] == [("a", 2)]


def test_one_whose_next_try_a_routing_has_written_already_is_forgotten_when_its_delays_no_longer_fit(
    desk: Desk, database: Database
) -> None:
    desk.placed("a")
    first = taken(desk)
    desk.sql("UPDATE cohort_paths SET routed_at = clock_timestamp()")
    assert [cohorts.route(database, range(100), Path.INFRAI).written for _ in range(2)] == [1, 0]
    assert desk.sql("SELECT try, batch FROM bridge_messages ORDER BY try") == [(1, first.id), (2, None)]
    let_leases_end(desk, taken=OLD + SECOND)
    assert [(line.hold_id, line.try_) for line in taken(desk).lines] == [("a", 2)]
    assert desk.count("bridge_messages") == 1


def test_two_at_once_share_what_is_due(desk: Desk, database: Database) -> None:
    for number in range(40):
        desk.placed(f"h{number:02}")
    barrier = Barrier(4)

    def work() -> list[str]:
        barrier.wait(10)
        found: list[str] = []
        while (batch := take(desk, 3)) is not None:
            found += ids(batch)
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(work) for _ in range(4)]
        assert sorted(name for one in found for name in one.result()) == [f"h{number:02}" for number in range(40)]


def test_two_at_once_for_one_batch_whose_lease_ended_give_it_to_one(desk: Desk) -> None:
    desk.placed("a")
    first = taken(desk)
    let_leases_end(desk)
    barrier = Barrier(4)

    def work() -> Batch | None:
        barrier.wait(10)
        return take(desk)

    with ThreadPoolExecutor(4) as pool:
        found = [one.result() for one in [pool.submit(work) for _ in range(4)]]
    assert [batch for batch in found if batch is not None] == [first]


def test_what_its_hold_no_longer_needs_is_forgotten_not_published(desk: Desk) -> None:
    desk.placed("closed")
    desk.cancel("closed")
    desk.placed("moved")
    desk.extend("moved", 1, For(timedelta(hours=1)))
    desk.placed("wanted")
    batch = taken(desk)
    assert [(line.hold_id, line.version) for line in batch.lines] == [("moved", 2), ("wanted", 1)]
    assert desk.count("bridge_messages") == 2


def test_a_published_message_is_published_again_as_the_next_try_only_when_asked(desk: Desk, database: Database) -> None:
    desk.placed("h")
    with database.transaction() as tx:
        assert bridge.publish_again(tx, HoldId("h")) is None
    batch = taken(desk)
    with database.transaction() as tx:
        bridge.published(tx, batch, ["m1"])
        assert bridge.publish_again(tx, HoldId("h")) == 2
        assert bridge.publish_again(tx, HoldId("h")) is None
        assert bridge.publish_again(tx, HoldId("nobody")) is None
    second = taken(desk)
    assert [(line.hold_id, line.try_) for line in second.lines] == [("h", 2)]
    assert second.id != batch.id


def test_the_backlog_tells_what_is_due_under_way_and_later(desk: Desk, database: Database) -> None:
    for name in ("a", "b"):
        desk.placed(name)
    desk.placed("far", For(timedelta(days=30)))
    taken(desk, 1)
    with database.transaction() as tx:
        found = bridge.backlog(tx)
    assert found == Backlog(1, found.oldest, 1, 1)


def test_a_bridge_is_open_paused_or_resting(desk: Desk, database: Database) -> None:
    with database.transaction() as tx:
        assert bridge.standing(tx) == Open()
        bridge.rest(tx, timedelta(seconds=30), "429 RATE_LIMIT_USER")
        resting = bridge.standing(tx)
        assert isinstance(resting, Resting)
        assert resting.reason == "429 RATE_LIMIT_USER"
        bridge.rest(tx, timedelta(seconds=1), "again")
        shorter = bridge.standing(tx)
        assert isinstance(shorter, Resting)
        assert shorter.until == resting.until
        bridge.pause(tx, "ada")
        bridge.pause(tx, "bob")
        paused = bridge.standing(tx)
        assert isinstance(paused, Paused)
        assert paused.by == "ada"
        bridge.resume(tx)
        assert bridge.standing(tx) == Open()


def test_a_trace_tells_what_was_published_and_under_which_id(desk: Desk, database: Database) -> None:
    desk.placed("h")
    batch = taken(desk)
    with database.transaction() as tx:
        assert [step for step in steps(tx) if step.what == "published over the bridge"] == []
        bridge.published(tx, batch, ["m1"])
        [step] = [step for step in steps(tx) if step.what == "published over the bridge"]
    assert step.facts == {"message": "m1", "version": 1, "try": 1}


def steps(tx: Tx) -> Sequence[Step]:
    found = trace.trace(tx, HoldId("h"))
    assert found is not None
    return found.steps
