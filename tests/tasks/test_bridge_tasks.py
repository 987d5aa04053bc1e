"""The bridge's tasks as a worker runs them, and that there is a lane with ticks only where there is a bridge."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from comparison.infrai_server.serve import LocalInfrai
from gateways.infrai import Infrai
from settings import ROOT, settings
from tasks import app as task_app
from tasks import bridge
from tests.helpers import Desk

_TELL = """
import json
from beat_schedule import TIMETABLE
from cli.local.places import Places
from cli.local.programs import as_environment, local_programs
from settings import settings
places = Places(settings().state, settings().sockets)
names = [program.name for program in local_programs(settings(), places, 0)]
given = as_environment(settings())
print(json.dumps([sorted(entry["task"] for entry in TIMETABLE.values()), names, sorted(given)]))
"""


def told(**environment: str) -> list[list[str]]:
    clean = {name: value for name, value in os.environ.items() if "INFRAI" not in name}
    command = [sys.executable, "-c", _TELL]
    said = subprocess.run(command, cwd=ROOT, env=clean | environment, capture_output=True, text=True, check=True)
    found: list[list[str]] = json.loads(said.stdout)
    return found


def test_without_a_bridge_nothing_ticks_for_it_and_no_worker_runs() -> None:
    tasks, programs, _ = told()
    assert not [name for name in tasks if name.startswith("bridge.")]
    assert "worker-bridge" not in programs


def test_with_one_its_lane_has_a_worker_and_ticks_and_the_programs_get_the_key() -> None:
    tasks, programs, given = told(HOLDFAST_INFRAI_URL="http://127.0.0.1:1", INFRAI_API_KEY="ifr_test")
    assert [name for name in tasks if name.startswith("bridge.")] == ["bridge.consume", "bridge.publish"]
    assert "worker-bridge" in programs
    assert {"HOLDFAST_INFRAI_URL", "INFRAI_API_KEY"} <= set(given)


@pytest.fixture
def set_up(
    server: LocalInfrai, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:  # fmt: skip
    """This process's settings lead to the test's database and service."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("HOLDFAST_INFRAI_URL", server.url)
    monkeypatch.setenv("INFRAI_API_KEY", server.key)
    kept = (settings, task_app.database, task_app.policy, bridge.client)
    for cached in kept:
        cached.cache_clear()
    yield monkeypatch
    task_app.database().close()
    if bridge.client.cache_info().currsize:
        bridge.client().close()
    for cached in kept:
        cached.cache_clear()


def test_the_tasks_carry_a_hold_over_and_back(
    bridged_desk: Desk, client: Infrai, set_up: pytest.MonkeyPatch
) -> None:  # fmt: skip
    bridged_desk.overdue("h")
    assert bridge.publish.apply().get()["messages"] == 1
    assert bridge.consume.apply().get()["acknowledged"] == 1
    assert bridged_desk.read("h").status == "expired"
    [(worker, path)] = bridged_desk.sql("SELECT worker, path FROM receipts")
    assert (bool(worker), path) == (True, "infrai")


def test_a_bridge_without_a_key_is_one_line_and_takes_nothing(
    bridged_desk: Desk, set_up: pytest.MonkeyPatch
) -> None:  # fmt: skip
    set_up.setenv("INFRAI_API_KEY", "")
    settings.cache_clear()
    bridged_desk.overdue("h")
    before = bridged_desk.everything()
    told = "INFRAI_API_KEY: is empty, or holds a sign that no header may hold"
    assert bridge.publish.apply().get() == {"error": told}
    assert bridge.consume.apply().get() == {"error": told}
    assert bridged_desk.everything() == before
