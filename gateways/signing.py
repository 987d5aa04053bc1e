"""Standard Webhooks v1a (Ed25519), and reading a key of either scheme."""

import base64
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from domain.errors import BadInput
from domain.signing import HmacKey, Key, fingerprint, key_bytes

_SEED = 32


@dataclass(frozen=True, slots=True)
class Ed25519Key:
    """A private key only we know; receivers verify with the public one. Written `whsk_` and base64 of both halves."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> "Ed25519Key":
        """A new one, from the system's random source."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> "Ed25519Key":
        """Read `whsk_…`: the seed and, behind it, the public key that belongs to it.

        Raises:
            BadInput: another form or length, or halves of two keys; the text never repeats the secret.
        """
        both = key_bytes(text, "whsk_")
        if len(both) != 2 * _SEED:
            raise BadInput("secret", f"holds {len(both)} bytes; it must be {2 * _SEED}: private key, then public key")
        key = cls(Ed25519PrivateKey.from_private_bytes(both[:_SEED]))
        if key.private.public_key().public_bytes_raw() != both[_SEED:]:
            raise BadInput("secret", "holds a public key that does not belong to its private key")
        return key

    @property
    def key_id(self) -> str:
        """The start of the public key's digest."""
        return fingerprint(b"v1a", self.private.public_key().public_bytes_raw())

    @property
    def public(self) -> str:
        """What receivers verify with: `whpk_` and base64."""
        return "whpk_" + base64.b64encode(self.private.public_key().public_bytes_raw()).decode("ascii")

    def signature(self, content: bytes) -> str:
        """`v1a,` and the base64 of the Ed25519 signature."""
        return "v1a," + base64.b64encode(self.private.sign(content)).decode("ascii")

    def reveal(self) -> str:
        """`whsk_` and base64 of both halves."""
        both = self.private.private_bytes_raw() + self.private.public_key().public_bytes_raw()
        return "whsk_" + base64.b64encode(both).decode("ascii")


def parse_key(text: str) -> Key:
    """Read a key of either scheme.

    Raises:
        BadInput: it is neither, or of the wrong length; the text never repeats the secret.
    """
    if text.startswith("whpk_"):
        raise BadInput("secret", "is a public key, which signs nothing; give the one that begins with whsk_")
    return Ed25519Key.parse(text) if text.startswith("whsk_") else HmacKey.parse(text)
