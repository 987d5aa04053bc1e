"""What a worker's process logs: one JSON object a line, with task, run and hold bound, and never a customer's text."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest

from db.engine import Database
from domain.references import Reference
from settings import ROOT
from tests.helpers import Desk, fill, whole_second

_PROCESS = """
import json, sys
from settings import settings
from tasks import logs
from tasks.expiry import expire
logs.configure(settings())
message = {"run": 7, "path": "sweep", "refs": json.loads(sys.argv[1])}
expire.apply(kwargs=message, task_id="t-1", retries=3)
"""
"""A worker's process without its queue: the task runs as a worker runs it, on its last try."""


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def log_of(desk: Desk, *references: Reference) -> str:
    """What a process writes to stderr while it applies a message with these."""
    url = desk.database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    environment = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_LOG_FORMAT": "json", "PATH": "/usr/bin:/bin"}
    refs = json.dumps([reference.as_data() for reference in references])
    run = subprocess.run(
        [sys.executable, "-c", _PROCESS, refs], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout == ""
    return run.stderr


def test_an_applied_message_is_one_line_with_its_task_and_run(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        references = fill(tx, ["h-1", "h-2"], deadline=whole_second(tx, timedelta(minutes=-1)))
    line = json.loads(log_of(desk, *references))
    del line["timestamp"]
    assert line == {
        "event": "expiry.applied", "level": "info", "logger": "tasks.expiry", "task": "expiry.expire",
        "task_id": "t-1", "run": 7, "path": "sweep", "expired": 2,
    }  # fmt: skip


def test_a_hold_that_fails_alone_is_named_and_its_customer_is_not(desk: Desk) -> None:
    hold = desk.overdue("h-1", resource="room for jane.doe@example.com", customer="jane.doe@example.com")
    desk.sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (type <> 'reservation.expired') NOT VALID")
    text = log_of(desk, hold.reference)
    assert "jane" not in text
    postponed = json.loads(text.splitlines()[0])
    assert {name: postponed[name] for name in ("event", "run", "hold", "task_id")} == {
        "event": "expiry.postponed", "run": 7, "hold": "h-1", "task_id": "t-1",
    }  # fmt: skip


def test_a_failed_statement_is_logged_without_its_parameters(desk: Desk) -> None:
    hold = desk.overdue("h-1", resource="room for jane.doe@example.com", customer="jane.doe@example.com")
    desk.sql("ALTER TABLE events RENAME TO gone")
    text = log_of(desk, hold.reference)
    assert 'relation \\"events\\" does not exist' in text
    assert "jane" not in text
    assert {json.loads(line).get("run") for line in text.splitlines()} == {7}
