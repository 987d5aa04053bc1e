"""What the broker may do: be emptied, restarted while messages are held, frozen. Nothing is lost, nobody waits."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import text

from domain.terms import For
from tests.system.conftest import System

pytestmark = pytest.mark.system


@contextmanager
def expiries_held_up(running: System) -> Iterator[None]:
    """Expiries wait inside their transaction, with their messages unacknowledged; claims do not."""
    with running.database.engine.begin() as tx:
        tx.execute(text("LOCK TABLE events IN SHARE MODE"))
        yield


def is_held_up(running: System) -> bool:
    return bool(
        running.desk.sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO events%'")
    )


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


def test_writers_do_not_notice_a_frozen_broker(running: System) -> None:
    valkey = running.stack.pid("valkey")
    assert valkey is not None
    running.stack.kill("valkey", signal.SIGSTOP)
    try:
        desk = running.desk
        minute = For(running.stack.settings.claim_lease * 20)
        for number in range(20):
            desk.placed(f"frozen-{number}-a", minute, amount=1, currency="EUR")
            desk.extend(f"frozen-{number}-a", 1, minute)
            desk.confirm(f"frozen-{number}-a", 2)
            desk.placed(f"frozen-{number}-b", minute)
            desk.cancel(f"frozen-{number}-b", 1)
        assert desk.count("holds", "id LIKE 'frozen-%' AND status = 'confirmed' AND version = 2") == 20
        assert desk.count("holds", "id LIKE 'frozen-%' AND status = 'cancelled'") == 20
        running.place(10, "thaw", seconds=1)
    finally:
        running.stack.kill("valkey", signal.SIGCONT)
    running.until(lambda: running.expired("thaw") == 10, "all expired after the thaw", seconds=60)
    running.assert_expired_once("thaw", 10)
