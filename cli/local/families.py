"""Processes of a state folder, known by the files they hold locked: which live, and how to end them.

A family is a program and all it has forked. See `leash` for how its file comes about.
"""

import fcntl
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic

_LOOK_AGAIN = 0.05


def is_alive(pid_file: Path) -> bool:
    """Whether any process of the family lives."""
    try:
        with pid_file.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def living(folder: Path) -> list[Path]:
    """The files of the families that live."""
    return [file for file in sorted(folder.glob("*.pid")) if is_alive(file)]


def pid_in(pid_file: Path) -> int | None:
    """The process id that stands in the file, alive or not; None where there is none."""
    try:
        return int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return None


def wait_for_end(files: Iterable[Path], limit: float) -> list[Path]:
    """Wait until none of these families lives, `limit` seconds at most; returns those that still do."""
    deadline = monotonic() + limit
    left = [file for file in files if is_alive(file)]
    while left and monotonic() < deadline:
        Event().wait(_LOOK_AGAIN)
        left = [file for file in left if is_alive(file)]
    return left


def _signal(files: Iterable[Path], number: signal.Signals) -> None:
    """Send a signal to each family's process group."""
    for pid in filter(None, map(pid_in, files)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def end(files: Iterable[Path], *, grace: float) -> list[Path]:
    """Ask these families to end, and after `grace` seconds make them; returns those that live even then."""
    alive = [file for file in files if is_alive(file)]
    _signal(alive, signal.SIGTERM)
    stubborn = wait_for_end(alive, grace)
    _signal(stubborn, signal.SIGKILL)
    return wait_for_end(stubborn, 10)
