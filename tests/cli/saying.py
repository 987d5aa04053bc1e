"""What a command said, and the real script in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from settings import ROOT

PASSWORD = "swordfish-of-the-database"
"""Stands in every address of a database here, and in no answer."""
BROKER_PASSWORD = "swordfish-of-the-broker"

SCRIPT = Path(sys.executable).parent / "holdfast"

EVERY_COMMAND: list[tuple[str, ...]] = [
    ("place", "h", "--resource", "seat", "--customer", "acme", "--for", "1h"),
    ("extend", "h", "--version", "1", "--for", "1h"),
    ("confirm", "h", "--version", "1"),
    ("cancel", "h", "--version", "1", "--reason", "rain"),
    ("show", "h"),
    ("list",),
    ("trace", "h"),
    ("sweep", "--here"),
    ("status",),
    ("reconcile",),
    ("prune", "--closed-after", "1d"),
    ("import", "-"),
    ("migrate",),
    ("endpoints", "list"),
    ("endpoints", "show", "ep"),
    ("endpoints", "edit", "ep", "--rate", "5"),
    ("endpoints", "revoke", "ep", "key"),
    ("endpoints", "pause", "ep"),
    ("endpoints", "resume", "ep"),
    ("endpoints", "disable", "ep", "--reason", "rain"),
    ("endpoints", "enable", "ep"),
    ("endpoints", "delete", "ep"),
    ("endpoints", "test", "ep"),
    ("deliveries", "list"),
    ("deliveries", "show", "event", "ep"),
    ("deliveries", "replay", "event", "--operator", "ada"),
    ("reminders", "list"),
    ("reminders", "show", "hold-reminder:h:email:1796076972:3600"),
    ("reminders", "resend", "hold-reminder:h:email:1796076972:3600", "--operator", "ada"),
    ("reminders", "leave", "hold-reminder:h:email:1796076972:3600", "--operator", "ada"),
    ("cohorts", "show"),
    ("cohorts", "route", "7", "scanner"),
    ("cohorts", "compare", "7"),
    ("bridge", "pause", "--operator", "ada"),
    ("bridge", "resume"),
    ("dead-letters", "list"),
    ("dead-letters", "show", "1"),
    ("dead-letters", "replay", "1", "--operator", "ada"),
    ("dead-letters", "discard", "1", "--operator", "ada"),
]
"""Every command that needs the database first: `apply` answers line by line, and what makes keys wants a vault key."""

GROUPS = {"endpoints", "deliveries", "reminders", "dead-letters", "cohorts", "bridge"}
"""Words that are no command by themselves."""


def name_of(command: tuple[str, ...]) -> str:
    return " ".join(command[: 2 if command[0] in GROUPS else 1])


class Said(NamedTuple):
    """A command's exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON value on stdout."""
        (data,) = self.lines
        return data

    @property
    def lines(self) -> list[Any]:
        """The JSON values on stdout, one a line and nothing else there."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The one line on stderr, without the command's name."""
        (line,) = self.err.splitlines()
        assert line.startswith("holdfast: ")
        return line.removeprefix("holdfast: ")


def checked(code: int, out: str, err: str) -> Said:
    """What was said, if it gives no secret away and shows no traceback."""
    for secret in (PASSWORD, BROKER_PASSWORD, "Traceback"):
        assert secret not in out + err
    return Said(code, out, err)


class Script:
    """The installed `holdfast`, with the environment that a shell would give it."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    def start(self, *arguments: str | bytes, **environment: str) -> subprocess.Popen[bytes]:
        """The script, running; its three streams are pipes."""
        given = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return subprocess.Popen(
            [SCRIPT, *arguments], cwd=ROOT, bufsize=0,
            env={**given, "COLUMNS": "80", "HOLDFAST_DATABASE_URL": self._database_url, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=_hears_interrupts,  # noqa: PLW1509 - it calls nothing that takes a lock
        )  # fmt: skip

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", **environment: str) -> Said:
        """What it said in the end."""
        with self.start(*arguments, **environment) as process:
            out, err = process.communicate(stdin, timeout=60)
        return checked(process.returncode, out.decode(), err.decode())


def _hears_interrupts() -> None:
    """As from a terminal, also where the suite itself runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
