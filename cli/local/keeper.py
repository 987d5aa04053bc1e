"""Supervisor's listener: gives no program up, and lets none outlive the supervisor.

    python -m cli.local.keeper SUPERVISOR_SOCKET PID_FOLDER

Supervisor waits one second longer after each quick exit and gives a program up in the end (`FATAL`). A broker may be
away for longer than that, so every five seconds this starts again what was given up: the wait before a restart
is bounded, the number of restarts is not.
"""

import sys
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from xmlrpc.client import Fault

from supervisor.childutils import listener

from cli.local import families
from cli.local.control import Control

_GRACE = 5.0
"""Seconds that programs without a supervisor get to end by themselves; each was sent its signal when it died."""


def revive(control: Control) -> None:
    """Start every program that was given up."""
    for program, state in control.states().items():
        if state == "FATAL":
            with suppress(Fault):
                control.start(program)


def main(socket: str, pids: str) -> None:
    """Serve events until the supervisor is gone; then end what it left."""
    control = Control(Path(socket))
    while True:
        listener.ready(sys.stdout)
        header = sys.stdin.readline()
        if not header:
            break
        sys.stdin.read(int(header.rsplit("len:", 1)[1]))
        with suppress(Fault, OSError, HTTPException):
            revive(control)
        listener.ok(sys.stdout)
    families.end(families.living(Path(pids)), grace=_GRACE)


if __name__ == "__main__":
    main(*sys.argv[1:])
