"""Commands about endpoints: who hears of events, with which keys, within which bounds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cli.context import PATIENT, database
from cli.endpoint_options import SLOTS, Age, Attempts, Label, Rate, Types, Waits, given_terms, unset_terms
from cli.endpoint_reports import as_data, keys_as_data, print_endpoint, print_health
from cli.endpoint_secrets import (
    SchemeOption,
    SecretFrom,
    checked,
    generated,
    key_for,
    present_scheme,
    sealed_key,
)
from cli.output import Json, print_json, say
from cli.refusals import refusals
from cli.resealing import reseal
from db import endpoint_edits, endpoint_events, endpoint_keys, endpoint_status, endpoints
from db.engine import Tx
from domain.durations import parse_length
from domain.endpoints import LONGEST_GRACE, Endpoint, EndpointId, State, Terms, endpoint_id, new_endpoint_id
from domain.errors import BadInput
from domain.signing import Key, scheme_of
from domain.text import clean_label
from settings import settings

app = typer.Typer(help="Who hears of events.", rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id.", show_default=False)]


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted to.", show_default=False)],
    id_: Annotated[str | None, typer.Option("--id", help="Its id; made if left out.", show_default=False)] = None,
    types: Types = None,
    label: Label = None,
    scheme: SchemeOption = None,
    own_key: SecretFrom = None,
    rate: Rate = None,
    concurrency: Annotated[int | None, SLOTS] = None,
    max_attempts: Attempts = None,
    max_age: Age = None,
    waits: Waits = None,
    client_errors_final: Annotated[bool, typer.Option("--client-errors-final", help="Never retry a 3xx, 4xx.")] = False,
    as_json: Json = False,
) -> int:
    """Add an endpoint, and print its secret, which is never shown again."""
    endpoint = new_endpoint_id() if id_ is None else endpoint_id(id_)
    given = given_terms(types, label, rate, concurrency, max_attempts, max_age, waits, final=client_errors_final)
    terms = given.over(Terms(url=checked(url), slots=settings().webhook_slots))
    key = key_for(scheme, own_key)
    sealed = sealed_key(endpoint, key)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        made = endpoint_edits.make(tx, endpoint, terms, sealed)
    return _print_with_secret(made, key, as_json=as_json, own=own_key is not None)


@app.command("list")
def list_endpoints(
    all_: Annotated[bool, typer.Option("--all", help="Also the deleted ones.")] = False,
    as_json: Json = False,
) -> int:
    """List endpoints in the order of their ids."""
    with database() as db, db.transaction() as tx:
        found = endpoints.listing(tx, deleted=all_)
    if as_json:
        for one in found:
            print_json(as_data(one))
        return 0
    table = Table("id", "state", "breaker", "label", "types", "url", box=None, pad_edge=False)
    for one in found:
        types = "all" if one.terms.types is None else ", ".join(one.terms.types)
        table.add_row(one.id, one.state.value, one.breaker, one.terms.label, types, one.terms.url)
    Console(highlight=False, markup=False, emoji=False).print(table if found else "no endpoints")
    return 0


@app.command()
def show(id_: Id, as_json: Json = False) -> int:
    """Show an endpoint with its keys and how it fares; never a secret."""
    endpoint = endpoint_id(id_)
    with refusals(as_json=as_json), database(PATIENT) as db, db.transaction() as tx:
        found = endpoints.get(tx, endpoint)
        if found is None:
            raise BadInput("endpoint", f"there is no endpoint {endpoint!r}; see `holdfast endpoints list`")
        keys = keys_as_data(endpoint_keys.lives(tx, endpoint))
        health = endpoint_status.of_one(tx, endpoint, found.read_at)
    assert health is not None
    if as_json:
        print_json({**as_data(found), "keys": keys, "health": health.as_data()})
    else:
        print_endpoint(found, keys)
        print_health(health)
    return 0


@app.command()
def edit(
    id_: Id,
    url: Annotated[str | None, typer.Option(help="Where events are posted to.", show_default=False)] = None,
    types: Types = None,
    label: Label = None,
    rate: Rate = None,
    concurrency: Annotated[int | None, SLOTS] = None,
    max_attempts: Attempts = None,
    max_age: Age = None,
    waits: Waits = None,
    client_errors_final: Annotated[
        bool | None,
        typer.Option("--client-errors-final/--client-errors-retried", help="Never retry a 3xx, 4xx; or do."),
    ] = None,
    unset: Annotated[
        str | None, typer.Option(metavar="A,B", help="Options that are given up, like rate.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Give an endpoint other terms; what is left out stays. What waits goes to the new URL."""
    endpoint = endpoint_id(id_)
    given = given_terms(types, label, rate, concurrency, max_attempts, max_age, waits, final=client_errors_final)
    bare = unset_terms(unset)
    address = None if url is None else checked(url)

    def made(terms: Terms) -> Terms:
        kept = bare(terms)
        return given.over(kept if address is None else replace(kept, url=address))

    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        after = endpoint_edits.change(tx, endpoint, made)
    return _print(after, as_json=as_json)


