"""kill -9 at each step of a delivery: at least once, the same id and bytes, every attempt counted."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId
from domain.webhooks import Result
from settings import ROOT
from tasks.delivery import Drain
from tests.hooks import BOUNDS, OK, Hooks


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


@contextmanager
def drainer(hooks: Hooks) -> Iterator[subprocess.Popen[str]]:
    url = hooks.database.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.tasks.drainer", url, "ep"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("after_the_answer", [False, True], ids=["before the request", "after the 2xx"])
def test_a_killed_worker_costs_one_attempt_and_the_next_sends_the_same(hooks: Hooks, *, after_the_answer: bool) -> None:
    hooks.endpoint()
    hooks.placed("h")
    with drainer(hooks) as process:
        assert line(process) == "taken"
        if after_the_answer:
            go_on(process)
            _, event, number, body = line(process).split()
            assert (event, number) == ("reservation-placed:h:1", "1")
            assert bytes.fromhex(body) == hooks.rows("SELECT body FROM events")[0][0]
    assert (hooks.delivery().state, hooks.delivery().attempts) == ("pending", 1)
    sent: list[tuple[str, int, bytes]] = []

    def send(taken: Taken, asked_at: float) -> Result:
        sent.append((taken.event_id, taken.number, taken.body))
        return OK

    drain = Drain(db=hooks.database, send=send, policy=BOUNDS, worker="w")
    drain(EndpointId("ep"))
    assert sent == []
    hooks.lose_lease()
    drain(EndpointId("ep"))
    assert sent == [("reservation-placed:h:1", 2, hooks.rows("SELECT body FROM events")[0][0])]
    assert [(a.number, a.status, a.worker) for a in hooks.attempts()] == [(1, None, "killed"), (2, 200, "w")]
    assert hooks.delivery().state == "delivered"
