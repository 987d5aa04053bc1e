"""Commands about deliveries: list, show, replay."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cli import positions
from cli.context import PATIENT, database
from cli.output import Json, print_fields, print_json, say
from cli.refusals import NotDone, refusals
from db import replays
from db.engine import Tx
from db.replays import Attempt, Delivery, Replay, Selection
from domain.endpoints import EVENT_TYPES, TEST_TYPE, endpoint_id
from domain.errors import BadInput
from domain.identity import EventId, parse_event_id
from domain.instants import parse_instant, rfc3339
from domain.text import clean_label

app = typer.Typer(help="Events on their way to endpoints.", rich_markup_mode=None)

MOST = 100_000
"""Deliveries replayed by one command, at most: it is one transaction."""
_STATES = ("pending", "delivered", "dead", "cancelled")
_TYPES = (*EVENT_TYPES, TEST_TYPE)

Event = Annotated[str, typer.Argument(metavar="EVENT", help="The event's id.", show_default=False)]
MaybeEvent = Annotated[str | None, typer.Argument(metavar="EVENT", help="Only this event's.", show_default=False)]
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The endpoint's id.", show_default=False)]
OfEndpoint = Annotated[str | None, typer.Option("--endpoint", help="Only to this endpoint.")]
OfType = Annotated[str | None, typer.Option("--type", help="Only of events of this type.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only of events from then on.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only of events before then.")]


@app.command("list")
def list_deliveries(
    event: Annotated[str | None, typer.Option("--event", help="Only of this event.")] = None,
    endpoint: OfEndpoint = None,
    type_: OfType = None,
    state: Annotated[str | None, typer.Option(help="Only pending, delivered, dead or cancelled ones.")] = None,
    since: Since = None,
    until: Until = None,
    after: Annotated[
        str | None, typer.Option(metavar="POSITION", help="Go on behind this one.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List deliveries, the oldest first."""
    chosen = _selection(event, endpoint, type_, since=since, until=until, state=state)
    behind = None if after is None else positions.read(after, "--after")
    with database(PATIENT) as db, db.transaction() as tx:
        found = replays.listing(tx, chosen, limit=limit + 1, after=behind)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        for delivery in found:
            print_json({**_as_data(delivery), "position": positions.written(delivery.position)})
    else:
        _print_table(found)
    if more:
        say(f"there are more; go on with --after {positions.written(found[-1].position)}")
    return 0


@app.command()
def show(event: Event, endpoint: Endpoint, as_json: Json = False) -> int:
    """Show one delivery with every request made for it."""
    chosen = Selection(event=parse_event_id(event), endpoint=endpoint_id(endpoint))
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        delivery = _only(tx, chosen)
        attempts = replays.attempts_of(tx, EventId(delivery.event_id), endpoint_id(endpoint))
    told = [_attempt_as_data(attempt) for attempt in attempts]
    if as_json:
        print_json({**_as_data(delivery), "requests": told})
        return 0
    print_fields(_as_data(delivery), indent="")
    for attempt in told:
        print(f"request {attempt['number']}")
        print_fields({name: _shown(value) for name, value in attempt.items() if name not in _OF_THE_DELIVERY})
    return 0


@app.command()
def replay(
    event: MaybeEvent = None,
    endpoint: OfEndpoint = None,
    type_: OfType = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many, the oldest first.")] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    operator: Annotated[str | None, typer.Option(help="Who does this; it is kept.", show_default=False)] = None,
    as_json: Json = False,
) -> int:
    """Send dead deliveries again: one, or all that fit.

    They keep to their endpoints' rates. One that was delivered is refused.
    """
    chosen = _selection(event, endpoint, type_, since=since, until=until)
    if chosen == Selection():
        raise BadInput("deliveries", "say which: EVENT, --endpoint, --type, --since or --until")
    if operator is None and not dry_run:
        raise BadInput("--operator", "is missing; say who does this, or only count with --dry-run")
    who = None if operator is None else clean_label("operator", operator)
    with refusals(as_json=as_json), database(PATIENT) as db, db.transaction() as tx:
        count = _replayed(tx, chosen, who, limit) if who is not None and not dry_run else 0
        left = replays.count_dead(tx, chosen)
    would = min(left, limit) if dry_run else 0
    if as_json:
        print_json({"replayed": count, "would_be_replayed": would, "dead": left - would})
        return 0
    more = f"; {left - would:,} more are dead" + ("" if dry_run else ", run this again") if left > would else ""
    print((f"{would:,} dead deliveries would be replayed" if dry_run else f"{count:,} deliveries replayed") + more)
    return 0


