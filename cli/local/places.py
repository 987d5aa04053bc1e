"""A stack's folder: what is kept where, and who owns it."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from cli.local import families
from domain.errors import HoldfastError


class AlreadyRunning(HoldfastError):
    """Another process keeps a stack in this folder."""

    def __init__(self, state: Path, pid: int | None) -> None:
        super().__init__(state, pid)
        self.state = state
        self.pid = pid

    def __str__(self) -> str:
        known = f"process {self.pid}" if self.pid else "another process"
        return f"Holdfast is already running in {self.state} ({known}); stop that one, or set HOLDFAST_HOME"


@dataclass(frozen=True)
class Places:
    """Where a stack keeps what. Supervisor runs in `state`, so its own file names are relative to that."""

    state: Path
    sockets: Path

    @property
    def lock(self) -> Path:
        """Held locked by the process that owns the stack; its id stands in it."""
        return self.state / "lock"

    @property
    def logs(self) -> Path:
        """The folder of logs, one a program."""
        return self.state / "logs"

    @property
    def pids(self) -> Path:
        """The folder of the families' locked files."""
        return self.state / "pids"

    @property
    def config(self) -> Path:
        """Supervisor's configuration."""
        return self.state / "supervisord.conf"

    @property
    def control(self) -> Path:
        """Supervisor's socket."""
        return self.sockets / "supervisor.sock"

    @property
    def scratch(self) -> Path:
        """Beat's schedule and pid file: thrown away at each start, since a clock set back would silence beat."""
        return self.state / "beat"

    def log(self, program: str) -> Path:
        """One program's log."""
        return self.logs / f"{program}.log"

    def last_words(self, program: str) -> str:
        """The last line of a program's log, for a message to a person."""
        try:
            lines = self.log(program).read_text(errors="replace").split("\n")
        except OSError:
            return "it wrote nothing"
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it wrote nothing")

    def pid_file(self, program: str) -> Path:
        """The file one program's family holds locked."""
        return self.pids / f"{program}.pid"

    def take(self) -> int:
        """Make the folder this process's own until the returned descriptor is closed; it dies with the process.

        Raises:
            AlreadyRunning: another process has it; nothing was changed.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        held = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise AlreadyRunning(self.state, families.pid_in(self.lock)) from None
        os.ftruncate(held, 0)
        os.write(held, b"%d\n" % os.getpid())
        return held
