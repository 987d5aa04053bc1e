"""kill -9 on either side of the bridge, and of a move: every hold expires once, and reconcile is clean."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from comparison.infrai_server.serve import LocalInfrai
from db import cohorts, reconcile
from db.engine import Database
from db.sweeps import Run
from domain.paths import Path
from gateways.infrai import Infrai
from settings import ROOT
from tasks.bridging import Bridge
from tests.bridged import LEASE, NO_WAIT, QUEUE
from tests.helpers import Desk, Sweeper, carrier

COHORTS = range(100)


@pytest.fixture
def desk(bridged_desk: Desk) -> Desk:
    return bridged_desk


@contextmanager
def other(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def killed_at(step: str, desk: Desk, server: LocalInfrai, what: str) -> None:
    url = desk.database.engine.url.render_as_string(hide_password=False)
    with other("tests.tasks.bridger", url, server.url, server.key, what) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == step


def clean(database: Database) -> bool:
    with database.transaction() as tx:
        return reconcile.violations(tx) == []


def test_a_publisher_killed_between_the_call_and_the_note_makes_no_second_message(
    desk: Desk, database: Database, server: LocalInfrai, client: Infrai, over: Bridge
) -> None:
    for number in range(5):
        desk.placed(f"h{number}")
    killed_at("called", desk, server, "publish")
    assert client.stats(QUEUE).delayed == 5
    assert desk.count("bridge_messages", "published_at IS NULL AND batch IS NOT NULL") == 5
    assert over.publish(apart=NO_WAIT).messages == 0  # its lease holds
    desk.sql("UPDATE bridge_messages SET claimed_until = now()")
    assert over.publish(apart=NO_WAIT).messages == 5
    assert client.stats(QUEUE).delayed == 5
    assert desk.count("bridge_messages", "message_id IS NULL") == 0
    assert clean(database)


def test_a_consumer_killed_between_the_commit_and_the_acknowledgement_expires_nothing_twice(
    desk: Desk, database: Database, server: LocalInfrai, client: Infrai, over: Bridge
) -> None:
    for number in range(5):
        desk.overdue(f"h{number}", amount=250, currency="EUR")
    over.publish(apart=NO_WAIT)
    killed_at("applied", desk, server, "consume")
    assert desk.count("holds", "status = 'expired'") == 5
    assert client.stats(QUEUE).in_flight == 5
    server.advance(LEASE.total_seconds() + 1)
    done = over.consume(apart=NO_WAIT)
    assert (done.messages, done.acknowledged) == (5, 5)
    assert desk.count("effects", "kind = 'expired'") == 5
    assert desk.count("ledger", "side = 'close'") == 5
    assert client.stats(QUEUE).in_flight == 0
    assert clean(database)


def test_a_message_whose_publisher_was_killed_is_not_lost_when_its_cohort_goes_away_and_back(
    desk: Desk, database: Database, server: LocalInfrai, client: Infrai, over: Bridge
) -> None:
    """While the cohort was away its message was consumed as `elsewhere`; the killed call repeated makes no other."""
    for number in range(3):
        desk.overdue(f"h{number}")
    killed_at("called", desk, server, "publish")
    cohorts.route(database, COHORTS, Path.SWEEP)
    assert over.consume(apart=NO_WAIT).acknowledged == 3
    assert desk.count("receipts", "tally ? 'elsewhere'") == 1
    cohorts.route(database, COHORTS, Path.INFRAI)
    desk.sql("UPDATE bridge_messages SET claimed_until = now() WHERE batch IS NOT NULL")
    assert over.publish(apart=NO_WAIT).messages == 6
    assert over.consume(apart=NO_WAIT).acknowledged == 3
    assert desk.count("holds", "status = 'expired'") == 3
    assert desk.count("effects", "kind = 'expired'") == 3
    assert client.stats(QUEUE).in_flight == 0
    assert clean(database)


def test_a_move_that_is_killed_is_finished_by_the_same_command(desk: Desk, database: Database) -> None:
    desk.sql("UPDATE cohort_paths SET path = 'sweep', routed_at = NULL, bridged_at = NULL")
    for number in range(20):
        desk.placed(f"h{number:02}")
    url = database.engine.url.render_as_string(hide_password=False)
    with other("tests.tasks.router", url) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "filled"
    assert 0 < desk.count("bridge_messages") < 20
    assert clean(database)
    for _ in range(200):
        try:
            assert cohorts.route(database, COHORTS, Path.INFRAI).cohorts == {}
            break
        except cohorts.RoutingUnderWay:  # the server has not yet noticed that the client is gone
            desk.sql("SELECT pg_sleep(0.01)")
    assert desk.count("bridge_messages") == 20
    assert clean(database)


def test_cohorts_move_under_load_and_each_hold_expires_once(
    desk: Desk, database: Database, server: LocalInfrai, over: Bridge
) -> None:
    """Holds come due while their cohorts go to and fro, a sweep and the bridge both work, and a consumer is killed."""
    for number in range(60):
        desk.overdue(f"h{number:02}", amount=250, currency="EUR")

    def sweep_once() -> None:
        sweeper = Sweeper(database)
        begun = sweeper.begin(timedelta(microseconds=-1))
        if isinstance(begun, Run):
            claimed = sweeper.claim(begun, 7)
            desk.expire(*claimed.own, by=carrier(path=Path.SWEEP, run=begun.id))

    over.publish(apart=NO_WAIT)
    killed_at("applied", desk, server, "consume")
    with ThreadPoolExecutor(2) as pool:
        for move in range(6):
            working: list[Future[Any]] = [pool.submit(sweep_once), pool.submit(over.consume, apart=NO_WAIT)]
            cohorts.route(database, COHORTS, Path.SWEEP if move % 2 else Path.INFRAI)
            over.publish(apart=NO_WAIT)
            for one in working:
                one.result()
            server.advance(LEASE.total_seconds() + 1)
            desk.sql("UPDATE holds SET claimed_until = now() WHERE status = 'held'")
    cohorts.route(database, COHORTS, Path.INFRAI)
    over.publish(apart=NO_WAIT)
    over.consume(apart=NO_WAIT)
    assert desk.sql("SELECT status, count(*) FROM holds GROUP BY status") == [("expired", 60)]
    assert desk.count("effects", "kind = 'expired'") == 60
    assert desk.count("ledger", "side = 'close'") == 60
    assert clean(database)
