"""Commands about dead letters: list, show, replay, discard."""

import json
from typing import Annotated

import typer
from rich.table import Table
from sqlalchemy.exc import DBAPIError

from cli.context import by_hand, database
from cli.output import Json, print_fields, print_json, table_console
from cli.refusals import NotDone, refusals
from cli.reminders import refuse
from db import dead_letters, expiry, faults, reminder_desk, reminding, replays
from db.dead_letters import DeadLetter
from db.engine import Database, Tx
from db.replays import Replay
from domain.endpoints import EndpointId
from domain.identity import EventId
from domain.instants import rfc3339
from domain.outcomes import Outcome
from domain.references import Reference, parse_reference
from domain.text import clean_label
from settings import settings

DELIVERY = "delivery"
"""The kind of a dead letter that stands for a delivery which is not tried any more."""

app = typer.Typer(
    help="Commands that could not be applied, deliveries tried no more, reminders without a text.",
    rich_markup_mode=None,
)

Number = Annotated[
    int, typer.Argument(metavar="NUMBER", min=1, max=2**63 - 1, help="The dead letter's number.", show_default=False)
]
Operator = Annotated[str, typer.Option(help="Who does this; it is kept.", show_default=False)]


@app.command("list")
def list_dead_letters(
    all_: Annotated[bool, typer.Option("--all", help="Also those that were dealt with.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List dead letters, the newest first."""
    with database() as db, db.transaction() as tx:
        found = dead_letters.listing(tx, replayed=all_, limit=limit)
    if as_json:
        for letter in found:
            print_json(_as_data(letter))
        return 0
    table = Table("number", "kind", "hold", "attempts", "since", "dealt with", "error", box=None, pad_edge=False)
    for letter in found:
        since = f"{letter.created_at:%Y-%m-%d %H:%M}"
        told = "" if letter.outcome is None else f"{letter.outcome} by {letter.replayed_by}"
        table.add_row(str(letter.id), letter.kind, letter.hold_id, str(letter.attempts), since, told, _told(letter))
    table_console().print(table if found else "no dead letters")
    return 0


@app.command()
def show(number: Number, as_json: Json = False) -> int:
    """Show one dead letter whole."""
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        letter = _known(dead_letters.get(tx, number), number)
    if as_json:
        print_json(_as_data(letter))
    else:
        print_fields({**_as_data(letter), "reference": json.dumps(letter.reference)}, indent="")
    return 0


@app.command()
def replay(number: Number, operator: Operator, as_json: Json = False) -> int:
    """Apply a dead letter's reference again, or let its delivery or reminder be sent again.

    Twice at once: the second waits, then finds it done.
    """
    who = clean_label("operator", operator)
    with refusals(as_json=as_json), database() as db:
        outcome = _replay(db, number, who)
    _print_outcome(number, outcome, as_json=as_json)
    return 0


@app.command()
def discard(number: Number, operator: Operator, as_json: Json = False) -> int:
    """Close a dead letter without applying it.

    A hold that was set aside with it goes back to the sweep; a delivery is cancelled.
    """
    who = clean_label("operator", operator)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        _discard(tx, number, who)
    _print_outcome(number, dead_letters.DISCARDED, as_json=as_json)
    return 0


def _print_outcome(number: int, outcome: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"dead_letter": number, "outcome": outcome})
    else:
        print(f"dead letter {number}: {outcome}")


def _discard(tx: Tx, number: int, operator: str) -> None:
    """Close it. A delivery is locked before its letter, as everywhere; one that is gone or alive leaves the letter."""
    letter = _open(dead_letters.get(tx, number), number)
    if letter.kind == DELIVERY and replays.give_up(tx, *_delivery(letter), operator=operator):
        return
    dead_letters.settle(tx, _open(dead_letters.get(tx, number, lock=True), number), dead_letters.DISCARDED, operator)


def _replay(db: Database, number: int, operator: str) -> str:
    with db.transaction() as tx:
        letter = _open(dead_letters.get(tx, number), number)
        if letter.kind == DELIVERY:
            return _revive(tx, letter, operator)
        if letter.kind == reminding.LETTER:
            return _remind(tx, letter, operator)
    return _expire(db, number, operator).value


def _revive(tx: Tx, letter: DeadLetter, operator: str) -> str:
    """Let the lane send the delivery again; the replay closes the letter. Two at once: one finds it waiting."""
    if replays.replay(tx, *_delivery(letter), operator=operator) is Replay.WAITING:
        raise NotDone("settled", f"dead letter {letter.id} was dealt with meanwhile: its delivery waits to be sent")
    return replays.REPLAYED


def _remind(tx: Tx, letter: DeadLetter, operator: str) -> str:
    """Let the lane make the reminder's text again and send it; that closes the letter."""
    key = str(letter.reference["reminder"])
    refuse(reminder_desk.resend(tx, key, operator), key, reminder_desk.get(tx, key))
    return replays.REPLAYED


def _delivery(letter: DeadLetter) -> tuple[EventId, EndpointId]:
    return EventId(letter.reference["event_id"]), EndpointId(letter.reference["endpoint_id"])


def _expire(db: Database, number: int, operator: str) -> Outcome:
    """Expire and settle in one transaction: dies before commit, and nothing was replayed."""
    try:
        with db.transaction() as tx:
            letter = _open(dead_letters.get(tx, number, lock=True), number)
            (outcome,) = expiry.expire(tx, [_reference(letter)], by_hand(), grace=settings().rescue_grace)
            dead_letters.settle(tx, letter, outcome.value, operator)
            return outcome
    except DBAPIError as error:
        if not faults.lies_in_the_data(faults.sqlstate(error)):
            raise
        cause = faults.cause(error)
    with db.transaction() as tx:
        dead_letters.still_failing(tx, number, cause)
    raise NotDone("failing", f"dead letter {number} still cannot be applied ({cause}); mend the data, then replay it")


def _reference(letter: DeadLetter) -> Reference:
    if letter.kind == "malformed":
        cause = f"dead letter {letter.id} cannot be read ({letter.error})"
        raise NotDone("malformed", f"{cause}; mend its sender, then discard it")
    return parse_reference(letter.reference)


def _known(letter: DeadLetter | None, number: int) -> DeadLetter:
    if letter is None:
        raise NotDone("missing", f"there is no dead letter {number}; see `holdfast dead-letters list --all`")
    return letter


def _open(letter: DeadLetter | None, number: int) -> DeadLetter:
    known = _known(letter, number)
    if known.replayed_at is not None:
        raise NotDone("settled", f"dead letter {number} was dealt with by {known.replayed_by}: {known.outcome}")
    return known


def _told(letter: DeadLetter) -> str:
    """The error; of a delivery also which one it is."""
    if letter.kind != DELIVERY:
        return letter.error
    event, endpoint = _delivery(letter)
    return f"{letter.error}: {event} for {endpoint}"


def _as_data(letter: DeadLetter) -> dict[str, object]:
    return {
        "number": letter.id,
        "kind": letter.kind,
        "hold": letter.hold_id,
        "reference": letter.reference,
        "error": letter.error,
        "attempts": letter.attempts,
        "run": letter.sweep_run,
        "since": rfc3339(letter.created_at),
        "dealt_with_at": None if letter.replayed_at is None else rfc3339(letter.replayed_at),
        "dealt_with_by": letter.replayed_by,
        "outcome": letter.outcome,
    }
