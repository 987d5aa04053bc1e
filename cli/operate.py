"""Commands of the operator: import, sweep, trace, status, reconcile, prune."""

from datetime import timedelta
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.console import Console

from cli import reports
from cli.context import PATIENT, database, worker_name
from cli.holds import Id, ShowContacts
from cli.importing import import_file
from cli.output import Json, print_answer, print_json, say
from db import erasing, pruning, reconcile, trace
from db import status as operating_status
from domain.durations import parse_duration
from domain.errors import BadInput
from domain.holds import Reason, Refused
from domain.identity import hold_id
from domain.instants import parse_instant
from domain.paths import Path
from settings import settings

_LONGEST_AGE = timedelta(days=36_600)
"""About a hundred years: further back the calendar ends."""


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("import")(import_holds)
    app.command("trace")(trace_hold)
    app.command("sweep")(sweep)
    app.command("status")(status)
    app.command("reconcile")(reconcile_all)
    app.command("prune")(prune)


def import_holds(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines, or CSV by its name; - is stdin.")],
    strict: Annotated[bool, typer.Option("--strict", help="Take none if any line is bad.")] = False,
    emit: Annotated[bool, typer.Option("--emit", help="Also make the events of this history.")] = False,
    as_json: Json = False,
) -> int:
    """Take in holds, open or closed, from a file of any size."""
    with database(PATIENT) as db:
        return import_file(db, FilePath(file), strict=strict, emit=emit, as_json=as_json)


def trace_hold(id_: Id, show_contacts: ShowContacts = False, as_json: Json = False) -> int:
    """Tell everything about one hold, in order of time."""
    hold = hold_id(id_)
    with database() as db, db.transaction() as tx:
        found = trace.trace(tx, hold, show_contacts=show_contacts)
    if found is None:
        return print_answer(Refused(Reason.MISSING), hold, as_json=as_json)
    if as_json:
        print_json(found.as_data(show_contacts=show_contacts))
    else:
        reports.print_trace(_console(), found)
    return 0


def sweep(
    path: Annotated[str, typer.Option(help="Whose cohorts to sweep.")] = Path.SWEEP.value,
    here: Annotated[bool, typer.Option("--here", help="Expire in this process; no broker is needed.")] = False,
    as_json: Json = False,
) -> int:
    """Run one sweep now, as a tick of beat would."""
    if path not in set(Path) - {Path.RESCUE}:
        raise BadInput("--path", f"{path!r} drives no cohort; use sweep, infrai or scanner")
    from tasks import logs  # noqa: PLC0415 - Celery is slow to import, and reads the settings meanwhile
    from tasks.app import policy  # noqa: PLC0415 - the same
    from tasks.lane import ExpiryLane, HereAndNow  # noqa: PLC0415 - the same
    from tasks.sweep import sweep as run_sweep  # noqa: PLC0415 - the same

    logs.configure(settings())
    with database() as db:
        lane = HereAndNow(db, policy(), worker_name()) if here else ExpiryLane()
        swept = run_sweep(db, Path(path), policy(), lane, apart=timedelta(0))
    outcomes = lane.tally.as_data() if isinstance(lane, HereAndNow) else None
    if as_json:
        print_json({**swept.as_data(), "outcomes": outcomes})
    elif swept.run is None:
        print("nothing is due")
    else:
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in (outcomes or {}).items())
        what = told or "nothing applied" if here else f"{swept.published:,} references published"
        print(f"run {swept.run}: {swept.claimed:,} holds claimed, {what}")
    if swept.error is not None:
        say(f"{swept.error}; start it, or use --here; what was not published was given back")
        return 1
    return 0


def status(as_json: Json = False) -> int:
    """Show how everything stands. Exit 1 if anything is red."""
    with database(PATIENT) as db, db.transaction() as tx:
        found = operating_status.status(tx, grace=settings().rescue_grace, silence=settings().silence)
    if as_json:
        print_json(found.as_data())
    else:
        reports.print_status(_console(), found)
    return 1 if found.red else 0


def reconcile_all(
    kept: Annotated[
        str | None, typer.Option(metavar="400d", help="Closed holds are kept this long: count receipts exactly.")
    ] = None,
    bounds_since: Annotated[
        str | None, typer.Option(metavar="TIME", help="When the bounds of HOLDFAST_WEBHOOK_* last changed.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Check everything that must always hold, in one snapshot. Exit 1 if anything does not."""
    age = timedelta(0) if kept is None else _age(kept, "--kept")
    since = None if bounds_since is None else parse_instant(bounds_since, "--bounds-since")
    with database(PATIENT) as db, db.transaction() as tx:
        found = reconcile.violations(tx, kept=age, bounds=settings().retry_policy, bounds_since=since)
    if as_json:
        print_json({"checks": list(reconcile.CHECKS), "violations": [violation.as_data() for violation in found]})
    else:
        reports.print_violations(_console(), found, len(reconcile.CHECKS))
    return 1 if found else 0


def prune(
    closed_after: Annotated[
        str | None, typer.Option(metavar="400d", help="Delete holds, but keep what closed within this time.")
    ] = None,
    contacts_after: Annotated[
        str | None, typer.Option(metavar="90d", help="Erase contacts of holds that closed longer ago than this.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Delete holds closed long ago, or erase their contacts.

    Effects, events and reminders of a deleted hold go too; never the ledger or a dead letter. With its contacts a
    hold's texts are erased; that it was reminded, and when, stays. Give one of the two, or both.
    """
    if closed_after is None and contacts_after is None:
        raise BadInput("--closed-after/--contacts-after", "give one of the two, or both")
    holds_age = None if closed_after is None else _age(closed_after, "--closed-after")
    contacts_age = None if contacts_after is None else _age(contacts_after, "--contacts-after")
    with database(PATIENT) as db:
        pruned = pruning.Pruned() if holds_age is None else pruning.prune(db, older_than=holds_age)
        erased = 0 if contacts_age is None else erasing.erase(db, older_than=contacts_age)
    if as_json:
        print_json({**pruned.as_data(), "contacts": erased})
        return 0
    if holds_age is not None:
        print(pruned)
    if contacts_age is not None:
        print(f"contacts erased of closed holds: {erased:,}")
    return 0


def _age(raw: str, option: str) -> timedelta:
    age = parse_duration(raw, option)
    if age > _LONGEST_AGE:
        raise BadInput(option, f"reaches back more than {_LONGEST_AGE.days}d; nothing is as old")
    return age


def _console() -> Console:
    return Console(highlight=False, markup=True)
