"""Commands about reminders: list, show, resend, leave."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table

from cli.context import PATIENT, database
from cli.output import Json, print_fields, print_json, say, table_console
from cli.refusals import NotDone, refusals
from db import reminder_desk
from db.engine import Tx
from db.reminder_desk import Attempt, Decided, Reminder, Selection
from domain.contacts import mask_email, mask_phone
from domain.durations import format_duration
from domain.errors import BadInput
from domain.identity import hold_id
from domain.instants import rfc3339
from domain.reminding import Channel
from domain.text import clean_label

app = typer.Typer(help="What customers are told before their hold lapses.", rich_markup_mode=None)

_STATES = ("scheduled", "claimed", "sent", "suppressed", "cancelled", "failed", "unknown")
_KEY = re.compile(r"hold-reminder:[A-Za-z0-9_-]{1,64}:(email|sms):\d{1,12}:\d{1,9}", re.ASCII)

Key = Annotated[str, typer.Argument(metavar="REMINDER", help="The reminder's key.", show_default=False)]
Operator = Annotated[str, typer.Option(help="Who does this; it is kept.", show_default=False)]
ShowContacts = Annotated[bool, typer.Option("--show-contacts", help="Show addresses and texts whole.")]


@app.command("list")
def list_reminders(
    hold: Annotated[str | None, typer.Option("--hold", help="Only of this hold.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only email or sms.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only {', '.join(_STATES[:-1])} or {_STATES[-1]} ones.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that wait for an operator.")] = False,
    after: Annotated[str | None, typer.Option(metavar="REMINDER", help="Go on after this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List reminders in the order of their keys."""
    chosen = Selection(
        hold=None if hold is None else hold_id(hold, "--hold"),
        channel=_one_of(channel, "--channel", tuple(Channel)),
        state=_one_of(state, "--state", _STATES),
        waiting=waiting,
    )
    start = "" if after is None else _key(after)
    with database(PATIENT) as db, db.transaction() as tx:
        found = reminder_desk.listing(tx, chosen, after=start, limit=limit)
    if as_json:
        for reminder in found:
            print_json(as_data(reminder, show_contacts=False))
    else:
        _print_table(found)
    if len(found) == limit:
        say(f"there may be more: --after {found[-1].key}")
    return 0


@app.command()
def show(reminder: Key, show_contacts: ShowContacts = False, as_json: Json = False) -> int:
    """Show one reminder with every attempt at it."""
    key = _key(reminder)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        found = _known(reminder_desk.get(tx, key), key)
        attempts = [attempt_as_data(attempt) for attempt in reminder_desk.attempts_of(tx, key)]
    told = as_data(found, show_contacts=show_contacts)
    if as_json:
        print_json({**told, "requests": attempts})
        return 0
    print_fields(told, indent="")
    for attempt in attempts:
        print(f"attempt {attempt['number']}")
        print_fields({name: value for name, value in attempt.items() if name != "number"})
    return 0


@app.command()
def resend(reminder: Key, operator: Operator, as_json: Json = False) -> int:
    """Send an unknown or failed reminder once more.

    It goes out at once, in quiet hours too. If the first one was accepted after all, the customer gets two.
    """
    return _decide(reminder_desk.resend, reminder, operator, said="goes out once more", as_json=as_json)


@app.command()
def leave(reminder: Key, operator: Operator, as_json: Json = False) -> int:
    """Settle an unknown reminder as it is; it is not sent again."""
    return _decide(reminder_desk.leave, reminder, operator, said="stays as it is", as_json=as_json)


def _decide(
    act: Callable[[Tx, str, str], Decided], reminder: str, operator: str, *, said: str, as_json: bool
) -> int:  # fmt: skip
    key, who = _key(reminder), clean_label("operator", operator)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        refuse(act(tx, key, who), key, reminder_desk.get(tx, key))
    if as_json:
        print_json({"reminder": key, "outcome": said})
    else:
        print(f"{key} {said}")
    return 0


def refuse(decided: Decided, key: str, found: Reminder | None) -> None:
    """Say why an operator's wish came to nothing.

    Raises:
        NotDone: it did.
    """
    match decided:
        case Decided.DONE:
            return
        case Decided.MISSING:
            _known(None, key)
        case Decided.HOLD_OVER:
            raise NotDone("hold_over", f"the hold of {key} is over or was extended; `leave` is what remains")
        case Decided.NOT_OPEN:
            state = "gone" if found is None else found.state + (" and was left" if found.decision == "leave" else "")
            raise NotDone("settled", f"{key} is {state}; there is nothing to decide")


def as_data(reminder: Reminder, *, show_contacts: bool) -> dict[str, object]:
    """A reminder as JSON carries it; its address masked and its text left out unless they are asked for."""
    message = reminder.message or {}
    to = message.get("to")
    hidden = None if to is None else mask_email(to) if reminder.channel == Channel.EMAIL else mask_phone(to)
    return {
        "reminder": reminder.key,
        "hold": reminder.hold_id,
        "channel": reminder.channel,
        "state": reminder.state,
        "reason": reminder.reason,
        "deadline": rfc3339(reminder.expires_at),
        "lead": format_duration(reminder.lead),
        "due_at": rfc3339(reminder.due_at),
        "next_at": rfc3339(reminder.next_at) if reminder.state in {"scheduled", "claimed"} else None,
        "attempts": reminder.attempts,
        "provider": reminder.provider,
        "provider_id": reminder.provider_id,
        "covered_by": reminder.covered_by,
        "to": to if show_contacts else hidden,
        "subject": message.get("subject") if show_contacts else None,
        "text": message.get("text") if show_contacts else None,
        "settled_at": None if reminder.settled_at is None else rfc3339(reminder.settled_at),
        "decision": reminder.decision,
        "decided_at": None if reminder.decided_at is None else rfc3339(reminder.decided_at),
        "decided_by": reminder.decided_by,
    }


def attempt_as_data(attempt: Attempt) -> dict[str, Any]:
    """One request as JSON carries it."""
    return {
        "number": attempt.number,
        "started_at": rfc3339(attempt.started_at),
        "provider": attempt.provider,
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "duration_s": None if attempt.duration is None else _seconds(attempt.duration),
        "worker": attempt.worker,
    }


def _seconds(length: timedelta) -> float:
    return length.total_seconds()


def _print_table(found: list[Reminder]) -> None:
    table = Table("reminder", "state", "due", "attempts", "reason", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.key, one.state, _short(one.due_at), str(one.attempts), one.reason or "")
    table_console().print(table if found else "no reminders")


def _short(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"


def _known(found: Reminder | None, key: str) -> Reminder:
    if found is None:
        raise NotDone("missing", f"there is no reminder {key}; see `holdfast reminders list`")
    return found


def _key(raw: str) -> str:
    if _KEY.fullmatch(raw) is None:
        raise BadInput("reminder", f"{raw[:70]!r} is no reminder's key; see `holdfast reminders list`")
    return raw


def _one_of(raw: str | None, option: str, known: tuple[str, ...]) -> str | None:
    if raw is not None and raw not in known:
        raise BadInput(option, f"{raw[:40]!r} is none; use {', '.join(known)}")
    return raw
