"""A TLS server whose handshake is OpenSSL's and whose records are made by hand: of any kind, and without end."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.gateways.receiver import Talk

ALERT, HANDSHAKE, APPLICATION = 21, 22, 23
_HASH = hashes.SHA384()
_SUITES = {"TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"}
_RANDOM = slice(11, 43)
"""Where a hello has its random bytes: behind the headers of record and message, and the version."""


def message(kind: int, body: bytes) -> bytes:
    """A message of the handshake's kind, as it stands in a record."""
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


TICKET = message(4, (7200).to_bytes(4, "big") + bytes(4) + b"\x01n" + b"\x00\x20" + bytes(32) + b"\x00\x00")
NEW_KEYS = message(24, b"\x00")
NEW_KEYS_BOTH = message(24, b"\x01")
"""The sender has new keys, and asks the other side to make some too."""
HELLO_REQUEST = message(0, b"")
"""TLS 1.2: begin the handshake anew."""


@dataclass
class _Keys:
    """What the server encrypts with, and the number of its next record."""

    secret: bytes
    cipher: AESGCM
    iv: bytes
    number: int

    @classmethod
    def of_1_3(cls, secret: bytes) -> "_Keys":
        return cls(secret, AESGCM(_labelled(secret, b"key", 32)), _labelled(secret, b"iv", 12), 0)

    @classmethod
    def of_1_2(cls, master: bytes, randoms: bytes) -> "_Keys":
        block = _prf(master, b"key expansion" + randoms, 72)
        return cls(master, AESGCM(block[32:64]), block[68:72], 1)  # its Finished was number 0

    def renewed(self) -> "_Keys":
        return _Keys.of_1_3(_labelled(self.secret, b"traffic upd", _HASH.digest_size))

    def seal_1_3(self, kind: int, content: bytes) -> bytes:
        nonce = (int.from_bytes(self.iv, "big") ^ self.number).to_bytes(12, "big")
        self.number += 1
        head = bytes([APPLICATION, 3, 3]) + (len(content) + 17).to_bytes(2, "big")
        return head + self.cipher.encrypt(nonce, content + bytes([kind]), head)

    def seal_1_2(self, kind: int, content: bytes) -> bytes:
        number, head = self.number.to_bytes(8, "big"), bytes([kind, 3, 3])
        self.number += 1
        sealed = self.cipher.encrypt(self.iv + number, content, number + head + len(content).to_bytes(2, "big"))
        return head + (len(sealed) + 8).to_bytes(2, "big") + number + sealed


class HandMade:
    """The server's side of one connection; its context serves no other, since its keys are written down."""

    def __init__(self, talk: Talk, context: ssl.SSLContext, keys: Path) -> None:
        context.keylog_filename, context.num_tickets = str(keys), 0
        self.talk = talk
        self._in, self._out, self._file = ssl.MemoryBIO(), ssl.MemoryBIO(), keys
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._heard = self._said = b""

    def shake_hands(self, every: float | None = None) -> None:
        """Byte by byte with these waits between, if they are given."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._say(every)
                self._hear()
            else:
                self._say(every)
                break
        self._keys = self._made()

    def request(self) -> bytes:
        """What the sender says first: head and body, a JSON object."""
        said = b""
        while not said.endswith(b"}"):
            try:
                said += self._tls.read(65536)
            except ssl.SSLWantReadError:
                self._hear()
        return said

    def record(self, kind: int, content: bytes) -> bytes:
        """One record; behind a change of keys the next ones have new keys."""
        if self._tls.version() == "TLSv1.2":
            return self._keys.seal_1_2(kind, content)
        sealed = self._keys.seal_1_3(kind, content)
        if kind == HANDSHAKE and content in {NEW_KEYS, NEW_KEYS_BOTH}:
            self._keys = self._keys.renewed()
        return sealed

    def say(self, data: bytes) -> None:
        """So many bytes in one record."""
        self.talk.say(self.record(APPLICATION, data))

    def _made(self) -> _Keys:
        suite = self._tls.cipher()
        assert suite is not None
        assert suite[0] in _SUITES
        lines = [line.split() for line in self._file.read_text().splitlines() if not line.startswith("#")]
        secrets = {name: bytes.fromhex(secret) for name, _, secret in lines}
        if self._tls.version() == "TLSv1.2":
            return _Keys.of_1_2(secrets["CLIENT_RANDOM"], self._said[_RANDOM] + self._heard[_RANDOM])
        return _Keys.of_1_3(secrets["SERVER_TRAFFIC_SECRET_0"])

    def _hear(self) -> None:
        data = self.talk.sock.recv(65536)
        if not data:
            raise EOFError
        self._heard += data
        self._in.write(data)

    def _say(self, every: float | None) -> None:
        data = self._out.read()
        self._said += data
        if every is None:
            self.talk.say(data)
        else:
            self.talk.drip(data, every)


def _labelled(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, without a context."""
    name = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(name)]) + name + b"\x00"
    return HKDFExpand(_HASH, length, info).derive(secret)


def _prf(secret: bytes, seed: bytes, length: int) -> bytes:
    """The pseudo-random function of RFC 5246."""
    made, turn = b"", seed
    while len(made) < length:
        turn = _hmac(secret, turn)
        made += _hmac(secret, turn + seed)
    return made[:length]


def _hmac(secret: bytes, data: bytes) -> bytes:
    digest = hmac.HMAC(secret, _HASH)
    digest.update(data)
    return digest.finalize()
