"""Supervisor's configuration, as a text."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cli.local import leash
from cli.local.places import Places
from cli.local.programs import Program

_MAIN = """\
[supervisord]
nodaemon=true
nocleanup=true
silent=true
umask=077
identifier=holdfast
logfile=logs/supervisord.log
logfile_maxbytes=10MB
logfile_backups=3
pidfile=supervisord.pid
{user}
[unix_http_server]
file={socket}
chmod=0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[eventlistener:keeper]
command={keeper}
events=TICK_5
startsecs=0
stdout_logfile=NONE
stderr_logfile=logs/keeper.log
stderr_logfile_maxbytes=1MB
"""

_PROGRAM = """
[program:{name}]
command={command}
autostart=false
autorestart=true
startsecs={settles}
startretries=3
stopsignal={stop_signal}
stopasgroup=false
killasgroup=true
stopwaitsecs={patience}
redirect_stderr=true
stdout_logfile=logs/{name}.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=3
"""

_GROUP = """
[group:{name}]
programs={programs}
priority={priority}
"""


def on_leash(program: Program, places: Places, parent_file: Path) -> list[str]:
    """The command line that starts this program on a leash, for the process whose id stands in `parent_file`."""
    return [
        sys.executable, "-I", "-S", leash.__file__, str(places.pid_file(program.name)), str(parent_file),
        program.stop_signal.name, str(program.folder), program.user or "",
        *(f"{name}={value}" for name, value in program.env.items()), "--", *program.command,
    ]  # fmt: skip


def _line(words: Iterable[str]) -> str:
    """Words as supervisor reads them back: quoted as in a shell, `%` doubled.

    A blank right before `;` or `#` would begin a comment even inside quotes, so the quotes close and open in between.
    """
    quoted = shlex.join(words).replace("%", "%%")
    return re.sub(r"(\s)([;#])", r"\1''\2", quoted)


def _program(program: Program, places: Places) -> str:
    command = on_leash(program, places, places.pid_file("supervisord"))
    return _PROGRAM.format(
        name=program.name, command=_line(command), settles=program.settles, patience=program.patience,
        stop_signal=program.stop_signal.name.removeprefix("SIG"),
    )  # fmt: skip


def configuration(places: Places, groups: Mapping[str, Sequence[Program]]) -> str:
    """Supervisor's configuration file. Groups start in this order and stop in the opposite one, each as one."""
    keeper = [sys.executable, "-I", "-m", "cli.local.keeper", str(places.control), str(places.pids)]
    parts = [
        _MAIN.format(
            user="user=root\n" if os.geteuid() == 0 else "",
            socket=os.path.relpath(places.control, places.state),
            keeper=_line(keeper),
        )
    ]
    for priority, (name, programs) in enumerate(groups.items(), start=1):
        parts += [_program(program, places) for program in programs]
        parts += [_GROUP.format(name=name, programs=",".join(p.name for p in programs), priority=priority)]
    return "".join(parts)
