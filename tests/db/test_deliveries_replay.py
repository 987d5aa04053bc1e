"""Dead deliveries and their replay: by an operator's hand, through the same lane, once."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from db import endpoints, replays
from db.engine import Database
from db.replays import Replay, Selection
from domain.endpoints import EndpointId, Overrides
from domain.errors import BadInput
from domain.identity import EventId
from domain.webhooks import Failed, FailureKind
from tests.hooks import BROKEN, OK, Hooks

PLACED = EventId("reservation-placed:h:1")
EP = EndpointId("ep")
LOST_KEY = Failed(FailureKind.OURS, "sealed with a key that is not at hand", None, sent=False)


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def dead(hooks: Hooks, *holds: str, name: str = "ep") -> None:
    """An endpoint with a dead delivery of each of these holds."""
    hooks.endpoint(name, overrides=Overrides(max_attempts=1), types=("reservation.placed",))
    for hold in holds:
        hooks.placed(hold)
        hooks.sql("UPDATE endpoints SET breaker_until = NULL, failures = 0")
        hooks.attempt(BROKEN, name)
    assert hooks.count("deliveries", "state = 'dead'") == len(holds)


def replay(hooks: Hooks, event: str = PLACED, operator: str = "jo") -> Replay:
    with hooks.database.transaction() as tx:
        return replays.replay(tx, EventId(event), EP, operator=operator)


def replay_all(hooks: Hooks, limit: int = 100, **selection: Any) -> int:
    with hooks.database.transaction() as tx:
        return replays.replay_all(tx, Selection(**selection), operator="jo", limit=limit)


def count_dead(hooks: Hooks, **selection: Any) -> int:
    with hooks.database.transaction() as tx:
        return replays.count_dead(tx, Selection(**selection))


def test_a_dead_delivery_is_tried_again_with_all_its_attempts_before_it(hooks: Hooks) -> None:
    dead(hooks, "h")
    hooks.sql("UPDATE deliveries SET aging_since = now() - interval '9 days'")
    assert replay(hooks) is Replay.REVIVED
    found = hooks.delivery()
    assert (found.state, found.attempts, found.earlier, found.replays, found.replayed_by) == ("pending", 1, 1, 1, "jo")
    assert hooks.sql("SELECT replayed_by, outcome FROM dead_letters") == [("jo", "replayed")]
    taken = hooks.attempt(OK)
    assert (taken.number, taken.trigger, taken.event_id) == (2, "replay", PLACED)
    assert (taken.age < timedelta(minutes=1), hooks.delivery().state) == (True, "delivered")
    assert [(a.number, a.trigger) for a in hooks.attempts()] == [(1, "auto"), (2, "replay")]


def test_a_replayed_delivery_walks_its_ladder_from_the_first_step_with_its_own_bound_and_age(hooks: Hooks) -> None:
    waits = (timedelta(0), timedelta(seconds=10), timedelta(hours=20))
    hooks.endpoint(overrides=Overrides(waits=waits, max_attempts=3, max_age=timedelta(hours=24)))
    hooks.placed("h")

    def walk() -> list[timedelta]:
        """What each attempt but the last was followed by, until it is dead."""
        waited = []
        for result in (BROKEN, LOST_KEY, BROKEN, BROKEN):
            hooks.make_due()
            hooks.attempt(result)
            [(wait,)] = hooks.rows("SELECT next_attempt_at - now() FROM deliveries")
            waited.append(wait)
        assert hooks.delivery().state == "dead"
        return waited[:3]

    for number in range(3):
        if number:
            replay(hooks)
            found = hooks.delivery()
            assert (found.attempts, found.earlier, found.spared) == (4 * number, 4 * number, 4 * number)
        first, ours, second = walk()
        assert timedelta(0) < first < timedelta(seconds=10)
        assert all(timedelta(hours=5) < wait < timedelta(hours=20) for wait in (ours, second))
    found = hooks.delivery()
    assert (found.attempts, found.earlier, found.spared, found.replays) == (12, 8, 9, 2)


def test_a_replay_that_dies_again_opens_its_dead_letter_again(hooks: Hooks) -> None:
    dead(hooks, "h")
    replay(hooks)
    hooks.attempt(BROKEN)
    assert hooks.delivery().state == "dead"
    assert hooks.sql("SELECT key, replayed_at, outcome FROM dead_letters") == [(f"delivery:{PLACED}:ep", None, None)]


def test_two_quick_replays_make_one_attempt(hooks: Hooks) -> None:
    dead(hooks, "h")
    barrier = threading.Barrier(4)
    answers: list[Replay] = []

    def work() -> None:
        barrier.wait()
        answers.append(replay(hooks))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [Replay.REVIVED, Replay.WAITING, Replay.WAITING, Replay.WAITING]
    assert hooks.delivery().replays == 1
    hooks.attempt(OK)
    assert [attempt.number for attempt in hooks.attempts()] == [1, 2]


def test_what_was_delivered_is_not_replayed(hooks: Hooks) -> None:
    dead(hooks, "h")
    replay(hooks)
    hooks.attempt(OK)
    before = hooks.everything()
    with pytest.raises(BadInput, match="delivery: is delivered; only a dead one can be replayed"):
        replay(hooks)
    assert replay_all(hooks) == 0
    assert hooks.everything() == before


def test_what_cannot_be_replayed_is_said_in_one_line(hooks: Hooks) -> None:
    dead(hooks, "h")
    with pytest.raises(BadInput, match="there is none of 'nothing' for 'ep'"):
        replay(hooks, "nothing")
    hooks.call(endpoints.delete)
    before = hooks.everything()
    with pytest.raises(BadInput, match="its endpoint is deleted; add another"):
        replay(hooks)
    assert (count_dead(hooks), replay_all(hooks), hooks.everything()) == (0, 0, before)


def test_a_filter_chooses_and_a_dry_run_counts_the_same(hooks: Hooks) -> None:
    dead(hooks, "h1", "h2", "h3")
    hooks.sql("UPDATE deliveries SET created_at = '2026-01-01Z' WHERE event_id LIKE '%:h1:%'")
    new_year = hooks.delivery("reservation-placed:h1:1").created_at
    chosen: list[dict[str, Any]] = [
        {"event": "reservation-placed:h2:1"},
        {"until": new_year + timedelta(seconds=1)},
        {"since": new_year, "until": new_year},
        {"endpoint": "nobody"},
        {"type": "reservation.expired"},
    ]
    before = hooks.everything()
    assert [count_dead(hooks, **selection) for selection in chosen] == [1, 1, 0, 0, 0]
    assert count_dead(hooks, endpoint="ep", type="reservation.placed", since=new_year) == 3
    assert hooks.everything() == before
    assert replay_all(hooks, until=new_year + timedelta(seconds=1)) == 1
    assert hooks.delivery("reservation-placed:h1:1").state == "pending"
    assert [replay_all(hooks, limit=1), replay_all(hooks, limit=5), replay_all(hooks)] == [1, 1, 0]


def test_a_dead_delivery_that_is_given_up_stays_ended_and_names_who_did(hooks: Hooks) -> None:
    dead(hooks, "h")
    for expected in (True, False):
        with hooks.database.transaction() as tx:
            assert replays.give_up(tx, PLACED, EP, operator="jo") is expected
    assert hooks.delivery().state == "cancelled"
    assert hooks.sql("SELECT replayed_by, outcome FROM dead_letters") == [("jo", "discarded")]
    with pytest.raises(BadInput, match="delivery: is cancelled; only a dead one can be replayed"):
        replay(hooks)


def test_replays_go_through_the_endpoints_slots_and_its_pause(hooks: Hooks) -> None:
    dead(hooks, "h1", "h2")
    hooks.call(endpoints.pause)
    assert replay_all(hooks) == 2
    assert (hooks.dispatch(), hooks.slot()) == ([], None)
    hooks.call(endpoints.resume)
    assert hooks.dispatch() == ["ep", "ep"]


def test_a_listing_is_what_the_receivers_owner_can_reconcile_with(hooks: Hooks) -> None:
    dead(hooks, "h1", "h2")
    hooks.endpoint("other")
    hooks.placed("h3")
    with hooks.database.transaction() as tx:
        mine = replays.listing(tx, Selection(endpoint=EP), limit=10)
        waiting = replays.listing(tx, Selection(state="pending"), limit=10)
        first = replays.listing(tx, Selection(), limit=1)
    assert [(d.event_id, d.state) for d in mine] == [
        ("reservation-placed:h1:1", "dead"), ("reservation-placed:h2:1", "dead"),
        ("reservation-placed:h3:1", "pending"),
    ]  # fmt: skip
    assert [(d.endpoint_id, d.type) for d in waiting] == [("ep", "reservation.placed"), ("other", "reservation.placed")]
    assert first == mine[:1]
