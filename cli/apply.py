"""`holdfast apply`: the door for any other transport. One reference a line in, one outcome a line out.

The contract is kept: docs/transports.md says it in full.
"""

import json
import sys
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cli.context import by_hand, database
from cli.output import Json, print_json
from db import expiry
from db.engine import Database
from domain.errors import BadInput
from domain.paths import Path
from domain.references import parse_reference
from settings import settings

LONGEST_LINE = 4096
"""Bytes of one line, at most; a reference takes less than 400."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("apply")(apply_references)


def apply_references(
    path: Annotated[str | None, typer.Option(help="Act as this path; without it no cohort is checked.")] = None,
    as_json: Json = False,  # noqa: ARG001 - its answers are always JSON lines
) -> int:
    """Apply references from stdin.

    One JSON object a line in, what became of it out; docs/transports.md has the contract. A path is what drives a
    cohort, a fixed hundredth of all holds: sweep, infrai or scanner; rescue is the sweep acting for another.
    """
    if path is not None and path not in set(Path):
        raise BadInput("--path", f"{path!r} is none; use one of {', '.join(Path)}")
    driven_by = None if path is None else Path(path)
    code = 0
    with database() as db:
        for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(LONGEST_LINE + 1), b""), start=1):
            if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                _skip_the_rest_of_the_line()
            if line.strip():
                answer = _apply_line(db, line, number, driven_by)
                print_json(answer)
                code = 1 if "error" in answer else code
    return code


def _skip_the_rest_of_the_line() -> None:
    while (rest := sys.stdin.buffer.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def _apply_line(db: Database, line: bytes, number: int, path: Path | None) -> dict[str, Any]:
    """Outcome or error of one line. An error means: not applied, do not acknowledge unless it is malformed."""
    try:
        reference = parse_reference(_read_json(line))
    except BadInput as problem:
        return {"line": number, "error": str(problem), "malformed": True}
    try:
        with db.transaction() as tx:
            (outcome,) = expiry.expire(tx, [reference], by_hand(path), grace=settings().rescue_grace)
    except (DBAPIError, PoolTimeout) as fault:
        cause = str(getattr(fault, "orig", fault)).strip().partition("\n")[0][:200]
        return {
            "line": number,
            "job_id": reference.job_id,
            "error": f"not applied: {cause}; try again",
            "malformed": False,
        }
    return {"job_id": reference.job_id, "outcome": outcome.value}


def _read_json(line: bytes) -> object:
    if len(line) > LONGEST_LINE:
        raise BadInput("line", f"is longer than {LONGEST_LINE} bytes")
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput("line", "is no JSON object in UTF-8") from None
