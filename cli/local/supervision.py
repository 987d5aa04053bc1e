"""One supervisor: started, waited for, stopped, and never left behind."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from subprocess import DEVNULL
from time import monotonic
from xmlrpc.client import Fault

from cli.local import families
from cli.local.configuration import configuration, on_leash
from cli.local.control import Control
from cli.local.places import Places
from cli.local.programs import Program
from domain.errors import HoldfastError

_LOOK_AGAIN = 0.05
_LIMIT = 30.0
"""Seconds until the supervisor answers."""
_GRACE = 5.0
"""Seconds that what a crash left gets to end by itself."""

Groups = Mapping[str, Sequence[Program]]
"""Programs by group. Groups stop in the opposite order, each as one."""


class NotStarted(HoldfastError):
    """A part of the stack did not come up; the text names the part, the cause and where to look."""


class Supervisor:
    """The supervisor of one state folder. The caller owns the folder's lock."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.control = Control(places.control)
        self._process: subprocess.Popen[bytes] | None = None

    def end_what_a_crash_left(self, patience: float) -> None:
        """End every process of an earlier stack here; an orderly end may be under way, so it gets `patience` seconds.

        Raises:
            NotStarted: one of them cannot be ended.
        """
        left = families.living(self.places.pids)
        supervisor = self.places.pid_file("supervisord")
        if supervisor in left:
            families.end([supervisor], grace=patience)
        alive = families.end(left, grace=_GRACE)
        if alive:
            raise NotStarted(f"a process of an earlier run does not end; its id stands in {alive[0]}")

    def launch(self, groups: Groups, environment: Mapping[str, str]) -> None:
        """Start the supervisor, and wait until it answers. It starts no program by itself."""
        self._write(groups)
        command = (str(Path(sys.executable).parent / "supervisord"), "-c", str(self.places.config))
        program = Program("supervisord", command, folder=self.places.state)
        leashed = on_leash(program, self.places, self.places.lock)
        with self.places.log("supervisord-start").open("wb") as log:
            # in a session of its own: Ctrl-C is for us, and we stop it in order
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                leashed, env=environment, start_new_session=True, stdin=DEVNULL, stdout=log, stderr=log
            )
        self.wait_until("supervisord", _LIMIT, self._answers)

    def take_up(self, groups: Groups, added: str) -> None:
        """Take up one more group while running."""
        self._write(groups)
        self.control.take_up(added)

    def wait_until(self, program: str, limit: float, ask: Callable[[], str], *, own: bool = True) -> None:
        """Wait until `ask` has no complaint any more, `limit` seconds at most.

        Raises:
            NotStarted: it still has one then, the program ended (if it is our `own`), or the supervisor did.
        """
        deadline = monotonic() + limit
        while complaint := ask():
            if own and program in self._given_up():
                self._fail(program, f"ended: {self.places.last_words(program)}")
            if monotonic() > deadline:
                self._fail(program, f"did not answer within {limit:g} s: {complaint}")
            self._pause()

    def wait(self) -> None:
        """Wait as long as the supervisor lives.

        Raises:
            NotStarted: it ended, which it never does by itself.
        """
        assert self._process is not None
        self._fail("supervisord", f"ended with code {self._process.wait()}")

    def stop(self, patience: float) -> None:
        """Stop all programs and the supervisor within `patience` seconds, or else by force; leave nobody behind."""
        if self._process is not None:
            with suppress(OSError, HTTPException, Fault):
                self.control.shut_down()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        families.end(families.living(self.places.pids), grace=_GRACE)

    def _write(self, groups: Groups) -> None:
        self.places.config.touch(mode=0o600)
        self.places.config.write_text(configuration(self.places, groups))

    def _answers(self) -> str:
        try:
            self.control.states()
        except (OSError, HTTPException, Fault) as fault:
            return str(fault)
        return ""

    def _given_up(self) -> set[str]:
        """Programs whose start failed."""
        with suppress(OSError, HTTPException, Fault):
            return {name for name, state in self.control.states().items() if state in {"BACKOFF", "FATAL"}}
        return set()

    def _fail(self, program: str, cause: str) -> None:
        raise NotStarted(f"{program} {cause} (log: {self.places.log(program)})")

    def _pause(self) -> None:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_LOOK_AGAIN)
            self._fail("supervisord", f"ended with code {code}: {self.places.last_words('supervisord-start')}")
