"""A lane that many endpoints share: those that hang, and one with a large backlog, hold up no other."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.hooks import fill_backlog
from tests.system.conftest import System, system
from tests.system.subscribers import HOOKS, Gate, Subscriber, accepting, kill_the_worker, subscriber

pytestmark = pytest.mark.system

PATIENT = {
    "visibility_timeout": timedelta(minutes=5),
    "webhook_deadline": timedelta(minutes=1),
    "webhook_lease": timedelta(minutes=2),
}
"""No request that hangs ends by itself while a test runs."""


@pytest.fixture(scope="module")
def patient() -> Iterator[System]:
    """One stack for this module's tests; each makes endpoints of its own, and deletes them."""
    with system(**HOOKS | PATIENT) as started:
        yield started


def serve(running: System, receiver: Subscriber, count: int) -> None:
    """Give it so many deliveries, and see all of them done with one attempt each."""
    fill_backlog(running.desk, count, receiver.name, receiver.name)
    running.until(lambda: receiver.delivered() == count, f"{receiver.name}: {count} delivered", seconds=45)
    assert receiver.attempts() == [(1, count)]
    assert set(receiver.ids().values()) == {1}
    receiver.assert_true_to_what_is_stored()


def test_while_eight_endpoints_hang_another_is_served_also_by_a_new_worker(patient: System) -> None:
    gate = Gate()
    with ExitStack() as stack:
        known = stack.enter_context(subscriber(patient, "known", accepting))
        serve(patient, known, 20)
        hanging = [stack.enter_context(subscriber(patient, f"hangs-{number}", gate)) for number in range(8)]
        stack.callback(gate.open.set)
        for one in hanging:
            fill_backlog(patient.desk, 200, one.name, one.name)
        patient.until(lambda: all(one.requests for one in hanging), "all eight hang")
        serve(patient, stack.enter_context(subscriber(patient, "new", accepting)), 20)
        kill_the_worker(patient)
        serve(patient, stack.enter_context(subscriber(patient, "newer", accepting)), 20)
        fill_backlog(patient.desk, 20, "known", "more")
        patient.until(lambda: known.delivered() == 40, "known: 20 more delivered", seconds=45)
        assert [one.delivered() for one in hanging] == [0] * 8
        assert patient.desk.count("attempts", "endpoint_id LIKE 'hangs%' AND duration IS NOT NULL") == 0
        assert not gate.open.is_set()


def test_ten_of_one_endpoint_do_not_wait_for_a_hundred_thousand_of_another(patient: System) -> None:
    with subscriber(patient, "big", accepting) as big, subscriber(patient, "small", accepting) as small:
        fill_backlog(patient.desk, 100_000, "big", "big")
        patient.until(lambda: big.delivered() > 0, "the backlog is worked off")
        before = big.delivered()
        serve(patient, small, 10)
        assert big.delivered() - before < 1000
