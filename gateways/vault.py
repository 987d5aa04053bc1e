"""Endpoint secrets at rest: sealed with a key from the environment, each bound to the place it belongs to.

A sealed secret names its key, so keys are changed without a day when nothing can be read: put the new one first, seal
everything anew, drop the old one.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from domain.errors import BadInput, HoldfastError

_FORM = b"\x01"
_KEY = 32
_NAME = 4
_NONCE = 12
_HEAD = len(_FORM) + _NAME + _NONCE


class SecretUnreadable(HoldfastError):
    """A sealed secret cannot be opened with the keys at hand."""


class Vault:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Sequence[str]) -> None:
        """`keys`: each is base64 of 32 random bytes, the one to seal with first.

        Raises:
            BadInput: there is none, or one has another form; the text never repeats it.
        """
        if not keys:
            raise BadInput("vault keys", "there is none; make one with: openssl rand -base64 32")
        material = [_material(key) for key in keys]
        self._ciphers = {_name(key): AESGCM(key) for key in material}
        self._first = _name(material[0])

    def __repr__(self) -> str:
        return f"Vault(keys={[name.hex() for name in self._ciphers]})"

    def seal(self, secret: str, place: str) -> bytes:
        """The secret as it may be stored; it opens only for the same place (its endpoint and key id)."""
        nonce = os.urandom(_NONCE)
        head = _FORM + self._first + nonce
        return head + self._ciphers[self._first].encrypt(nonce, secret.encode(), _bound(head, place))

    def open(self, sealed: bytes, place: str) -> str:
        """The secret.

        Raises:
            SecretUnreadable: its key is not at hand, it was changed, or it belongs elsewhere.
        """
        head, rest = sealed[:_HEAD], sealed[_HEAD:]
        name, nonce = head[len(_FORM) : len(_FORM) + _NAME], head[len(_FORM) + _NAME :]
        if not head.startswith(_FORM) or len(head) < _HEAD:
            raise SecretUnreadable(f"{place}: what is stored is no sealed secret; rotate the endpoint's keys")
        if name not in self._ciphers:
            raise SecretUnreadable(
                f"{place}: sealed with key {name.hex()}, which is not at hand (there is "
                f"{', '.join(known.hex() for known in self._ciphers)}); add that key behind the first one"
            )
        try:
            return self._ciphers[name].decrypt(nonce, rest, _bound(head, place)).decode()
        except InvalidTag:
            raise SecretUnreadable(
                f"{place}: the sealed secret was changed or belongs elsewhere; rotate the endpoint's keys"
            ) from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether it is sealed with the first key; if not, open it and seal it anew."""
        return sealed.startswith(_FORM + self._first)


def _material(key: str) -> bytes:
    try:
        material = base64.b64decode(key.strip(), validate=True)
    except (binascii.Error, ValueError):
        material = b""
    if len(material) != _KEY:
        raise BadInput("vault keys", "each must be base64 of 32 bytes; make one with: openssl rand -base64 32")
    return material


def _name(key: bytes) -> bytes:
    """A key's short name, which leads back to no key."""
    return hashlib.sha256(b"holdfast vault key " + key).digest()[:_NAME]


def _bound(head: bytes, place: str) -> bytes:
    """What a sealed secret is tied to besides its key."""
    return head + place.encode()
