"""Processes of an experiment: they get their orders as a line on stdin, and end when that pipe closes.

On stdin, since an address may hold a password and a command line shows it to everybody. And whatever becomes of the
experiment, even by SIGKILL, its end of the pipe closes with it, so no consumer or beat is left behind.
"""

import json
import os
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
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


def end(process: Process) -> str:
    """Kill it if it lives; its last words, in one line."""
    process.kill()
    process.wait()
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    with process.stderr:
        return process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2][:160]


def orders() -> dict[str, Any]:
    """This process's order; from now on it ends with the pipe."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    Thread(target=_end_with_stdin, daemon=True).start()
    return order


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)
