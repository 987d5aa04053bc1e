"""The local stack: engines, workers, beat and Flower under one supervisor, in a folder of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.local import answers, families
from cli.local.configuration import on_leash
from cli.local.engines import Postgres, Valkey, own_folder
from cli.local.places import Places
from cli.local.programs import APP, ENGINES_PATIENCE, Program, as_environment, engine_programs, local_programs
from cli.local.supervision import NotStarted, Supervisor
from cli.local.vault_key import own_vault_key
from db import schema
from db.engine import Database
from settings import Settings

_OWN_LIMIT = 120.0
"""Seconds a part of the stack may take to answer: after a power loss Postgres first reads its logs, and on a busy
machine each worker takes long to read its modules."""


class Stack:
    """One stack in one state folder. As a context it is started and answers inside, and is gone afterwards.

    An engine whose address is in `settings` is the user's own: it is neither started nor stopped. The thread that
    starts a stack must live as long as the stack: on Linux everything ends when that thread does, even by SIGKILL.

    `programs` None is what `holdfast up` runs; `environment` is added to what every program gets; `postgres_options`
    are server settings; `app` is the Celery app.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        programs: Sequence[Program] | None = None,
        environment: Mapping[str, str] | None = None,
        postgres_options: Mapping[str, str] | None = None,
        app: str = APP,
    ) -> None:
        self.settings = settings
        self.places = Places(settings.state, settings.sockets)
        self.app = app
        self.flower_port: int | None = None
        self._given = programs
        self._programs: list[Program] = []
        self._added: list[Program] = []
        self._environment = dict(environment or {})
        postgres = Postgres(self.places.state / "postgres", self.places.sockets, dict(postgres_options or {}))
        valkey = Valkey(self.places.state / "valkey", self.places.sockets / "valkey.sock")
        self.postgres = postgres if settings.database_url is None else None
        self.valkey = valkey if settings.broker_url is None else None
        self.database_url = postgres.url if self.postgres else settings.database
        self.broker_url = valkey.url if self.valkey else settings.broker
        self.vault_keys = settings.vault_keys.get_secret_value()
        """What opens endpoint secrets; once started, the stack's own key if none was given and the database is ours."""
        self._supervisor = Supervisor(self.places)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.start()
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.ready()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the engines, bring the schema up to date, start the rest. `ready` waits until it answers.

        Raises:
            AlreadyRunning: another process has a stack in this folder; nothing was changed.
            HoldfastError: a part did not come up; the text names cause and cure, and nothing is left running.
        """
        self._lock = self.places.take()
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._prepare()
            self._supervisor.launch(self._groups(), self.environment)
            self._start_engines()
            self._migrate()
            for program in self._programs:
                if program.autostart:
                    self.start_program(program.name)
            undo.pop_all()

    def ready(self) -> None:
        """Wait until every worker answers through the broker and Flower through its port.

        Raises:
            NotStarted: a program's start failed, or it does not answer in time.
        """
        workers = [program for program in self._programs if program.autostart and program.node]
        ask = (sys.executable, "-m", "cli.local.ping", self.app, *(worker.node for worker in workers))
        leashed = on_leash(Program("ping", ask), self.places, self.places.lock)
        with self.log("ping").open("wb") as log:
            ping = subprocess.Popen(leashed, env=self.environment, stdout=log, stderr=log)  # noqa: S603 - our own command
        try:
            for worker in workers:
                self._supervisor.wait_until(
                    worker.name, _OWN_LIMIT, lambda: "" if ping.poll() == 0 else "not every worker answers"
                )
        finally:
            ping.kill()
            ping.wait()
        if (port := self.flower_port) is not None:
            self._supervisor.wait_until("flower", _OWN_LIMIT, lambda: answers.port(port))

    def wait(self) -> None:
        """Wait as long as the stack runs.

        Raises:
            NotStarted: the supervisor ended, which it never does by itself.
        """
        self._supervisor.wait()

    def stop(self) -> None:
        """Stop everything in order, work first, engines last. Does nothing where nothing was started."""
        if self._lock is not None:
            self._supervisor.stop(self._patience)
            os.close(self._lock)
            self._lock = None

    # -- one program --------------------------------------------------------------------------------------------------

    def log(self, program: str) -> Path:
        """A program's log."""
        return self.places.log(program)

    def pid(self, program: str) -> int | None:
        """A program's process id; None while it does not run."""
        return self._supervisor.control.pid(program)

    def is_running(self, program: str) -> bool:
        """Whether a program runs, or is being started."""
        return self.pid(program) is not None

    def kill(self, program: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a program a signal; SIGKILL takes its children along. The supervisor starts it again if it ends."""
        pid = self.pid(program)
        if pid is None:
            raise NotStarted(f"{program} does not run (log: {self.log(program)})")
        with suppress(ProcessLookupError):
            (os.killpg if number == signal.SIGKILL else os.kill)(pid, number)

    def start_program(self, program: str) -> None:
        """Start a program that was stopped, or was not to start by itself."""
        self._supervisor.control.start(program)

    def stop_program(self, program: str) -> None:
        """Stop a program, and keep it stopped; returns when it and all its children have ended."""
        self._supervisor.control.stop(program)
        families.end([self.places.pid_file(program)], grace=1)

    def restart(self, program: str) -> None:
        """Stop a program and start it again."""
        self.stop_program(program)
        self.start_program(program)

    def add(self, program: Program) -> None:
        """Take up one more program in the running stack, and start it if it is to start by itself."""
        self._added.append(program)
        self._supervisor.take_up(self._groups(), program.name)
        if program.autostart:
            self.start_program(program.name)

    # -- the steps of a start -----------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """What every program of the stack gets. Holds passwords and the vault keys."""
        return {
            **os.environ,  # noqa: TID251 - children get what we got, and where the stack is
            **as_environment(self.settings),
            "HOLDFAST_HOME": str(self.places.state),
            "HOLDFAST_DATABASE_URL": self.database_url,
            "HOLDFAST_BROKER_URL": self.broker_url,
            "HOLDFAST_VAULT_KEYS": self.vault_keys,
            **self._environment,
        }

    @property
    def _patience(self) -> float:
        """Seconds an orderly stop may take: the slowest program of each group, one group after the other."""
        programs = [*self._programs, *self._added]
        return 10 + ENGINES_PATIENCE + max((program.patience for program in programs), default=0)

    def _groups(self) -> dict[str, tuple[Program, ...]]:
        groups = {"engines": engine_programs(self.postgres, self.valkey), "work": tuple(self._programs)}
        groups |= {program.name: (program,) for program in self._added}
        return {name: programs for name, programs in groups.items() if programs}

    def _ask_servers_of_others(self) -> None:
        """Fail before anything is started where a server that is not ours does not answer."""
        asked = {
            "HOLDFAST_DATABASE_URL": "" if self.postgres else answers.postgres(self.database_url),
            "HOLDFAST_BROKER_URL": "" if self.valkey else answers.broker(self.broker_url),
        }
        for variable, complaint in asked.items():
            if complaint:
                raise NotStarted(
                    f"the server of {variable} does not answer ({complaint}); start it, or unset the variable"
                )

    def _prepare(self) -> None:
        places = self.places
        self._ask_servers_of_others()
        self._supervisor.end_what_a_crash_left(self._patience)
        shutil.rmtree(places.scratch, ignore_errors=True)
        for folder in (places.logs, places.pids, places.scratch, places.state / "flower"):
            folder.mkdir(exist_ok=True)
        own_folder(places.sockets)
        if self.postgres and not self.vault_keys:
            self.vault_keys = own_vault_key(self.settings.vault_file)
        places.control.unlink(missing_ok=True)
        for engine in (self.postgres, self.valkey):
            if engine is not None:
                engine.prepare()
                engine.forget_last_run()
        self._programs = list(self._given or ())
        if self._given is None:
            self.flower_port = answers.free_port(self.settings.flower_port)
            self._programs += local_programs(self.settings, places, self.flower_port, self.app)

    def _start_engines(self) -> None:
        ours = engine_programs(self.postgres, self.valkey)
        for engine in ours:
            self.start_program(engine.name)
        if self.postgres:
            self._supervisor.wait_until("postgres", _OWN_LIMIT, lambda: answers.postgres(self.database_url))
        if self.valkey:
            self._supervisor.wait_until("valkey", _OWN_LIMIT, lambda: answers.broker(self.broker_url))

    def _migrate(self) -> None:
        database = Database(self.database_url, statement_timeout=None)
        with database.transaction() as tx:
            schema.migrate(tx)
        database.close()
