"""`holdfast sweep-door` as a process: a POST does one tick's work, and an interrupt closes it without a word."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests

from comparison.infrai_server.serve import running
from db import bridge
from settings import ROOT
from tests.bridged import QUEUE, drive_by_bridge, ready_client
from tests.helpers import Desk

TOKEN = "a-token-of-the-test"
_RUN = "import sys; from cli.main import run; sys.exit(run(sys.argv[1:]))"


@dataclass(frozen=True)
class Door:
    url: str
    doors: list[str]
    session: requests.Session

    def open(self, name: str = "sweep") -> Any:
        answer = self.session.post(f"{self.url}/{name}", json={}, timeout=20)
        assert answer.status_code == 200
        return answer.json()


@contextmanager
def opened(address: str, **environment: str) -> Iterator[Door]:
    """A door that closes without a word."""
    given = {**os.environ, "HOLDFAST_DATABASE_URL": address, "HOLDFAST_DOOR_TOKEN": TOKEN, **environment}
    command = [sys.executable, "-c", _RUN, "sweep-door", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            with requests.Session() as session:
                session.headers["Authorization"] = f"Bearer {TOKEN}"
                yield Door(told["url"], told["doors"], session)
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert TOKEN not in errors


def test_one_post_expires_what_is_due_and_the_next_changes_nothing(desk: Desk, address: str) -> None:
    desk.overdue("h", amount=250, currency="EUR")
    with opened(address) as door:
        assert door.doors == ["/sweep"]
        assert requests.post(f"{door.url}/sweep", timeout=20).status_code == 401
        assert desk.read("h").status == "held"
        first = door.open()
        assert (first["claimed"], first["outcomes"], first["error"]) == (1, {"expired": 1}, None)
        before = desk.everything()
        assert door.open()["claimed"] == 0
        after = desk.everything()
        giant = {"X": "x" * 300_000}
        assert door.session.post(f"{door.url}/sweep", headers=giant, timeout=20).status_code == 400
    assert {name for name in after if after[name] != before[name]} <= {"sweeps"}


def test_with_a_bridge_one_post_publishes_what_is_due_and_the_next_nothing(desk: Desk, address: str) -> None:
    drive_by_bridge(desk)
    desk.placed("h")
    with running() as service, ready_client(service) as client:
        ticks = {"HOLDFAST_BRIDGE_TICK": "0.001s"}
        with opened(address, HOLDFAST_INFRAI_URL=service.url, INFRAI_API_KEY=service.key, **ticks) as door:
            assert door.doors == ["/sweep", "/bridge-publish"]
            first = door.open("bridge-publish")
            assert (first["messages"], first["error"], first["closed"]) == (1, None, None)
            second = door.open("bridge-publish")
            assert (second["run"], second["messages"]) == (None, 0)
            with desk.database.transaction() as tx:
                bridge.pause(tx, "ada")
            assert door.open("bridge-publish")["closed"].startswith("paused by ada since ")
            assert client.stats(QUEUE).delayed == 1
    assert desk.count("sweep_runs") == 1
