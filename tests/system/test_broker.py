"""What the broker may do: be emptied, restarted while messages are held, frozen. Nothing is lost, nobody waits."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import text

from settings import ROOT
from tests.system.conftest import System

pytestmark = pytest.mark.system


@contextmanager
def expiries_held_up(running: System) -> Iterator[None]:
    """Expiries wait inside their transaction, with their messages unacknowledged; claims do not."""
    with running.database.engine.begin() as tx:
        tx.execute(text("LOCK TABLE events IN SHARE MODE"))
        yield


def is_held_up(running: System) -> bool:
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%WITH change AS%'"
    return bool(running.desk.sql(waiting))


def test_a_broker_restarted_with_everything_lost_delays_and_loses_nothing(running: System) -> None:
    running.place(50, "lost", seconds=2)
    running.stack.stop_program("valkey")
    shutil.rmtree(running.stack.valkey.data)  # type: ignore[union-attr]
    running.stack.valkey.data.mkdir()  # type: ignore[union-attr]
    running.desk.sql("SELECT pg_sleep(3)")
    assert running.expired("lost") == 0
    running.stack.start_program("valkey")
    running.until(lambda: running.expired("lost") == 50, "all expired", seconds=30)
    running.assert_expired_once("lost", 50)


def test_a_broker_emptied_in_mid_run_is_repaired_by_the_next_sweep(running: System) -> None:
    running.place(50, "flush", seconds=2)
    with expiries_held_up(running):
        running.until(lambda: is_held_up(running), "an expiry that waits")
        with redis.Redis(unix_socket_path=str(running.stack.valkey.socket)) as client:  # type: ignore[union-attr]
            client.flushall()
    running.until(lambda: running.expired("flush") == 50, "all expired", seconds=30)
    running.assert_expired_once("flush", 50)


def test_workers_that_hold_messages_when_the_broker_restarts_are_back_by_themselves(running: System) -> None:
    running.place(50, "unacked", seconds=2)
    with expiries_held_up(running):
        running.until(lambda: is_held_up(running), "an expiry that waits")
        before = running.stack.pid("valkey")
        running.stack.kill("valkey")
        running.until(lambda: running.stack.pid("valkey") not in {before, None}, "the broker is back")
    running.until(lambda: running.expired("unacked") == 50, "all expired", seconds=30)
    running.place(10, "after", seconds=1)
    running.until(lambda: running.expired("after") == 10, "work goes on", seconds=30)
    running.assert_expired_once("unacked", 50)


def write_all(running: System, name: str) -> float:
    """Place, extend, confirm and cancel as a shop's process does; returns the seconds it took."""
    environment = running.stack.environment
    done = subprocess.run(
        [sys.executable, "-c", _WRITER, name], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


_WRITER = """
import sys, time
from cli.main import run
name, began = sys.argv[1], time.perf_counter()
terms = ["--resource", "seat", "--customer", "acme", "--for", "1h", "--amount", "250", "--currency", "EUR", "--json"]
with open("/dev/null", "w") as nowhere:
    answer, sys.stdout = sys.stdout, nowhere
    for number in range(10):
        codes = [
            run(["place", f"{name}-{number}-a", *terms]),
            run(["extend", f"{name}-{number}-a", "--version", "1", "--for", "1h"]),
            run(["confirm", f"{name}-{number}-a", "--version", "2"]),
            run(["place", f"{name}-{number}-b", *terms]),
            run(["cancel", f"{name}-{number}-b", "--version", "1", "--reason", "not wanted"]),
        ]
        assert codes == [0] * 5, codes
    sys.stdout = answer
print(time.perf_counter() - began)
"""


def test_writers_do_not_notice_a_frozen_broker(running: System) -> None:
    before = write_all(running, "thawed")
    running.stack.kill("valkey", signal.SIGSTOP)
    try:
        frozen = write_all(running, "frozen")
        running.place(10, "thaw", seconds=1)
    finally:
        running.stack.kill("valkey", signal.SIGCONT)
    assert running.desk.count("holds", "id LIKE 'frozen-%' AND status = 'confirmed' AND version = 2") == 10
    assert running.desk.count("holds", "id LIKE 'frozen-%' AND status = 'cancelled'") == 10
    assert frozen < 5 * before + 2, "one call that waits for the broker takes 5 s"
    running.until(lambda: running.expired("thaw") == 10, "all expired after the thaw", seconds=60)
    running.assert_expired_once("thaw", 10)
