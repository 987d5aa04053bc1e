"""What an endpoint needs of the gateways: the address guard, a key to sign with, and the vault it is sealed in."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from db import endpoint_keys
from db.endpoint_keys import SealedKey
from db.engine import Tx
from domain.endpoints import EndpointId
from domain.errors import BadInput
from domain.signing import HmacKey, Key, Scheme, scheme_of
from settings import InvalidSetting

if TYPE_CHECKING:
    from gateways.vault import Vault

SchemeOption = Annotated[Scheme | None, typer.Option(help="v1 is HMAC, v1a Ed25519.", show_default=False)]
SecretFrom = Annotated[
    str | None,
    typer.Option("--secret-from", metavar="FILE", help="A file with an own secret; - is stdin.", show_default=False),
]


def checked(url: str) -> str:
    """The URL in its one form, if it may be sent to now.

    Raises:
        BadInput: it may not.
    """
    from tasks.sending import sender  # noqa: PLC0415 - the gateway is slow to import

    return sender().check(url).url


def key_for(scheme: Scheme | None, own_key: str | None) -> Key:
    """An own key, or a new one.

    Raises:
        BadInput: the own one is of another form, length or scheme.
    """
    if own_key is None:
        return generated(scheme or "v1")
    from gateways.signing import parse_key  # noqa: PLC0415 - the library is slow to import

    try:
        text = sys.stdin.read() if own_key == "-" else Path(own_key).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise BadInput("secret", "must begin with whsec_ or whsk_") from None
    key = parse_key(text.strip())
    if scheme not in {None, scheme_of(key)}:
        raise BadInput("--scheme", f"is {scheme}, and the secret is of {scheme_of(key)}; leave one out")
    return key


def generated(scheme: Scheme) -> Key:
    """A new key."""
    from gateways.signing import Ed25519Key  # noqa: PLC0415 - the library is slow to import

    return Ed25519Key.generate() if scheme == "v1a" else HmacKey.generate()


def present_scheme(tx: Tx, endpoint: EndpointId) -> Scheme:
    """The scheme of the newest key that signs; v1 where none does."""
    live = endpoint_keys.live(tx, endpoint)
    return "v1a" if live and live[0].scheme == "v1a" else "v1"


def sealed_key(endpoint: EndpointId, key: Key) -> SealedKey:
    """The key as it may be stored. Raises InvalidSetting as `vault`."""
    from tasks.sending import sealed  # noqa: PLC0415 - the gateway is slow to import

    return sealed(vault(), endpoint, key)


def vault() -> "Vault":
    """What seals and opens secrets here.

    Raises:
        InvalidSetting: HOLDFAST_VAULT_KEYS cannot be used.
    """
    from tasks import sending  # noqa: PLC0415 - the gateway is slow to import

    try:
        return sending.vault()
    except BadInput as problem:
        raise InvalidSetting(f"HOLDFAST_VAULT_KEYS: {problem.cause}") from None
