"""How answers are printed: for a person, or one JSON object a line on stdout and nothing else there."""

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console

from domain.durations import format_duration
from domain.holds import Answer, Done, Hold, Reason, Refused, Status
from domain.instants import in_zone, rfc3339
from domain.money import format_money

_WIDE = 400
"""Columns of a line that no terminal shows: an id, a resource, and what else a row holds."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]


def say(line: str) -> None:
    """One line for a person, on stderr."""
    print(f"holdfast: {line}", file=sys.stderr)


def print_json(data: object) -> None:
    """One JSON value on one line of stdout."""
    print(json.dumps(data, ensure_ascii=False, separators=(",", ":")), flush=True)


def table_console() -> Console:
    """Where tables are printed. A pipe is no narrow window: nothing is cut or folded there."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)


def print_fields(fields: Mapping[str, object], indent: str = "  ") -> None:
    """Names and values in two columns; None is left out."""
    shown = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{indent}{name:<{width}}  {value}")


def print_hold(hold: Hold, *, as_json: bool, show_contacts: bool = False) -> None:
    """A hold as it stands."""
    if as_json:
        print_json(hold.as_data(show_contacts=show_contacts))
        return
    email, phone = (hold.email, hold.phone) if show_contacts else hold.masked
    print(f"{hold.id}  {hold.standing}  version {hold.version}")
    left = timedelta(seconds=int((hold.expires_at - hold.read_at).total_seconds()))
    when = f"in {format_duration(left)}" if hold.counts else f"{format_duration(-left)} ago"
    local = in_zone(hold.expires_at, hold.timezone)
    print_fields(
        {
            "resource": hold.resource + ("  (exclusive)" if hold.exclusive else ""),
            "customer": hold.customer,
            "amount": None if hold.amount is None else format_money(hold.amount, str(hold.currency)),
            "expires": f"{local:%Y-%m-%d %H:%M:%S %Z}" + (f"  ({when})" if hold.status is Status.HELD else ""),
            "closed": None if hold.closed_at is None else rfc3339(hold.closed_at),
            "reason": hold.close_reason,
            "email": email,
            "phone": phone,
            "locale": hold.locale,
            "leads": None if hold.leads is None else ", ".join(map(format_duration, hold.leads)),
            "set aside": "yes; see `holdfast dead-letters list`" if hold.set_aside else None,
        }
    )


def explain(refused: Refused, asked: str) -> str:  # noqa: PLR0911 - one return a reason
    """Why a command about the hold `asked` was refused, and what to do about it."""
    hold = refused.hold
    match refused.reason, hold:
        case Reason.MISSING, _:
            return f"there is no hold {asked}; `holdfast list` shows those there are"
        case Reason.ID_RETIRED, _:
            return f"the ledger already knows a pruned hold {asked}; place this one under another id"
        case Reason.RESOURCE_TAKEN, None:
            return "the resource is being taken by others; try again"
        case Reason.RESOURCE_TAKEN, Hold():
            return f"the resource is taken by hold {hold.id} until {rfc3339(hold.expires_at)}; wait, or choose another"
        case Reason.LAPSED, Hold():
            return f"hold {asked} lapsed at {rfc3339(hold.expires_at)}; place a new one"
        case Reason.WRONG_VERSION, Hold():
            return f"hold {asked} is at version {hold.version}; read it with `holdfast show {asked}` and decide again"
        case Reason.CLOSED, Hold():
            return f"hold {asked} is {hold.status} already; nothing changes it any more"
        case Reason.TERMS_DIFFER, Hold():
            return f"hold {asked} exists with other terms; see `holdfast show {asked}`, or use another id"
        case _:
            raise AssertionError(refused)


def print_answer(answer: Answer, asked: str, *, as_json: bool) -> int:
    """The hold, or why the command was refused; returns the exit code."""
    match answer:
        case Done(hold, under_way=under_way):
            print_hold(hold, as_json=as_json)
            if under_way:
                say(f"a reminder by {' and '.join(under_way)} was just being sent: the customer may still get it")
            return 0
        case Refused(reason, hold):
            line = explain(answer, asked)
            if as_json:
                print_json({"refused": reason, "message": line, "hold": None if hold is None else hold.as_data()})
            say(line)
            return 1
