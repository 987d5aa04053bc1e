"""Who lives in a state folder, and a `holdfast up` in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cli.local import families
from settings import ROOT

COMMAND = [str(Path(sys.executable).parent / "holdfast"), "up"]


def until(limit: float, condition: Callable[[], object]) -> float:
    """Wait until the condition holds; returns the seconds it took, fails after `limit`."""
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        assert waited < limit, f"not within {limit:g} s"
        time.sleep(0.05)
    return time.monotonic() - begun


def living_in(state: Path) -> list[str]:
    """Every process whose command line, folder or environment lies in this state folder, or that holds a lock there."""
    found = [str(file) for file in families.living(state / "pids")]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            traces = [*process.cmdline(), process.cwd(), process.environ().get("HOLDFAST_HOME", "")]
            if any(str(state) in trace for trace in traces):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


@dataclass
class Up:
    """A `holdfast up` in a process of its own."""

    state: Path
    process: subprocess.Popen[str] = field(init=False)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.process = subprocess.Popen(
            COMMAND, cwd=ROOT, text=True,
            env={**given, "HOLDFAST_HOME": str(self.state), **self.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_until_up(self) -> str:
        """What it says once it is up."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if line.startswith("Ctrl-C stops everything"):
                return said
        raise AssertionError(f"not up: {said}{self.process.communicate()}")

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send it a signal; returns its exit code and what it said on stderr meanwhile."""
        self.process.send_signal(number)
        return self.outcome()

    def outcome(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr, once it has ended."""
        _, complaint = self.process.communicate(timeout=120)
        return self.process.returncode, complaint

    def pid(self, program: str) -> int:
        """The process id of one of its programs."""
        pid = families.pid_in(self.state / "pids" / f"{program}.pid")
        assert pid is not None
        return pid
