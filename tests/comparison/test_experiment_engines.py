"""The experiment on real transports: every case, with fewer messages; and nothing is left on a broker of others."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from cli.local.answers import broker
from cli.local.engines import Valkey
from comparison.candidate import Candidate, Standing
from comparison.candidates import REGISTRY, Place
from comparison.cases import CASES
from comparison.experiment import Entrant, Plan, experiment
from comparison.ground import Ground
from comparison.result import Report
from db.engine import Database

pytestmark = pytest.mark.system

RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
AT = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        server = Valkey(Path(folder) / "data", Path(folder) / "v.sock")
        server.prepare()
        process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                if not broker(server.url):
                    break
            yield server
        finally:
            process.terminate()
            process.wait(20)


def tried(database: Database, name: str, make: Callable[[str], Candidate]) -> Report:
    @contextmanager
    def ground() -> Iterator[Ground]:
        yield Ground(database)

    entrant = Entrant(name=name, title=REGISTRY[name].title, make=make)
    return experiment([entrant], Plan(runs=1, seed=7, burst=100), ground, at=AT, progress=lambda *_: None)


def placed(name: str, redis: str = "redis://127.0.0.1:1/0") -> Callable[[str], Candidate]:
    return lambda url: REGISTRY[name].make(Place(database=url, redis=redis, rabbitmq=RABBITMQ))


def statuses(report: Report) -> dict[str, set[str]]:
    """Cases by how they ended, but for those that passed; a failure with its summary."""
    found: dict[str, set[str]] = {}
    for result in report.results:
        if result.status != "pass":
            what = f"{result.case}: {result.summary}" if result.status == "fail" else result.case
            found.setdefault(result.status.value, set()).add(what)
    return found


def test_celery_on_valkey_passes_and_leaves_no_key(database: Database, valkey: Valkey) -> None:
    report = tried(database, "celery-redis", placed("celery-redis", valkey.url))
    assert statuses(report) == {"not offered": {"delay"}}
    [column] = report.columns
    assert column.violations == []
    assert column.description is not None
    assert (column.description.engine.name, column.description.engine.standing) == ("Valkey", Standing.PROTOCOL)
    assert redis.Redis(unix_socket_path=str(valkey.socket)).keys("*") == []


@pytest.mark.skipif(bool(broker(RABBITMQ)), reason="no RabbitMQ here")
def test_celery_on_rabbitmq_passes_and_leaves_no_queue(database: Database) -> None:
    made: list[Candidate] = []

    def make(url: str) -> Candidate:
        made.append(placed("celery-rabbitmq")(url))
        return made[0]

    report = tried(database, "celery-rabbitmq", make)
    assert statuses(report) == {}
    [column] = report.columns
    assert column.violations == []
    assert column.description is not None
    assert (column.description.engine.name, column.description.engine.standing) == ("RabbitMQ", Standing.REAL)
    token = made[0].doorway().address["token"]
    with Connection(RABBITMQ) as connection:
        for queue in (f"holdfast-compare-{token}", f"holdfast-compare-{token}_celery_delayed_19"):
            channel: Any = connection.channel()
            with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
                channel.queue_declare(queue, passive=True)


def test_infrai_passes_on_the_contract_server_and_says_so(database: Database) -> None:
    report = tried(database, "infrai", placed("infrai"))
    assert statuses(report) == {}
    [column] = report.columns
    assert column.violations == []
    assert column.description is not None
    assert column.description.engine.standing is Standing.CONTRACT
    [delay] = [result for result in report.results if result.case == "delay"]
    assert delay.notes == ["The transport's clock was moved seven days ahead; the hold is judged at its deadline."]


def test_the_plain_sweep_passes_what_applies_to_it(database: Database) -> None:
    report = tried(database, "sweep", placed("sweep"))
    assert statuses(report) == {"not offered": {"withheld", "missing", "malformed", "payload", "delay"}}
    assert report.columns[0].violations == []


def test_a_broker_that_does_not_answer_is_skipped_with_its_reason_and_no_password(database: Database) -> None:
    away = "redis://:pass-word@127.0.0.1:1/0"
    report = tried(database, "celery-redis", placed("celery-redis", away))
    [column] = report.columns
    assert column.description is None
    assert column.skipped is not None
    assert column.skipped.startswith("redis://:**@127.0.0.1:1/0 does not answer (")
    assert "pass-word" not in str(report.as_data())
    assert statuses(report) == {"skipped": {case.id for case in CASES}}
    assert report.failed