@app.command()
def rotate(
    id_: Id,
    grace: Annotated[
        str | None, typer.Option(metavar="24h", help="How long present keys still sign; 0s to 7d.", show_default=False)
    ] = None,
    scheme: SchemeOption = None,
    own_key: SecretFrom = None,
    as_json: Json = False,
) -> int:
    """Give an endpoint a new key, and print its secret, which is never shown again.

    Its present keys of the same scheme go on signing for the grace time.
    """
    endpoint = endpoint_id(id_)
    kept = settings().webhook_key_grace if grace is None else parse_length(grace, "--grace")
    if kept > LONGEST_GRACE:
        raise BadInput("--grace", "must lie between 0s and 7d")
    own = None if own_key is None else key_for(scheme, own_key)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        found = endpoints.locked(tx, endpoint)
        key = own or generated(scheme or present_scheme(tx, endpoint))
        endpoint_keys.rotate(tx, endpoint, sealed_key(endpoint, key), grace=kept)
    return _print_with_secret(found, key, as_json=as_json, own=own is not None)


@app.command()
def revoke(
    id_: Id,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, from show.", show_default=False)],
    as_json: Json = False,
) -> int:
    """End one key at once. The only key that signs is refused: rotate first."""
    endpoint = endpoint_id(id_)
    clean_label("key", key)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        endpoints.locked(tx, endpoint)
        endpoint_keys.revoke(tx, endpoint, key)
    print_json({"id": endpoint, "revoked": key}) if as_json else print(f"{endpoint}: key {key} signs no more")
    return 0


app.command()(reseal)


@app.command()
def pause(
    id_: Id,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept.", show_default=False)] = None,
    as_json: Json = False,
) -> int:
    """Send nothing for now; what is due waits, and grows no older."""
    why = None if reason is None else clean_label("reason", reason)
    return _moved(id_, lambda tx, endpoint: endpoints.pause(tx, endpoint, why), as_json=as_json)


@app.command()
def resume(id_: Id, as_json: Json = False) -> int:
    """Send to a paused endpoint again."""
    return _moved(id_, endpoints.resume, as_json=as_json)


@app.command()
def disable(
    id_: Id,
    reason: Annotated[str, typer.Option(help="Why; other endpoints are told.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Send nothing until somebody enables it; what is due waits, and others are told."""
    why = clean_label("reason", reason)
    return _moved(id_, lambda tx, endpoint: endpoints.disable(tx, endpoint, why), as_json=as_json)


@app.command()
def enable(id_: Id, as_json: Json = False) -> int:
    """Send again, with failures forgotten and the breaker closed."""
    return _moved(id_, endpoints.enable, as_json=as_json)


@app.command()
def delete(id_: Id, as_json: Json = False) -> int:
    """Delete an endpoint for ever. What waits for it is cancelled; its history stays."""
    return _moved(id_, endpoints.delete, as_json=as_json)


@app.command("test")
def try_out(id_: Id, as_json: Json = False) -> int:
    """Send an endpoint an event that tests it; whatever the answer, it is not sent again."""
    endpoint = endpoint_id(id_)
    with refusals(as_json=as_json), database() as db:
        with db.transaction() as tx:
            url = _open(endpoints.locked(tx, endpoint)).terms.url
        checked(url)
        with db.transaction() as tx:
            _open(endpoints.locked(tx, endpoint))
            event = endpoint_events.try_out(tx, endpoint)
    if as_json:
        print_json({"event": event, "endpoint": endpoint})
    else:
        print(f"{event} waits to be sent; see `holdfast deliveries show {event} {endpoint}`")
    return 0


def _open(found: Endpoint) -> Endpoint:
    """Refuse what would only be sent some day."""
    if found.state is not State.ENABLED:
        cure = "resume" if found.state is State.PAUSED else "enable"
        raise BadInput("endpoint", f"{found.id!r} is {found.state}; use {cure} first")
    return found


def _moved(id_: str, move: Callable[[Tx, EndpointId], Endpoint], *, as_json: bool) -> int:
    endpoint = endpoint_id(id_)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        after = move(tx, endpoint)
    return _print(after, as_json=as_json)


def _print(endpoint: Endpoint, *, as_json: bool) -> int:
    print_json(as_data(endpoint)) if as_json else print_endpoint(endpoint, ())
    return 0


def _print_with_secret(endpoint: Endpoint, key: Key, *, as_json: bool, own: bool) -> int:
    """The one time that a secret is shown; of v1a what receivers verify with, since they need no secret."""
    public = getattr(key, "public", None)
    told = {
        "key_id": key.key_id,
        "scheme": scheme_of(key),
        "secret": None if public or own else key.reveal(),
        "public_key": public,
    }
    if as_json:
        print_json({**as_data(endpoint), **told})
        return 0
    print_endpoint(endpoint, (), more=told)
    if told["secret"] or public:
        say("give this to the receiver now; it is not shown again")
    return 0