def _replayed(tx: Tx, chosen: Selection, operator: str, limit: int) -> int:
    """How many go again. What was asked for by its id is refused if it cannot."""
    if chosen.event is not None and chosen.endpoint is not None:
        _only(tx, chosen)
        return int(replays.replay(tx, chosen.event, chosen.endpoint, operator=operator) is Replay.REVIVED)
    count = replays.replay_all(tx, chosen, operator=operator, limit=limit)
    if chosen.event is not None and not count:
        found = replays.listing(tx, chosen, limit=2)
        states = sorted({delivery.state for delivery in found})
        if states != ["pending"]:
            raise _none_to_replay(chosen.event, states)
    return count


def _none_to_replay(event: str, states: list[str]) -> NotDone:
    if not states:
        return NotDone("missing", f"there is no delivery of {event} that fits; see `holdfast deliveries list`")
    if "dead" in states:
        return NotDone("refused", f"the endpoints of {event}'s dead deliveries are deleted; add others")
    return NotDone("refused", f"the deliveries of {event} are {' or '.join(states)}; only a dead one can be replayed")


def _only(tx: Tx, chosen: Selection) -> Delivery:
    found = replays.listing(tx, chosen, limit=1)
    if not found:
        raise NotDone("missing", f"there is no delivery of {chosen.event} that fits; see `holdfast deliveries list`")
    return found[0]


def _selection(
    event: str | None, endpoint: str | None, type_: str | None,
    *, since: str | None, until: str | None, state: str | None = None,
) -> Selection:  # fmt: skip
    return Selection(
        event=None if event is None else parse_event_id(event),
        endpoint=None if endpoint is None else endpoint_id(endpoint),
        type=_one_of(type_, "--type", _TYPES),
        state=_one_of(state, "--state", _STATES),
        since=None if since is None else parse_instant(since, "--since"),
        until=None if until is None else parse_instant(until, "--until"),
    )


def _one_of(raw: str | None, option: str, known: tuple[str, ...]) -> str | None:
    if raw is not None and raw not in known:
        raise BadInput(option, f"{raw[:40]!r} is none; use {', '.join(known)}")
    return raw


def _print_table(found: list[Delivery]) -> None:
    table = Table("event", "endpoint", "state", "requests", "since", "next", box=None, pad_edge=False)
    for one in found:
        following = f"{one.next_attempt_at:%m-%d %H:%M:%S}" if one.state == "pending" else ""
        since = f"{one.created_at:%m-%d %H:%M:%S}"
        table.add_row(one.event_id, one.endpoint_id, one.state, str(one.attempts), since, following)
    Console(highlight=False, markup=False, emoji=False).print(table if found else "no deliveries")


_OF_THE_DELIVERY = {"event", "endpoint", "number"}


def _as_data(delivery: Delivery) -> dict[str, object]:
    """A delivery as JSON carries it; when it is tried next only while it waits."""
    told = _plain(asdict(delivery))
    told["next_attempt_at"] = told["next_attempt_at"] if delivery.state == "pending" else None
    return {"event": told.pop("event_id"), "endpoint": told.pop("endpoint_id"), **told}


def _attempt_as_data(attempt: Attempt) -> dict[str, Any]:
    told = _plain(asdict(attempt))
    return {"event": told.pop("event_id"), "endpoint": told.pop("endpoint_id"), **told}


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Instants as texts, lengths in seconds under a name that says so."""
    told: dict[str, Any] = {}
    for name, value in facts.items():
        match value:
            case datetime():
                told[name] = rfc3339(value)
            case timedelta():
                told[f"{name}_s"] = value.total_seconds()
            case None if name == "duration":
                told[f"{name}_s"] = None
            case _:
                told[name] = value
    return told


def _shown(value: object) -> object:
    """On a terminal: a list in one line, a receiver's text without what could steer the terminal."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "".join(sign if sign.isprintable() else "?" for sign in value) if isinstance(value, str) else value
