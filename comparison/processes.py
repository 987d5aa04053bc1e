"""Processes of an experiment: they get their orders as a line on stdin, and end when that pipe closes.

On stdin, since an address may hold a password and a command line shows it to everybody. And whatever becomes of the
experiment, even by SIGKILL, its end of the pipe closes with it, so no consumer or beat is left behind.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from threading import Thread
from typing import Any

from settings import ROOT

Process = subprocess.Popen[bytes]


def start(module: str, order: Mapping[str, Any]) -> Process:
    """Run one of our modules with this order; keep its stdin open as long as it is to live."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


def is_ready(process: Process, limit: float) -> bool:
    """Wait so many seconds, at most, until it says that its work begins: a busy machine is slow to start anything."""
    assert process.stdout is not None
    told, _, _ = select.select([process.stdout], [], [], limit)
    return bool(told and process.stdout.readline())


def end(process: Process) -> str:
    """Kill it if it lives; its last words, in one line."""
    process.kill()
    process.wait()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    process.stdout.close()
    with process.stderr:
        return process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2][:160]


def orders() -> dict[str, Any]:
    """This process's order; from now on it ends with the pipe."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    Thread(target=_end_with_stdin, daemon=True).start()
    return order


def say_ready() -> None:
    """From now on this process does its work. Whatever else is printed here goes nowhere."""
    os.write(1, b"ready\n")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)
