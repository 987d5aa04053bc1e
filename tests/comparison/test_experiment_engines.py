"""The experiment on real transports: every case, with fewer messages; and nothing is left on a broker of others."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from cli.local.answers import broker
from cli.local.engines import Postgres, Valkey
from comparison.candidate import Candidate, Engine, Standing
from comparison.candidates.celery_rabbitmq import CeleryOnRabbitMQ
from comparison.cases import CASES
from comparison.experiment import Entrant, Plan, experiment
from comparison.registry import REGISTRY, Place
from comparison.result import Report
from db.engine import Database
from tests.comparison.trying import Waiting, at_once, grounds_of

pytestmark = pytest.mark.system

RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
AT = datetime(2026, 12, 1, tzinfo=UTC)


HAS_RABBITMQ = not broker(RABBITMQ)


@pytest.fixture(scope="module")
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


def tried(database: Database, name: str, redis: str, made: list[Candidate]) -> Report:
    def make(url: str) -> Candidate:
        made.append(REGISTRY[name].make(Place(database=url, redis=redis, rabbitmq=RABBITMQ)))
        return made[-1]

    entrant = Entrant(name=name, title=REGISTRY[name].title, make=make)
    plan = Plan(runs=1, seed=7, burst=40)
    return experiment([entrant], plan, grounds_of(database), at=AT, progress=lambda *_: None)


Found = Mapping[str, Waiting]


@pytest.fixture(scope="module")
def made() -> list[Candidate]:
    """Every candidate that took part."""
    return []


@pytest.fixture(scope="module")
def found(postgres: Postgres, template: str, valkey: Valkey, made: list[Candidate]) -> Iterator[Found]:
    """What was found on each engine that is here."""
    names = ["celery-redis", "infrai", *(["celery-rabbitmq"] if HAS_RABBITMQ else [])]
    jobs = {name: partial(tried, name=name, redis=valkey.url, made=made) for name in names}
    with at_once(postgres, template, jobs) as reports:
        yield reports


def statuses(report: Report) -> dict[str, set[str]]:
    """Cases by how they ended, but for those that passed; a failure with its summary."""
    found: dict[str, set[str]] = {}
    for result in report.results:
        if result.status != "pass":
            what = f"{result.case}: {result.summary}" if result.status == "fail" else result.case
            found.setdefault(result.status.value, set()).add(what)
    return found


def engine_of(report: Report) -> Engine:
    [column] = report.columns
    assert column.violations == []
    assert column.description is not None
    return column.description.engine


def test_celery_on_valkey_passes_and_leaves_no_key(found: Found, valkey: Valkey) -> None:
    report = found["celery-redis"].result()
    assert statuses(report) == {"not offered": {"delay"}}
    assert (engine_of(report).name, engine_of(report).standing) == ("Valkey", Standing.PROTOCOL)
    assert redis.Redis(unix_socket_path=str(valkey.socket)).keys("*") == []


@pytest.mark.skipif(not HAS_RABBITMQ, reason="no RabbitMQ here")
def test_celery_on_rabbitmq_passes_and_leaves_no_queue(found: Found, made: list[Candidate]) -> None:
    report = found["celery-rabbitmq"].result()
    assert statuses(report) == {}
    assert (engine_of(report).name, engine_of(report).standing) == ("RabbitMQ", Standing.REAL)
    [candidate] = [one for one in made if isinstance(one, CeleryOnRabbitMQ)]
    for queue in (candidate.queue.name, f"{candidate.queue.name}_celery_delayed_19"):
        with Connection(RABBITMQ) as connection:
            channel: Any = connection.channel()
            with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
                channel.queue_declare(queue, passive=True)


def test_infrai_passes_on_the_contract_server_and_says_so(found: Found) -> None:
    report = found["infrai"].result()
    assert statuses(report) == {}
    assert engine_of(report).standing is Standing.CONTRACT
    [beyond] = [result for result in report.results if result.case == "beyond"]
    assert beyond.checks[0].seen.startswith("by our client, before it was sent: delay: is 604801 s")
    [delay] = [result for result in report.results if result.case == "delay"]
    assert delay.notes == ["The transport's clock was moved seven days ahead; the hold is judged at its deadline."]


def test_a_broker_that_does_not_answer_is_skipped_with_its_reason_and_no_password(database: Database) -> None:
    report = tried(database, "celery-redis", "redis://:pass-word@127.0.0.1:1/0", [])
    [column] = report.columns
    assert column.description is None
    assert column.skipped is not None
    assert column.skipped.startswith("redis://:**@127.0.0.1:1/0 cannot be used (")
    assert "pass-word" not in str(report.as_data())
    assert statuses(report) == {"skipped": {case.id for case in CASES}}
    assert report.failed
