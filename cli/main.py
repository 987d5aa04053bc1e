"""`holdfast`: the entry point, and what every error looks like: one line with its cause and its cure."""

import sys
from collections.abc import Sequence

import typer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cli import apply, dead_letters, holds, operate, stack
from cli.output import say
from domain.errors import BadInput, HoldfastError

app = typer.Typer(
    help="Reservation holds that expire exactly once.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for commands in (stack, holds, apply, operate):
    commands.register(app)
app.add_typer(dead_letters.app, name="dead-letters")

_STATES = {
    "42P01": "the database has no schema yet; run `holdfast migrate`",
    "42703": "the database's schema is older than this code; run `holdfast migrate`",
    "55P03": "the row is locked by another transaction; try again",
    "57014": "the database took too long; try again",
    "42501": "the database user may not do this; grant it the tables of its schema",
    "53100": "the database's disk is full; make room and try again",
}


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code: 0 done, 1 refused or failed, 2 not understood."""
    try:
        return int(app(list(arguments) or ["--help"], prog_name="holdfast", standalone_mode=False) or 0)
    except typer.TyperException as problem:
        say(f"{' '.join(problem.format_message().split())} See `holdfast --help`.")
        return problem.exit_code
    except BadInput as problem:
        say(str(problem))
        return 2
    except HoldfastError as problem:
        say(str(problem))
    except DBAPIError as problem:
        say(_database_fault(problem))
    except PoolTimeout:
        say("the database has no connection left for this process; try again")
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 1


def _database_fault(problem: DBAPIError) -> str:
    state = getattr(problem.orig, "sqlstate", None)
    if state in _STATES:
        return _STATES[state]
    if problem.connection_invalidated or state is None or state[:2] in {"08", "57", "3D", "28"}:
        return (
            "the database cannot be reached; start the local stack with `make up`, or set HOLDFAST_DATABASE_URL "
            f"({_first_line(problem)})"
        )
    return f"the database refused: {_first_line(problem)} (SQLSTATE {state})"


def _first_line(problem: DBAPIError) -> str:
    return str(problem.orig).strip().partition("\n")[0][:200]


def main() -> None:
    """The `holdfast` command."""
    sys.exit(run(sys.argv[1:]))
