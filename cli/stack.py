"""Commands that run Holdfast itself: migrate, up, demo."""

from typing import Annotated

import typer

from cli.context import PATIENT, database
from cli.output import Json, print_json
from db import schema


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (migrate, up, demo):
        app.command()(command)


def migrate(as_json: Json = False) -> int:
    """Bring the database's schema up to date. Twice at once is safe: one waits."""
    with database(PATIENT) as db, db.transaction() as tx:
        before, after = schema.migrate(tx)
    if as_json:
        print_json({"before": before, "after": after})
    elif after is not None and after > schema.newest():
        print(f"schema {after} is newer than this code; it is left as it is")
    else:
        print(f"schema {after}" + (" already" if before == after else f" (was {before or 'empty'})"))
    return 0


def up(as_json: Json = False) -> int:
    """Keep everything running until Ctrl-C.

    Postgres, Valkey, workers, beat and Flower, with their state under .holdfast/.
    """
    from cli.up import run_up  # noqa: PLC0415 - supervisor is slow to import

    return run_up(as_json=as_json)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's folder afterwards, with its logs.")] = False,
    as_json: Json = False,
) -> int:
    """Show the main job on real services.

    It takes under a minute and leaves nothing running.
    """
    from cli.demo import run_demo  # noqa: PLC0415 - supervisor is slow to import

    return run_demo(keep=keep, as_json=as_json)
