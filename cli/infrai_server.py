"""`holdfast infrai-server`: the local contract server, until somebody stops it."""

import signal
from collections.abc import Sequence
from typing import Annotated

import typer

from cli.output import Json, print_fields, print_json
from domain.errors import BadInput, HoldfastError
from settings import settings

_SHORTEST_KEY = 8


class PortTaken(HoldfastError):
    """The server cannot listen."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(name="infrai-server")(infrai_server)


def infrai_server(
    port: Annotated[int, typer.Option("--port", help="On loopback; 0 takes a free one.", min=0, max=65535)] = 8790,
    switches: Annotated[
        list[str] | None, typer.Option("--set", help="A switch of the contract, NAME=VALUE; more than once.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Keep a local server of the Infrai contract running until Ctrl-C.

    It keeps its state in memory and sends nothing to Infrai.
    """
    from comparison.infrai_server.contract import Contract  # noqa: PLC0415 - slow to import, and needed here only
    from comparison.infrai_server.serve import prepared  # noqa: PLC0415 - the same

    contract = Contract.parse(_pairs(switches or ()))
    try:
        with prepared(contract, key=_key(), port=port) as (server, local, listener):
            where = {"HOLDFAST_INFRAI_URL": local.url, "INFRAI_API_KEY": local.key}
            if as_json:
                print_json({"url": local.url, "key": local.key})
            else:
                print("A local server of the Infrai contract; it is not Infrai. Ctrl-C stops it.")
                print_fields(where)
            for number in (signal.SIGTERM, signal.SIGHUP):  # the server takes leave, then hands them on
                signal.signal(number, signal.default_int_handler)
            server.run([listener])
    except KeyboardInterrupt:
        return 0
    except OSError as fault:
        raise PortTaken(f"--port {port}: {fault.strerror}; choose another, or 0 for a free one") from None
    return 0


def _key() -> str | None:
    """The environment's key, so that a client with the same environment fits; else one is made.

    Raises:
        BadInput: it could be guessed, or stands in no header.
    """
    key = settings().infrai_api_key.get_secret_value()
    if not key:
        return None
    if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("INFRAI_API_KEY", f"must have {_SHORTEST_KEY} printable signs or more, and no blank")
    return key


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE`, each name once.

    Raises:
        BadInput: another form.
    """
    pairs: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or name in pairs:
            raise BadInput("--set", f"{word[:60]!r} is no NAME=VALUE, or names a switch twice")
        pairs[name] = value
    return pairs
