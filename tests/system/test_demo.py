"""The demo, run as its user runs it: everything shown, nothing left behind."""

import json
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from settings import ROOT

pytestmark = pytest.mark.system

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def mentions(folder: str) -> list[str]:
    """Processes that belong to a demo under this folder."""
    commands = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(words) for words in commands if any(folder in word for word in words)]


@pytest.fixture
def scratch() -> str:
    folder = tempfile.mkdtemp(prefix="holdfast-demo-test-", dir="/tmp")
    Path(folder).chmod(0o755)
    return folder


def demo(scratch: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "TMPDIR": scratch, "COLUMNS": "80", "LANG": "C.UTF-8"}
    environment["PYTHONPATH"] = str(ROOT)  # this tree, wherever the script was installed from
    environment |= settings
    return subprocess.run(
        [HOLDFAST, "demo", *options], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_demo_shows_the_main_job_and_leaves_nothing_behind(scratch: str) -> None:
    run = demo(scratch)
    assert run.returncode == 0, run.stderr
    for shown in ("40 taken", "extended by an hour", "Ledger", "duplicate", "stale", "early", "checks passed", "Done."):
        assert shown in run.stdout, shown
    told = " ".join(run.stdout.split())
    assert re.search(r"(\d+) requests, all verified by the package standardwebhooks", told)
    requests, events, again = map(int, re.findall(r"(\d+) (?:requests, all|events;|came again)", told))
    assert requests == events + again
    assert again >= events // 8
    assert float(re.findall(r"Retry-After: 2; it waited (\S+) s", told)[0]) >= 2
    assert re.findall(r"attempt (\d): (\d+)", told) == [("1", "500"), ("2", "500"), ("3", "500"), ("4", "204")]
    assert re.search(r"is a dead letter: .* for 2 attempts, .* replayed by `demo`: 204 on attempt 3", told)
    assert "ada got an email by SMTP: " in told
    assert re.search(r"for ben it is \d\d:\d\d \S+: no SMS, one email \(covered by email\)", told)
    assert "cleo confirmed before it was due: nothing was sent" in told
    assert "its mailbox shows it came; settled by hand, by `demo`" in told
    assert re.search(r"dan's provider lost its answer; asked \d times with one key: one SMS", told)
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert mentions(scratch) == []
    assert list(Path(scratch).iterdir()) == []


def test_as_json_the_demo_prints_one_object_and_nothing_else(scratch: str) -> None:
    run = demo(scratch, "--json")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["outcomes_last_hour"].keys() == {"expired", "duplicate", "stale", "early"}
    assert told["dead_letters"] == {}


def test_a_demo_whose_part_fails_says_which_and_leaves_nothing_running(scratch: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = demo(scratch, HOLDFAST_FLOWER_PORT=str(taken.getsockname()[1]))
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert re.fullmatch(r"holdfast: the demo failed: .*port.*\n", run.stderr), run.stderr
    assert mentions(scratch) == []
