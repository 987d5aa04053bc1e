"""Commands about endpoints: who hears of events, with which keys, within which bounds."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from cli.context import PATIENT, database
from cli.endpoint_reports import as_data, keys_as_data, print_endpoint, print_health
from cli.output import Json, print_json, say
from cli.refusals import refusals
from db import endpoint_edits, endpoint_events, endpoint_keys, endpoint_status, endpoints
from db.endpoint_keys import SealedKey
from db.engine import Tx
from domain.durations import parse_duration
from domain.endpoints import (
    MOST_SLOTS,
    Endpoint,
    EndpointId,
    Overrides,
    State,
    Terms,
    endpoint_id,
    event_types,
    new_endpoint_id,
)
from domain.errors import BadInput
from domain.signing import HmacKey, Key
from domain.text import clean_label
from settings import InvalidSetting

app = typer.Typer(help="Who hears of events.", rich_markup_mode=None)

Scheme = Literal["v1", "v1a"]
Id = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id.", show_default=False)]
Types = Annotated[str | None, typer.Option(metavar="A,B", help="Only events of these types.", show_default=False)]
Label = Annotated[str | None, typer.Option(help="A name for people.", show_default=False)]
Rate = Annotated[float | None, typer.Option(help="Requests a second, at most.", show_default=False)]
Attempts = Annotated[int | None, typer.Option(min=1, max=100, help="Attempts a delivery, at most.", show_default=False)]
Age = Annotated[str | None, typer.Option(metavar="4d", help="No attempt after this long.", show_default=False)]
Waits = Annotated[str | None, typer.Option(metavar="0s,5s,5m", help="Longest wait before each.", show_default=False)]
SchemeOption = Annotated[Scheme | None, typer.Option(help="v1 is HMAC, v1a Ed25519.", show_default=False)]
SecretFrom = Annotated[
    str | None,
    typer.Option("--secret-from", metavar="FILE", help="A file with an own secret; - is stdin.", show_default=False),
]
_SLOTS = typer.Option(min=1, max=MOST_SLOTS, help="Requests under way at once, at most.", show_default=False)

_UNSETTABLE: dict[str, dict[str, None]] = {
    name: {name.replace("-", "_"): None} for name in ("types", "label", "rate", "max-attempts", "max-age", "waits")
}


@dataclass(frozen=True, slots=True)
class _Given:
    """The terms that a command line names; None where it does not."""

    types: tuple[str, ...] | None
    label: str | None
    rate: float | None
    slots: int | None
    bounds: dict[str, object]

    def over(self, terms: Terms) -> Terms:
        """These terms, but for what was given."""
        others = {"types": self.types, "label": self.label, "rate": self.rate, "slots": self.slots}
        return replace(
            terms,
            overrides=replace(terms.overrides, **{k: v for k, v in self.bounds.items() if v is not None}),  # type: ignore[arg-type]  # fields by their names
            **{k: v for k, v in others.items() if v is not None},  # type: ignore[arg-type]  # the same
        )


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted to.", show_default=False)],
    id_: Annotated[str | None, typer.Option("--id", help="Its id; made if left out.", show_default=False)] = None,
    types: Types = None,
    label: Label = None,
    scheme: SchemeOption = None,
    own_key: SecretFrom = None,
    rate: Rate = None,
    concurrency: Annotated[int | None, _SLOTS] = None,
    max_attempts: Attempts = None,
    max_age: Age = None,
    waits: Waits = None,
    client_errors_final: Annotated[bool, typer.Option("--client-errors-final", help="Never retry a 3xx, 4xx.")] = False,
    as_json: Json = False,
) -> int:
    """Add an endpoint, and print its secret, which is never shown again."""
    endpoint = new_endpoint_id() if id_ is None else endpoint_id(id_)
    given = _given(types, label, rate, concurrency, max_attempts, max_age, waits, final=client_errors_final)
    terms = given.over(Terms(url=_checked(url)))
    key = _key(scheme, own_key)
    sealed = _sealed(endpoint, key)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        made = endpoints.add(tx, endpoint, terms)
        endpoint_keys.rotate(tx, endpoint, sealed, grace=timedelta(0))
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
    concurrency: Annotated[int | None, _SLOTS] = None,
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
    given = _given(types, label, rate, concurrency, max_attempts, max_age, waits, final=client_errors_final)
    bare = _unset(unset)
    address = None if url is None else _checked(url)

    def made(terms: Terms) -> Terms:
        kept = bare(terms)
        return given.over(kept if address is None else replace(kept, url=address))

    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        after = endpoint_edits.change(tx, endpoint, made)
    return _print(after, as_json=as_json)


@app.command()
def rotate(
    id_: Id,
    grace: Annotated[str, typer.Option(metavar="24h", help="How long present keys still sign; 0s to 7d.")] = "24h",
    scheme: SchemeOption = None,
    own_key: SecretFrom = None,
    as_json: Json = False,
) -> int:
    """Give an endpoint a new key, and print its secret, which is never shown again.

    Its present keys of the same scheme go on signing for the grace time.
    """
    endpoint = endpoint_id(id_)
    kept = _length(grace, "--grace")
    if kept > endpoint_keys.LONGEST_GRACE:
        raise BadInput("--grace", "must lie between 0s and 7d")
    own = None if own_key is None else _key(scheme, own_key)
    with refusals(as_json=as_json), database() as db, db.transaction() as tx:
        found = endpoint_edits.locked(tx, endpoint)
        key = own or _generated(scheme or _present_scheme(tx, endpoint))
        endpoint_keys.rotate(tx, endpoint, _sealed(endpoint, key), grace=kept)
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
        endpoint_edits.locked(tx, endpoint)
        endpoint_keys.revoke(tx, endpoint, key)
    print_json({"id": endpoint, "revoked": key}) if as_json else print(f"{endpoint}: key {key} signs no more")
    return 0


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
    """Send an endpoint an event that tests it, in one attempt."""
    endpoint = endpoint_id(id_)
    with refusals(as_json=as_json), database() as db:
        with db.transaction() as tx:
            url = _open(endpoint_edits.locked(tx, endpoint)).terms.url
        _checked(url)
        with db.transaction() as tx:
            _open(endpoint_edits.locked(tx, endpoint))
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


def _given(
    types: str | None, label: str | None, rate: float | None, slots: int | None, max_attempts: int | None,
    max_age: str | None, waits: str | None, *, final: bool | None,
) -> _Given:  # fmt: skip
    """What the options say.

    Raises:
        BadInput: one of them says nothing that is possible.
    """
    bounds: dict[str, object] = {
        "max_attempts": max_attempts,
        "max_age": None if max_age is None else parse_duration(max_age, "--max-age"),
        "waits": None if waits is None else tuple(_length(wait, "--waits") for wait in waits.split(",")),
        "client_errors_final": final,
    }
    given = _Given(
        types=None if types is None else event_types([name.strip() for name in types.split(",")]),
        label=None if label is None else clean_label("label", label),
        rate=rate,
        slots=slots,
        bounds=bounds,
    )
    given.over(Terms(url="https://example.com/"))  # said before anything is looked up or locked
    return given


def _unset(raw: str | None) -> Callable[[Terms], Terms]:
    """What gives up the options that are named.

    Raises:
        BadInput: an option that cannot be given up.
    """
    names = [] if raw is None else [name.strip().removeprefix("--") for name in raw.split(",")]
    for name in names:
        if name not in _UNSETTABLE:
            raise BadInput("--unset", f"{name[:40]!r} cannot be given up; use {', '.join(_UNSETTABLE)}")
    of_terms = {"types", "label", "rate"}

    def bare(terms: Terms) -> Terms:
        fields = {field for name in names for field in _UNSETTABLE[name]}
        overrides: Overrides = replace(terms.overrides, **dict.fromkeys(fields - of_terms))  # type: ignore[arg-type]  # fields by their names
        return replace(terms, overrides=overrides, **dict.fromkeys(fields & of_terms))  # type: ignore[arg-type]  # the same

    return bare


def _length(raw: str, option: str) -> timedelta:
    """A duration that may be zero."""
    return timedelta(0) if raw.strip() in {"0", "0s"} else parse_duration(raw, option)


def _checked(url: str) -> str:
    """The URL in its one form, if it may be sent to now.

    Raises:
        BadInput: it may not.
    """
    from tasks.sending import sender  # noqa: PLC0415 - the gateway is slow to import

    return sender().check(url).url


def _key(scheme: Scheme | None, own_key: str | None) -> Key:
    """An own key, or a new one.

    Raises:
        BadInput: the own one is of another form, length or scheme.
    """
    if own_key is None:
        return _generated(scheme or "v1")
    from gateways.signing import parse_key  # noqa: PLC0415 - the library is slow to import

    try:
        text = sys.stdin.read() if own_key == "-" else Path(own_key).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise BadInput("secret", "must begin with whsec_ or whsk_") from None
    key = parse_key(text.strip())
    if scheme not in {None, _scheme_of(key)}:
        raise BadInput("--scheme", f"is {scheme}, and the secret is of {_scheme_of(key)}; leave one out")
    return key


def _generated(scheme: Scheme) -> Key:
    from gateways.signing import Ed25519Key  # noqa: PLC0415 - the library is slow to import

    return Ed25519Key.generate() if scheme == "v1a" else HmacKey.generate()


def _scheme_of(key: Key) -> Scheme:
    return "v1" if isinstance(key, HmacKey) else "v1a"


def _present_scheme(tx: Tx, endpoint: EndpointId) -> Scheme:
    live = endpoint_keys.live(tx, endpoint)
    return "v1a" if live and live[0].scheme == "v1a" else "v1"


def _sealed(endpoint: EndpointId, key: Key) -> SealedKey:
    """The key as it may be stored.

    Raises:
        InvalidSetting: HOLDFAST_VAULT_KEYS cannot be used.
    """
    from tasks.sending import vault  # noqa: PLC0415 - the gateway is slow to import

    try:
        box = vault()
    except BadInput as problem:
        raise InvalidSetting(f"HOLDFAST_VAULT_KEYS: {problem.cause}") from None
    sealed = box.seal(key.reveal(), endpoint_keys.place(endpoint, key.key_id))
    return SealedKey(key.key_id, _scheme_of(key), sealed)


def _print(endpoint: Endpoint, *, as_json: bool) -> int:
    print_json(as_data(endpoint)) if as_json else print_endpoint(endpoint, ())
    return 0


def _print_with_secret(endpoint: Endpoint, key: Key, *, as_json: bool, own: bool) -> int:
    """The one time that a secret is shown; of v1a what receivers verify with, since they need no secret."""
    public = getattr(key, "public", None)
    told = {
        "key_id": key.key_id,
        "scheme": _scheme_of(key),
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
