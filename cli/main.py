"""`holdfast`: the entry point, and what every error looks like: one line with its cause and its cure."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cli import (
    apply,
    bridge,
    cohorts,
    compare,
    dead_letters,
    deliveries,
    endpoints,
    holds,
    infrai_server,
    operate,
    reminders,
    stack,
    sweep_door,
)
from cli.output import say
from cli.usage import misused, plainly, show_version
from db import faults
from domain.errors import BadInput, HoldfastError
from settings import settings

app = typer.Typer(
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for commands in (stack, holds, apply, operate, infrai_server, sweep_door):
    commands.register(app)
app.add_typer(endpoints.app, name="endpoints")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(reminders.app, name="reminders")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(cohorts.app, name="cohorts")
app.add_typer(bridge.app, name="bridge")
app.add_typer(compare.app, name="compare")
plainly(app)


@app.callback(help="Reservation holds that expire exactly once.")
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""


_STATES = {
    "42P01": "the database has no schema yet; run `holdfast migrate`",
    "42703": "the database's schema is older than this code; run `holdfast migrate`",
    "55P03": "the row is locked by another transaction; try again",
    "40P01": "another transaction was in the way; try again",
    "57014": "the database took too long; try again",
    "42501": "the database user may not do this; grant it the tables of its schema",
    "53100": "the database's disk is full; make room and try again",
    "25006": "the database is read-only; set HOLDFAST_DATABASE_URL to one that takes changes",
}

_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code: 0 done, 1 refused or failed, 2 not understood, 130 interrupted.

    Every error becomes one line on stderr.
    """
    try:
        code = _carry_out(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return 1
    except Exception as problem:  # noqa: BLE001 - never a traceback; a defect is named as one
        say(_explained(problem))
        return _code(problem)
    if code == _INTERRUPTED:
        say("interrupted")
    return code


def _carry_out(arguments: Sequence[str]) -> int:
    code = app(list(arguments) or ["--help"], prog_name="holdfast", standalone_mode=False)
    print(end="", flush=True)  # what cannot be written is told here, not at the interpreter's end
    return int(code or 0)


def _code(problem: Exception) -> int:
    if isinstance(problem, typer.TyperException):
        return problem.exit_code
    return 2 if isinstance(problem, BadInput) else 1


def _explained(problem: Exception) -> str:
    """An error in one line."""
    match problem:
        case typer.TyperException():
            return misused(problem)
        case HoldfastError():
            return str(problem)
        case DBAPIError():
            return _database_fault(problem)
        case PoolTimeout():
            return "the database has no connection left for this process; try again"
        case OSError():
            return _unusable(problem)
        case _:
            return f"this is a defect of holdfast: {type(problem).__name__} at {_place_of(problem)}; please report it"


def _unusable(problem: OSError) -> str:
    if problem.filename is not None:
        return f"{problem.filename}: {problem.strerror}; make it usable and try again"
    _forget_stdout()
    return f"the answer cannot be written ({problem.strerror}); see where standard output goes"


def _place_of(problem: Exception) -> str:
    """File and line, and no text: an unforeseen error may hold anything."""
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _forget_stdout() -> None:
    """Nobody takes what is still to be written: without this, the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _database_fault(problem: DBAPIError) -> str:
    state = faults.sqlstate(problem)
    if state in _STATES:
        return _STATES[state]
    if problem.connection_invalidated or state is None or state[:2] in {"08", "57", "3D", "28"}:
        cure = (
            "start the local stack with `make up`, or set HOLDFAST_DATABASE_URL"
            if settings().database_url is None
            else "see that the server of HOLDFAST_DATABASE_URL runs and has this database and user"
        )
        return f"the database cannot be reached; {cure} ({faults.cause(problem)})"
    return f"the database refused: {faults.cause(problem)} (SQLSTATE {state})"


def main() -> None:
    """The `holdfast` command."""
    sys.exit(run(sys.argv[1:]))
