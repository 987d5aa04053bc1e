"""`holdfast sweep-door` as a process: a POST expires what is due, and an interrupt closes it without a word."""

import json
import os
import signal
import subprocess
import sys

import requests

from settings import ROOT
from tests.helpers import Desk

TOKEN = "a-token-of-the-test"
_RUN = "import sys; from cli.main import run; sys.exit(run(sys.argv[1:]))"


def test_one_post_expires_what_is_due_and_the_next_changes_nothing(desk: Desk, address: str) -> None:
    desk.overdue("h", amount=250, currency="EUR")
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": address, "HOLDFAST_DOOR_TOKEN": TOKEN}
    command = [sys.executable, "-c", _RUN, "sweep-door", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as door:
        assert door.stdout is not None
        told = json.loads(door.stdout.readline())
        assert told["doors"] == ["/sweep"]
        with requests.Session() as session:
            refused = session.post(f"{told['url']}/sweep", timeout=20)
            assert refused.status_code == 401
            assert desk.read("h").status == "held"
            session.headers["Authorization"] = f"Bearer {TOKEN}"
            first = session.post(f"{told['url']}/sweep", json={}, timeout=20).json()
            assert (first["claimed"], first["outcomes"], first["error"]) == (1, {"expired": 1}, None)
            before = desk.everything()
            again = session.post(f"{told['url']}/sweep", json={}, timeout=20).json()
            assert again["claimed"] == 0
            assert session.post(f"{told['url']}/sweep", headers={"X": "x" * 300_000}, timeout=20).status_code == 400
        after = desk.everything()
        assert {name for name in after if after[name] != before[name]} <= {"sweeps"}
        door.send_signal(signal.SIGINT)
        _, errors = door.communicate(timeout=20)
    assert door.returncode == 0
    assert "Traceback" not in errors
    assert TOKEN not in errors
