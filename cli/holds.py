"""Commands about one hold: place, extend, confirm, cancel, show, list."""

import re
from typing import Annotated

import typer
from rich.table import Table

from cli.context import by_hand, database
from cli.output import Json, print_answer, print_hold, print_json, say, table_console
from db import holds
from domain.durations import parse_duration
from domain.errors import BadInput
from domain.holds import LAPSED, Done, Hold, Reason, Refused, Status
from domain.identity import hold_id, new_hold_id
from domain.instants import in_zone, parse_instant
from domain.money import format_money
from domain.terms import For, Lasting, Terms, Until, read_contacts
from domain.text import clean_label
from settings import settings

Id = Annotated[str, typer.Argument(metavar="ID", help="The hold's id.", show_default=False)]
Version = Annotated[int, typer.Option("--version", min=1, help="The version you read; another one refuses.")]
ForOption = Annotated[str | None, typer.Option("--for", metavar="30m", help="How long: 90s, 30m, 1h30m, 2d.")]
ShowContacts = Annotated[bool, typer.Option("--show-contacts", help="Show addresses and numbers whole.")]
_DIGITS = re.compile(r"[0-9]{1,30}", re.ASCII)
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="A time with offset, RFC 3339.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (place, extend, confirm, cancel, show):
        app.command()(command)
    app.command("list")(list_holds)


def _lasting(for_: str | None, until: str | None) -> Lasting:
    if for_ is not None and until is None:
        return For(parse_duration(for_, "--for"))
    if until is not None and for_ is None:
        return Until(parse_instant(until, "--until"))
    raise BadInput("--for/--until", "give one of the two")


def _minor_units(raw: str) -> int:
    """Digits only: what else Python takes for a whole number, such as 12.00 or 1_0, would be meant otherwise."""
    if _DIGITS.fullmatch(raw) is None:
        raise BadInput("--amount", f"{raw[:40]!r} is no whole number of minor units (cents); write 12.50 EUR as 1250")
    return int(raw)


def place(
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="Made for you if left out.")] = None,
    *,
    resource: Annotated[str, typer.Option(help="What is held.", show_default=False)],
    customer: Annotated[str, typer.Option(help="For whom.", show_default=False)],
    for_: ForOption = None,
    until: UntilOption = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="The customer's IANA zone.")] = None,
    amount: Annotated[str | None, typer.Option(metavar="1250", help="Minor units (cents), with --currency.")] = None,
    currency: Annotated[str | None, typer.Option(help="ISO 4217, like EUR.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Refuse while another exclusive hold has it.")] = False,
    email: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Remind the customer by email.")] = None,
    phone: Annotated[str | None, typer.Option(metavar="+49…", help="Remind by SMS; E.164, with --timezone.")] = None,
    locale: Annotated[str | None, typer.Option(metavar="de-AT", help="The language of reminders.")] = None,
    leads: Annotated[str | None, typer.Option(metavar="24h,5m", help="How long before the deadline.")] = None,
    as_json: Json = False,
) -> int:
    """Place a hold.

    The same ID with the same terms shows the hold as it is, with exit 1 once it has ended. Give --for or --until.
    """
    hold = new_hold_id() if id_ is None else hold_id(id_)
    terms = Terms(
        resource=resource,
        customer=customer,
        lasting=_lasting(for_, until),
        timezone=timezone,
        amount=None if amount is None else _minor_units(amount),
        currency=currency,
        exclusive=exclusive,
        contacts=read_contacts(email=email, phone=phone, locale=locale, leads=leads, timezone=timezone),
    )
    with database() as db, db.transaction() as tx:
        answer = holds.place(tx, hold, terms, by_hand(), leads=settings().leads)
    code = print_answer(answer, hold, as_json=as_json)
    if isinstance(answer, Done) and not answer.hold.counts:
        say(f"hold {hold} was placed before with these terms and is {answer.hold.standing}; use another id")
        return 1
    return code


def extend(id_: Id, version: Version, for_: ForOption = None, until: UntilOption = None, as_json: Json = False) -> int:
    """Give a hold a new deadline.

    --for counts from the present one; --until may also be earlier, never at or before now. Give one of the two.
    """
    hold, lasting = hold_id(id_), _lasting(for_, until)
    with database() as db, db.transaction() as tx:
        answer = holds.extend(tx, hold, version, lasting)
    return print_answer(answer, hold, as_json=as_json)


def confirm(id_: Id, version: Version, as_json: Json = False) -> int:
    """Close a hold as confirmed: the customer took it."""
    hold = hold_id(id_)
    with database() as db, db.transaction() as tx:
        answer = holds.confirm(tx, hold, version)
    return print_answer(answer, hold, as_json=as_json)


def cancel(
    id_: Id,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why, in one line.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Close a hold as cancelled."""
    hold, why = hold_id(id_), clean_label("reason", reason)
    with database() as db, db.transaction() as tx:
        answer = holds.cancel(tx, hold, version, why)
    return print_answer(answer, hold, as_json=as_json)


def show(
    id_: Id,
    reference: Annotated[bool, typer.Option("--reference", help="Print the line that `apply` takes.")] = False,
    show_contacts: ShowContacts = False,
    as_json: Json = False,
) -> int:
    """Show a hold as it stands now."""
    hold = hold_id(id_)
    with database() as db, db.transaction() as tx:
        found = holds.get(tx, hold)
    if found is None:
        return print_answer(Refused(Reason.MISSING), hold, as_json=as_json)
    if reference:
        print_json(found.reference.as_data())
    else:
        print_hold(found, as_json=as_json, show_contacts=show_contacts)
    return 0


def list_holds(
    status: Annotated[str | None, typer.Option(help="held, lapsed, confirmed, cancelled or expired.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only of this resource.")] = None,
    customer: Annotated[str | None, typer.Option(help="Only for this customer.")] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on after this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List holds in the order of their ids."""
    known = [*(s.value for s in Status), LAPSED]
    if status is not None and status not in known:
        raise BadInput("--status", f"{status!r} is none; use one of {', '.join(known)}")
    for option, label in (("--resource", resource), ("--customer", customer)):
        if label is not None:
            clean_label(option, label)
    start = None if after is None else hold_id(after, "--after")
    with database() as db, db.transaction() as tx:
        found = holds.listing(tx, status=status, resource=resource, customer=customer, after=start, limit=limit)
    if as_json:
        for hold in found:
            print_json(hold.as_data())
    else:
        _print_table(found)
    if len(found) == limit:
        say(f"there may be more: --after {found[-1].id}")
    return 0


def _print_table(found: list[Hold]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("id", "status", "v", "expires", "amount"):
        table.add_column(name, no_wrap=True, overflow="fold", justify="right" if name in {"v", "amount"} else "left")
    table.add_column("resource", no_wrap=True, overflow="ellipsis")
    for hold in found:
        table.add_row(
            hold.id,
            hold.standing,
            str(hold.version),
            f"{in_zone(hold.expires_at, hold.timezone):%Y-%m-%d %H:%M %Z}",
            "" if hold.amount is None else format_money(hold.amount, str(hold.currency)),
            hold.resource,
        )
    table_console().print(table)
