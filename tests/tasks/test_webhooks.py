"""What a drain does with an endpoint's deliveries: in turn, for a moment, whatever goes wrong around it."""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from db import endpoints
from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId
from domain.webhooks import Answered, Result
from tasks.delivery import Drain, Drained
from tests.hooks import BOUNDS, BROKEN, OK, Hooks, fill_backlog

EP = EndpointId("ep")


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


class Receiver:
    """Answers in turn, the last answer for ever, and keeps what it got."""

    def __init__(self, *answers: Result, then: Callable[[Taken], None] = lambda _: None) -> None:
        self._answers = list(answers) or [OK]
        self._then = then
        self.got: list[Taken] = []

    def __call__(self, taken: Taken, asked_at: float = 0.0) -> Result:
        self.got.append(taken)
        self._then(taken)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    @property
    def ids(self) -> list[str]:
        return [taken.event_id for taken in self.got]


class Clock:
    """A worker's own clock that moves by a step each time it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self._now, self._step = 0.0, step

    def __call__(self) -> float:
        self._now += self._step
        return self._now

    def wait(self, seconds: float) -> None:
        self._now += seconds


def drain(hooks: Hooks, send: Receiver, **changes: Any) -> Drained:
    clock = changes.pop("clock", None) or Clock()
    known: dict[str, Any] = {"db": hooks.database, "policy": BOUNDS, "worker": "w", "wait": clock.wait}
    return Drain(send=send, clock=clock, **known | changes)(EP)


def states(hooks: Hooks) -> list[tuple[str, int]]:
    return hooks.rows("SELECT state, count(*) FROM deliveries GROUP BY 1 ORDER BY 1")


def in_threads(work: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_message_sends_all_that_is_due_and_leaves_its_slot(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 5)
    receiver = Receiver()
    assert drain(hooks, receiver) == Drained(5, again=False)
    assert receiver.ids == [f"reservation-placed:m-{n}:1" for n in range(1, 6)]
    assert states(hooks) == [("delivered", 5)]
    assert hooks.count("attempts", "status = 200 AND worker = 'w'") == 5
    assert hooks.count("endpoint_slots", "lease_until IS NOT NULL OR dispatched_until IS NOT NULL") == 0


def test_a_message_that_finds_nothing_sends_nothing_and_changes_nothing_but_a_token(hooks: Hooks) -> None:
    hooks.endpoint()
    before = hooks.everything()
    receiver = Receiver()
    assert drain(hooks, receiver) == Drained()
    after = hooks.everything()
    assert receiver.got == []
    assert {name for name in after if after[name] != before[name]} == {"endpoint_slots"}


def test_a_message_about_an_endpoint_that_is_gone_sends_nothing(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    hooks.call(endpoints.delete)
    receiver = Receiver()
    assert (drain(hooks, receiver), Drain(db=hooks.database, send=receiver, policy=BOUNDS, worker="w")(
        EndpointId("nobody")), receiver.got) == (Drained(), Drained(), [])  # fmt: skip


def test_a_large_backlog_gives_its_thread_back_and_leaves_a_mark_for_the_next_message(hooks: Hooks) -> None:
    hooks.endpoint(slots=1)
    fill_backlog(hooks, 30)
    receiver = Receiver()
    drained = drain(hooks, receiver, clock=Clock(0.1))
    assert (drained.again, 1 <= drained.sent <= 9) == (True, True)
    assert hooks.dispatch() == []  # the mark is there: no second message for the same slot
    while drained.again:
        drained = drain(hooks, receiver, clock=Clock(0.1))
    assert (len(receiver.got), len(set(receiver.ids)), states(hooks)) == (30, 30, [("delivered", 30)])


def test_ten_messages_at_once_send_each_delivery_once(hooks: Hooks) -> None:
    hooks.endpoint(slots=10)
    fill_backlog(hooks, 100)
    barrier = threading.Barrier(10)
    receiver = Receiver()

    def work() -> None:
        barrier.wait()
        drain(hooks, receiver)

    in_threads([work] * 10)
    assert sorted(receiver.ids) == sorted(f"reservation-placed:m-{n}:1" for n in range(1, 101))
    assert hooks.sql("SELECT DISTINCT attempts FROM deliveries") == [(1,)]


def test_no_more_requests_are_under_way_than_slots_however_many_messages(hooks: Hooks) -> None:
    hooks.endpoint(slots=3)
    fill_backlog(hooks, 60)
    lock = threading.Lock()
    inside, most = 0, 0
    all_slots = threading.Barrier(3)

    def busy(taken: Taken) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        if taken.event_id in {f"reservation-placed:m-{n}:1" for n in (1, 2, 3)}:
            all_slots.wait(10)  # the first three are under way at the same time
        with lock:
            inside -= 1

    receiver = Receiver(then=busy)
    in_threads([lambda: drain(hooks, receiver)] * 10)
    assert most == 3
    assert hooks.count("deliveries", "state = 'delivered'") == 60


def test_failures_are_settled_one_by_one_and_do_not_hold_up_later_events(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 4)
    receiver = Receiver(OK, BROKEN, Answered(404, "", None, "peer"), OK)
    assert drain(hooks, receiver) == Drained(4)
    assert states(hooks) == [("delivered", 2), ("pending", 2)]
    assert [row[0] for row in hooks.sql("SELECT status FROM attempts ORDER BY event_id")] == [200, 500, 404, 200]


def test_what_was_delivered_stays_delivered_when_its_record_cannot_be_written(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 2)
    hooks.sql("ALTER TABLE attempts ADD CONSTRAINT full_disk CHECK (status IS NULL OR event_id NOT LIKE '%m-1:%')")
    receiver = Receiver()
    assert drain(hooks, receiver) == Drained(1)
    hooks.lose_lease()
    drain(hooks, receiver)
    assert receiver.ids == ["reservation-placed:m-1:1", "reservation-placed:m-2:1"]
    assert states(hooks) == [("delivered", 2)]
    assert [row[0] for row in hooks.sql("SELECT status FROM attempts ORDER BY event_id")] == [None, 200]


def test_an_answer_that_no_table_takes_changes_nothing_about_the_outcome(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    drain(hooks, Receiver(Answered(200, "a NUL \x00 that slipped through", None, "peer")))
    assert (states(hooks), hooks.attempts()[0].status) == ([("delivered", 1)], None)


def test_a_worker_that_loses_its_lease_while_sending_settles_nothing(hooks: Hooks) -> None:
    hooks.endpoint(slots=1)
    hooks.placed("h")
    second = Receiver()

    def stall(_: Taken) -> None:
        hooks.lose_lease()
        drain(hooks, second)

    drain(hooks, Receiver(BROKEN, then=stall))
    assert [taken.number for taken in second.got] == [2]
    assert states(hooks) == [("delivered", 1)]
    assert [attempt.status for attempt in hooks.attempts()] == [500, 200]


def test_a_worker_that_dies_while_sending_costs_one_attempt_and_one_lease(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")

    class Killed(BaseException):
        """As a signal would."""

    def die(_: Taken) -> None:
        raise Killed

    first = Receiver(then=die)
    with pytest.raises(Killed):
        drain(hooks, first)
    assert drain(hooks, Receiver()) == Drained()
    hooks.lose_lease()
    second = Receiver()
    drain(hooks, second)
    [before], [after] = first.got, second.got
    assert (before.event_id, before.body, before.number) == (after.event_id, after.body, after.number - 1)


def test_a_database_that_stays_away_is_an_error_and_the_lease_runs_out(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")

    def cut(_: Taken) -> None:
        hooks.sql("ALTER TABLE deliveries RENAME TO deliveries_away")

    with pytest.raises(DBAPIError):
        drain(hooks, Receiver(then=cut))
    hooks.sql("ALTER TABLE deliveries_away RENAME TO deliveries")
    assert (states(hooks), hooks.delivery().attempts) == ([("pending", 1)], 1)
    hooks.lose_lease()
    drain(hooks, Receiver())
    assert states(hooks) == [("delivered", 1)]


def test_pausing_in_the_middle_lets_the_request_under_way_end_and_sends_no_other(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 5)
    receiver = Receiver(then=lambda _: hooks.call(endpoints.pause))
    assert drain(hooks, receiver) == Drained(1)
    assert states(hooks) == [("delivered", 1), ("pending", 4)]


def test_a_410_ends_the_turn(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 5)
    assert drain(hooks, Receiver(Answered(410, "", None, "peer"))) == Drained(1)
    assert (states(hooks), hooks.see().state.value) == ([("pending", 5)], "disabled")


def test_how_long_a_request_took_is_on_record(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    drain(hooks, Receiver(), clock=Clock(0.25))
    assert hooks.attempts()[0].duration == timedelta(seconds=0.25)
