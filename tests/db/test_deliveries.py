"""Deliveries are taken one at a time, in one committed change, within bounds that all workers share."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import event, text

from db import endpoints
from db.deliveries import Nothing, Taken
from db.engine import Database
from domain.endpoints import Overrides, Terms
from domain.errors import BadInput
from domain.webhooks import RetryPolicy
from tests.hooks import Hooks, fill_backlog

PLACED = "reservation-placed:h:1"


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def test_taking_counts_the_attempt_and_puts_it_on_record_before_anything_is_sent(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    taken = hooks.taken(hooks.held())
    assert (taken.event_id, taken.number, taken.spared, taken.trigger) == (PLACED, 1, 0, "auto")
    assert (taken.url, taken.policy) == ("https://ep.example.com/", RetryPolicy())
    assert [(key.key_id, key.scheme, key.sealed) for key in taken.keys] == [("key-ep", "v1", b"sealed")]
    assert taken.body == hooks.sql("SELECT body FROM events")[0][0]
    [attempt] = hooks.attempts()
    assert (attempt.number, attempt.trigger, attempt.worker, attempt.key_ids) == (1, "auto", "worker@test", ["key-ep"])
    assert (attempt.duration, attempt.status, attempt.failure) == (None, None, None)
    assert hooks.delivery().attempts == 1
    [(lease,)] = hooks.sql("SELECT lease_until - now() FROM deliveries")
    assert timedelta(seconds=20) < lease <= timedelta(seconds=30)


def test_ten_workers_that_drain_one_row_make_one_request(hooks: Hooks) -> None:
    hooks.endpoint(slots=10)
    hooks.placed("h")
    slots = [hooks.held() for _ in range(10)]
    barrier = threading.Barrier(10)
    found: list[Taken | Nothing] = []

    def work(number: int) -> None:
        barrier.wait()
        found.append(hooks.take(slots[number]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(one, Taken) for one in found) == [False] * 9 + [True]
    assert hooks.delivery().attempts == 1
    assert len(hooks.attempts()) == 1


def test_the_oldest_due_goes_first_and_what_is_not_due_waits(hooks: Hooks) -> None:
    hooks.endpoint()
    for hold in ("late", "early", "later"):
        hooks.placed(hold)
    hooks.sql("UPDATE deliveries SET next_attempt_at = now() - interval '2 s' WHERE event_id LIKE '%:early:%'")
    hooks.sql("UPDATE deliveries SET next_attempt_at = now() + interval '2 s' WHERE event_id LIKE '%:later:%'")
    slot = hooks.held()
    assert hooks.taken(slot).event_id == "reservation-placed:early:1"
    assert hooks.taken(slot).event_id == "reservation-placed:late:1"
    assert hooks.take(slot) is Nothing.DUE


def test_a_lost_lease_is_taken_again_with_the_next_number(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    first = hooks.taken(hooks.held())
    assert hooks.take(hooks.held()) is Nothing.DUE
    hooks.lose_lease()
    second = hooks.taken(hooks.held())
    assert (first.number, second.number, second.event_id, second.body) == (1, 2, first.event_id, first.body)


def test_a_worker_that_lost_its_slot_takes_nothing(hooks: Hooks) -> None:
    hooks.endpoint(slots=1)
    hooks.placed("h")
    lost = hooks.held()
    hooks.lose_lease()
    hooks.held()
    before = hooks.everything()
    assert hooks.take(lost) is Nothing.DUE
    assert hooks.everything() == before


def test_the_attempt_cap_holds_even_if_no_answer_is_ever_recorded(hooks: Hooks) -> None:
    hooks.endpoint(overrides=Overrides(max_attempts=3))
    hooks.placed("h")
    for number in (1, 2, 3):
        assert hooks.taken(hooks.held()).number == number
        hooks.lose_lease()
    assert hooks.take(hooks.held()) is Nothing.DUE
    assert (hooks.delivery().state, hooks.delivery().attempts, len(hooks.attempts())) == ("dead", 3, 3)
    assert hooks.sql("SELECT key, kind, reference, error, attempts FROM dead_letters") == [
        (
            f"delivery:{PLACED}:ep", "delivery", {"event_id": PLACED, "endpoint_id": "ep"}, "attempts used up", 3,
        )
    ]  # fmt: skip


def test_a_delivery_past_its_age_is_never_sent_and_the_one_behind_it_is(hooks: Hooks) -> None:
    hooks.endpoint(overrides=Overrides(max_age=timedelta(hours=1)))
    hooks.placed("old")
    hooks.sql("UPDATE deliveries SET aging_since = now() - interval '3601 s', next_attempt_at = now() - interval '1 h'")
    hooks.placed("new")
    assert hooks.taken(hooks.held()).event_id == "reservation-placed:new:1"
    assert (hooks.delivery("reservation-placed:old:1").state, hooks.attempts("reservation-placed:old:1")) == (
        "dead",
        [],
    )
    assert hooks.sql("SELECT error FROM dead_letters") == [("too old",)]


def test_a_backlog_that_has_grown_too_old_is_ended_by_few_statements(hooks: Hooks, database: Database) -> None:
    hooks.endpoint(overrides=Overrides(max_age=timedelta(hours=1)))
    fill_backlog(hooks, 230)
    hooks.sql("UPDATE deliveries SET aging_since = now() - interval '2 h', next_attempt_at = now() - interval '1 h'")
    hooks.placed("new")
    said: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *told: said.append(told[2]))
    slot = hooks.held()
    assert hooks.take(slot) is Nothing.DUE
    assert len(said) <= 10
    assert hooks.taken(slot).event_id == "reservation-placed:new:1"
    assert (hooks.count("deliveries", "state = 'dead'"), hooks.count("attempts")) == (230, 1)
    assert hooks.rows("SELECT error, attempts, count(*) FROM dead_letters GROUP BY 1, 2") == [("too old", 1, 230)]


def test_ending_what_is_too_old_leaves_alone_what_is_not_and_what_others_have(
    hooks: Hooks, database: Database
) -> None:  # fmt: skip
    hooks.endpoint(overrides=Overrides(max_age=timedelta(hours=1)))
    for hold in ("old", "elsewhere", "fresh"):
        hooks.placed(hold)
    hooks.sql("""UPDATE deliveries SET aging_since = now() - interval '2 h', next_attempt_at = now() - interval '1 h'
                 WHERE event_id NOT LIKE '%:fresh:%'""")
    with database.transaction() as other:
        other.execute(text("SELECT FROM deliveries WHERE event_id LIKE '%:elsewhere:%' FOR UPDATE"))
        assert hooks.taken(hooks.held()).event_id == "reservation-placed:fresh:1"
    assert hooks.rows("SELECT event_id, state FROM deliveries ORDER BY 1") == [
        ("reservation-placed:elsewhere:1", "pending"), ("reservation-placed:fresh:1", "pending"),
        ("reservation-placed:old:1", "dead"),
    ]  # fmt: skip


@pytest.mark.parametrize("stop", [endpoints.pause, lambda tx, name: endpoints.disable(tx, name, "by hand")])
def test_a_stopped_endpoint_sends_nothing_and_its_age_stands_still(hooks: Hooks, stop: object) -> None:
    hooks.endpoint(overrides=Overrides(max_age=timedelta(hours=1)))
    hooks.placed("h")
    slot = hooks.held()
    hooks.call(stop)
    assert (hooks.take(slot), hooks.slot(), hooks.dispatch()) == (Nothing.DUE, None, [])
    hooks.placed("meanwhile")
    hooks.age_endpoint(timedelta(hours=50))
    hooks.sql("UPDATE deliveries SET aging_since = aging_since - interval '50 h' WHERE event_id LIKE '%:h:1'")
    hooks.sql("""UPDATE deliveries SET aging_since = aging_since - interval '20 h',
                                       still_before = still_before + interval '30 h'
                 WHERE event_id LIKE '%:meanwhile:%'""")
    hooks.call(endpoints.enable)
    hooks.leave(slot)
    slot = hooks.held()
    for taken in (hooks.taken(slot), hooks.taken(slot)):
        assert timedelta(0) <= taken.age < timedelta(minutes=1)


def test_pausing_twice_and_resuming_adds_up_what_it_stood_still(hooks: Hooks) -> None:
    hooks.endpoint()
    for hours in (3, 4):
        hooks.call(endpoints.pause)
        hooks.age_endpoint(timedelta(hours=hours))
        hooks.call(endpoints.pause)
        hooks.call(endpoints.resume)
        hooks.call(endpoints.resume)
    [(stood, since)] = hooks.rows("SELECT stood_still, still_since FROM endpoints")
    assert (round(stood / timedelta(hours=1), 2), since) == (7.0, None)


# -- bounds shared by all workers ------------------------------------------------------------------------------------


def test_an_endpoint_never_has_more_requests_under_way_than_slots(hooks: Hooks) -> None:
    hooks.endpoint(slots=3)
    fill_backlog(hooks, 20)
    barrier = threading.Barrier(10)
    held: list[object] = []

    def work() -> None:
        barrier.wait()
        held.append(hooks.slot())

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(slot is not None for slot in held) <= 3
    while (slot := hooks.slot()) is not None:  # a slot that was locked when it was looked at is still there
        held.append(slot)
    assert sum(slot is not None for slot in held) == 3


def test_a_rate_is_shared_by_all_workers(hooks: Hooks) -> None:
    hooks.endpoint(rate=0.01)
    fill_backlog(hooks, 20)
    slots = [hooks.held() for _ in range(4)]
    assert isinstance(hooks.take(slots[0]), Taken)
    before = hooks.sql("SELECT event_id, attempts FROM deliveries ORDER BY 1")
    assert [hooks.take(slot) for slot in slots[1:]] == [Nothing.PACED] * 3
    assert hooks.sql("SELECT event_id, attempts FROM deliveries ORDER BY 1") == before
    [(wait,)] = hooks.sql("SELECT paced_until - now() FROM endpoints")
    assert timedelta(seconds=50) < wait <= timedelta(seconds=100)
    hooks.sql("UPDATE endpoints SET paced_until = now() + interval '200 ms'")  # less than a tick away
    assert isinstance(hooks.take(slots[1]), Taken)
    assert hooks.take(slots[2]) is Nothing.PACED


def test_bounds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInput, match="slots: must lie between 1 and 64"):
        Terms(url="https://x.example/", slots=0)
    with pytest.raises(BadInput, match=r"rate: must lie between 0\.001 and 10000 a second"):
        Terms(url="https://x.example/", rate=0.0)
    with pytest.raises(BadInput, match="attempts: must lie between 1 and 100"):
        Terms(url="https://x.example/", overrides=Overrides(max_attempts=0))
