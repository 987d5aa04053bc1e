"""Standard Webhooks: what is signed, by which keys, and the headers that say so.

The scheme v1 (HMAC-SHA256) lives here; v1a (Ed25519) needs more than the standard library and lives in `gateways`.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from domain.errors import BadInput
from domain.identity import parse_event_id

_SHORTEST = 24
_LONGEST = 64
_GENERATED = 32
_FINGERPRINT = 12


class Key(Protocol):
    """Whatever can sign for an endpoint."""

    @property
    def key_id(self) -> str:
        """A short name that tells keys apart and gives none away."""

    def signature(self, content: bytes) -> str:
        """The signature with its tag: `v1,…`."""

    def reveal(self) -> str:
        """The secret as its owner sees it, once. Never log it."""


Scheme = Literal["v1", "v1a"]
"""What signatures are tagged with: HMAC, Ed25519."""


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A secret both sides know: 24 to 64 bytes, written `whsec_` and base64."""

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> "HmacKey":
        """A new one, from the system's random source."""
        return cls(secrets.token_bytes(_GENERATED))

    @classmethod
    def parse(cls, text: str) -> "HmacKey":
        """Read `whsec_…`.

        Raises:
            BadInput: another form or length; the text never repeats the secret.
        """
        secret = key_bytes(text, "whsec_")
        if not _SHORTEST <= len(secret) <= _LONGEST:
            raise BadInput("secret", f"holds {len(secret)} bytes; it must be {_SHORTEST} to {_LONGEST}")
        return cls(secret)

    @property
    def key_id(self) -> str:
        """The start of the secret's digest."""
        return fingerprint(b"v1", self.secret)

    def signature(self, content: bytes) -> str:
        """`v1,` and the base64 of HMAC-SHA256."""
        return "v1," + base64.b64encode(hmac.digest(self.secret, content, hashlib.sha256)).decode("ascii")

    def reveal(self) -> str:
        """`whsec_` and base64."""
        return "whsec_" + base64.b64encode(self.secret).decode("ascii")


def scheme_of(key: Key) -> Scheme:
    """The scheme of a key's signatures."""
    return "v1" if isinstance(key, HmacKey) else "v1a"


def key_bytes(text: str, prefix: str) -> bytes:
    """What stands after the prefix, decoded.

    Raises:
        BadInput: another prefix, or no base64; the text never repeats the secret.
    """
    if not text.startswith(prefix):
        raise BadInput("secret", f"must begin with {prefix}")
    written = text.removeprefix(prefix)
    try:
        decoded = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        decoded = b"?"
    if base64.b64encode(decoded).decode("ascii") != written:
        raise BadInput("secret", f"is no base64 after {prefix}")
    return decoded


def fingerprint(scheme: bytes, material: bytes) -> str:
    """A key's short name: 12 hexadecimal digits of a digest, which lead back to no key."""
    return hashlib.sha256(b"holdfast key " + scheme + b" " + material).hexdigest()[:_FINGERPRINT]


def signed_content(event_id: str, timestamp: int, body: bytes) -> bytes:
    """The bytes that are signed: id, instant of this attempt in Unix seconds, body as stored.

    Raises:
        BadInput: the id holds a dot (which would let parts trade places) or a sign no header takes, or the instant
            lies before 1970.
    """
    parse_event_id(event_id, "event_id")
    if timestamp < 0:
        raise BadInput("timestamp", "lies before 1970")
    return b"%b.%d.%b" % (event_id.encode("ascii"), timestamp, body)


def sign(keys: Sequence[Key], event_id: str, timestamp: int, body: bytes) -> str:
    """Every key's signature, in the order of the keys, with spaces between.

    Raises:
        BadInput: no key at all (nothing goes out unsigned), or see `signed_content`.
    """
    if not keys:
        raise BadInput("keys", "there is no live key to sign with; rotate the endpoint's keys")
    content = signed_content(event_id, timestamp, body)
    return " ".join(key.signature(content) for key in keys)


def signed_headers(keys: Sequence[Key], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks.

    Raises:
        BadInput: see `sign`.
    """
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(keys, event_id, timestamp, body),
    }
