"""The command line of everything that runs: the one place where it is written. `compose.yaml` repeats it."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from pathlib import Path

from pydantic import SecretStr

from cli.local.engines import Postgres, Valkey, postgres_user
from cli.local.places import Places
from settings import ROOT, Settings, variable

CELERY = str(Path(sys.executable).parent / "celery")
"""The script, not `python -m celery`: a worker started as a module dies of SIGHUP."""
APP = "tasks.app"

_SPARE = 10
"""Seconds a worker gets beyond its longest task before it is killed."""
ENGINES_PATIENCE = 60
"""Seconds an engine gets to write what it has."""


@dataclass(frozen=True)
class Program:
    """What the supervisor starts and restarts.

    Waits are in seconds: an exit sooner than `settles` after a start counts as a failed start; after `patience` a
    program that was asked to stop is killed. `user` None is the present one. `node` is a worker's name, by which it
    is asked whether it is ready.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    folder: Path = ROOT
    stop_signal: signal.Signals = signal.SIGTERM
    settles: int = 2
    patience: int = 10
    autostart: bool = True
    node: str = ""


@dataclass(frozen=True)
class Lane:
    """A queue and what serves it, so many at once: a slow lane fills nobody else's. Threads: for what waits."""

    queue: str
    at_once: int
    pool: str = "prefork"


BRIDGE = Lane("bridge", 2)
"""One process publishes while the other consumes. It runs only where there is a bridge."""
LANES = (
    Lane("sweeps", 1),
    Lane("expiry", 2),
    Lane("webhooks", 48, "threads"),
    Lane("reminders", 16, "threads"),
    BRIDGE,
)


def _celery(app: str, command: str, *options: str) -> tuple[str, ...]:
    return (CELERY, "-A", app, command, *options)


def node(lane: Lane, prefix: str = "") -> str:
    """A worker's name among all workers; `%h` stands for the host's."""
    return f"{prefix}{lane.queue}@%h"


def worker(lane: Lane, prefix: str = "", app: str = APP) -> tuple[str, ...]:
    """A worker of one lane. Mingle and gossip serve revokes and elections, which nothing here uses."""
    return _celery(
        app, "worker", f"--queues={prefix}{lane.queue}", f"--hostname={node(lane, prefix)}", f"--pool={lane.pool}",
        f"--concurrency={lane.at_once}", "--without-mingle", "--without-gossip", "--loglevel=INFO",
    )  # fmt: skip


def beat(folder: Path, app: str = APP) -> tuple[str, ...]:
    """Beat, its schedule and pid file in a folder that can be thrown away."""
    return _celery(
        app, "beat", f"--schedule={folder / 'schedule'}", f"--pidfile={folder / 'beat.pid'}", "--loglevel=INFO"
    )


def flower(address: str, port: int, database: Path, app: str = APP) -> tuple[str, ...]:
    """Flower, which keeps what it has seen in a file, written every 10 s."""
    return _celery(
        app, "flower", f"--address={address}", f"--port={port}", "--persistent=True", f"--db={database}",
        "--state_save_interval=10000", "--max_tasks=20000", "--purge_offline_workers=300",
    )  # fmt: skip


def flower_login(settings: Settings, folder: Path) -> tuple[str, ...]:
    """The option that makes Flower ask for the login, if there is one; the password stands in a private file."""
    secret = settings.flower_password.get_secret_value()
    if not settings.flower_user or not secret:
        return ()
    file = folder / "login.py"
    file.touch(mode=0o600)
    file.write_text(f"basic_auth = {[f'{settings.flower_user}:{secret}']!r}\n")
    return (f"--conf={file}",)


def local_programs(settings: Settings, places: Places, flower_port: int, app: str = APP) -> tuple[Program, ...]:
    """What the local stack runs beside its engines."""
    patience = ceil(settings.longest_task.total_seconds()) + _SPARE
    prefix = settings.queue_prefix
    workers = [
        Program(f"worker-{lane.queue}", worker(lane, prefix, app), patience=patience, node=node(lane, prefix))
        for lane in LANES
        if lane is not BRIDGE or settings.has_bridge
    ]
    folder = places.state / "flower"
    flower_command = flower("127.0.0.1", flower_port, folder / "tasks.db", app)
    return (
        *workers,
        Program("beat", beat(places.scratch, app)),
        Program("flower", (*flower_command, *flower_login(settings, folder))),
    )


def engine_programs(postgres: Postgres | None, valkey: Valkey | None) -> tuple[Program, ...]:
    """The engines that are ours. Postgres drops its sessions at SIGINT; at SIGTERM it would wait for them to leave."""
    engines = []
    if postgres is not None:
        engines.append(
            Program(
                "postgres", tuple(postgres.command()), user=postgres_user(), folder=Path("/"),
                stop_signal=signal.SIGINT, settles=1, patience=ENGINES_PATIENCE,
            )
        )  # fmt: skip
    if valkey is not None:
        engines.append(
            Program("valkey", tuple(valkey.command()), folder=Path("/"), settles=1, patience=ENGINES_PATIENCE)
        )
    return tuple(engines)


def as_environment(settings: Settings) -> dict[str, str]:
    """What was decided in these settings, as variables: the programs that get them decide alike. Holds passwords."""
    decided = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {variable(name): _as_text(value) for name, value in decided.items() if value is not None}


def _as_text(value: object) -> str:
    match value:
        case timedelta():
            return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + "s"
        case SecretStr():
            return value.get_secret_value()
        case tuple():
            return ",".join(map(_as_text, value))
        case _:
            return str(value)
