"""A few at once, in order; whatever ends the waiting, the rest is not begun."""

import signal
from threading import Event

import pytest

from gateways.side_by_side import side_by_side


class Alarm(Exception):
    """A time limit."""


def test_results_come_in_the_order_of_the_items() -> None:
    assert side_by_side(lambda number: number * 2, range(20), 4) == list(range(0, 40, 2))


def test_after_a_failure_nothing_more_is_begun() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        raise Alarm

    with pytest.raises(Alarm):
        side_by_side(work, range(1000), 1)
    assert len(begun) < 1000


def test_a_time_limit_is_not_kept_waiting_by_what_has_not_begun() -> None:
    begun: list[int] = []
    go_on = Event()

    def work(number: int) -> None:
        begun.append(number)
        go_on.wait(30)
        Event().wait(0.005)

    def limit(*_: object) -> None:
        go_on.set()
        raise Alarm

    before = signal.signal(signal.SIGALRM, limit)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            side_by_side(work, range(1000), 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 2 <= len(begun) < 100
