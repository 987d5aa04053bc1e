"""One request under way: its deadline, how far it came, and sockets that keep to it.

A time limit per read is none at all: a receiver that drips a byte a second passes it for ever. So every wait of a
socket here, also those inside a TLS handshake, is for what is left of the whole request.
"""

import errno
import os
import socket
import ssl
from contextvars import ContextVar
from enum import StrEnum
from http.client import HTTPException
from time import monotonic
from typing import Any


class Stage(StrEnum):
    """What a request is waiting for, in words for an operator."""

    LOOKUP = "looking up the name"
    CONNECT = "connecting"
    TLS = "in the TLS handshake"
    SEND = "sending the request"
    ANSWER = "waiting for the answer"


class OutOfTime(TimeoutError):
    """The request's deadline has come."""


class TooMuch(HTTPException):
    """The receiver sends more than any answer needs."""


class Exchange:
    """One request under way, in one thread."""

    __slots__ = ("ends", "peer", "sent", "stage", "status", "unread")

    def __init__(self, limit: float, budget: int) -> None:
        """`limit` in seconds from now, for all of it; `budget` in bytes received, head and body and all."""
        self.ends = monotonic() + limit
        self.unread = budget
        self.stage = Stage.LOOKUP
        self.peer: str | None = None
        self.sent = False
        self.status: int | None = None

    def left(self) -> float:
        """Seconds until the deadline.

        Raises:
            OutOfTime: none.
        """
        left = self.ends - monotonic()
        if left <= 0:
            raise OutOfTime
        return left

    def took(self, count: int) -> None:
        """Note that so many bytes have come.

        Raises:
            TooMuch: they are more than the budget.
        """
        self.unread -= count
        if self.unread < 0:
            raise TooMuch("more than any answer needs")


UNDER_WAY: ContextVar[Exchange] = ContextVar("the request this thread is making")


class _Bounded:
    """A socket of which every wait ends at the deadline of the request under way."""

    def recv_into(self: Any, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        exchange = UNDER_WAY.get()
        self.settimeout(exchange.left())
        count: int = super().recv_into(buffer, nbytes or 0, flags)  # type: ignore[misc]  # a mixin before a socket
        exchange.took(count)
        return count

    def send(self: Any, data: Any, flags: int = 0) -> int:
        _going_out(self)
        return super().send(data, flags)  # type: ignore[misc,no-any-return]  # a mixin before a socket

    def sendall(self: Any, data: Any, flags: int = 0) -> None:
        _going_out(self)
        super().sendall(data, flags)  # type: ignore[misc]  # a mixin before a socket


def _going_out(sock: Any) -> None:
    """From here on, nobody can say that nothing reached the receiver."""
    exchange = UNDER_WAY.get()
    sock.settimeout(exchange.left())
    exchange.sent = True
    exchange.stage = Stage.SEND


class PlainSocket(_Bounded, socket.socket):
    """A TCP socket that keeps to the deadline."""


class TlsSocket(_Bounded, ssl.SSLSocket):
    """A TLS socket that keeps to the deadline, from its handshake on."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """Shake hands; OpenSSL takes the time left for the whole of it, however many records there are."""
        self.settimeout(UNDER_WAY.get().left())
        super().do_handshake(block)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send, encrypted: the library would send as it is on a socket that died before its handshake."""
        if self.version() is None:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        super().sendall(data, flags)


def tls_context(ca_file: str) -> ssl.SSLContext:
    """What every TLS connection must keep: 1.2 or newer, and a certificate for the host from one of these roots."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = TlsSocket
    return context
