"""One request under way: its deadline, its bytes, how far it came, and sockets that keep to it.

A time limit per read is none at all: a receiver that drips a byte a second passes it for ever. So every wait of a
socket here is for what is left of the whole request, and every byte that comes is counted as it comes from the
network: before TLS, whose tickets and new keys are bytes too, and in the handshake.
"""

import socket
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from http.client import HTTPException
from typing import Any, TypeVar


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


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_STOOD_STILL = 2.0
"""Seconds past a deadline. Whoever notices it only then was not running: every wait ends with it."""


def uptime() -> float:
    """Seconds on a clock nobody sets. It goes on while the machine is suspended; on Linux, `monotonic` does not."""
    return time.clock_gettime(_CLOCK)


class Exchange:
    """One request under way, in one thread."""

    __slots__ = ("ends", "peer", "sent", "stage", "status", "unread")

    def __init__(self, limit: float, budget: int) -> None:
        """`limit` in seconds from now, for all of it; `budget` in bytes from the network, those of TLS included."""
        self.ends = uptime() + limit
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
        left = self.ends - uptime()
        if left <= 0:
            raise OutOfTime
        return left

    def stood_still(self) -> bool:
        """Whether the deadline was noticed so late that this process, or its machine, must have been stopped."""
        return uptime() > self.ends + _STOOD_STILL

    def took(self, count: int) -> None:
        """Note that so many bytes have come.

        Raises:
            TooMuch: they are more than the budget.
        """
        self.unread -= count
        if self.unread < 0:
            raise TooMuch("more than any answer needs")


UNDER_WAY: ContextVar[Exchange] = ContextVar("the request this thread is making")


_FED = 16 * 1024
"""Bytes OpenSSL is given at once: what it does with them before it comes back is soon done."""
_SEALED = 64 * 1024
"""Bytes of a body that are encrypted at once, and so are held twice."""
_Done = TypeVar("_Done")


class PlainSocket(socket.socket):
    """A TCP socket of which every wait ends at the deadline of the request under way."""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Some bytes, counted."""
        exchange = UNDER_WAY.get()
        self.settimeout(exchange.left())
        count = super().recv_into(buffer, nbytes, flags)
        exchange.took(count)
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send it all. From here on, nobody can say that nothing reached the receiver."""
        exchange = UNDER_WAY.get()
        self.settimeout(exchange.left())
        exchange.sent = True
        exchange.stage = Stage.SEND
        super().sendall(data, flags)

    def carries_another(self) -> bool:
        """Whether one more request may go out on it, with an answer that is its own."""
        return True


class TlsSocket(PlainSocket):
    """TLS over a TCP socket that keeps to the deadline; it takes the other socket's place.

    OpenSSL never reads from the network: one read of its own would go on for as long as records come that are no
    data, whatever its time limit. It is fed here, a little at a time.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str | None) -> None:
        """Shake hands. If that fails, the connection is closed.

        Raises:
            OutOfTime, TooMuch: see `Exchange`.
            OSError: the connection broke, or (`ssl.SSLError`) the receiver is not whom it should be.
        """
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._cut_off = False
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)
            self._until_done(self._tls.do_handshake, self._flush)
        except BaseException:
            self.close()
            raise

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Some bytes of the answer; none at its end, whether or not the receiver took leave as TLS wants it."""
        del flags
        if not self._leftover():
            self._feed()
        read: Callable[[], Any] = partial(self._tls.read, nbytes or len(buffer), buffer)
        try:
            return int(self._until_done(read, self._reply))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send it all, encrypted."""
        with memoryview(data) as view:
            for start in range(0, len(view), _SEALED):
                self._tls.write(view[start : start + _SEALED])
                super().sendall(self._goes.read(), flags)

    def carries_another(self) -> bool:
        """Not behind bytes that nobody has read, since the next answer would begin with them.

        Nor behind a reply of which only a part went out: the receiver would take what comes next for the rest of it.
        """
        return not self._leftover() and not self._cut_off

    def _leftover(self) -> int:
        """How many bytes came from the network and were read by nobody."""
        return self._came.pending + self._tls.pending()

    def _until_done(self, step: Callable[[], _Done], flush: Callable[[], None]) -> _Done:
        """Let OpenSSL do this, feeding it for as long as it wants more, and sending what it says meanwhile."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                flush()
                self._feed()
            except ssl.SSLError:
                self._reply()  # tells the receiver what was wrong with its certificate
                raise
            else:
                flush()
                return done

    def _feed(self) -> None:
        """Hand on what comes next from the network, or that nothing more will."""
        exchange = UNDER_WAY.get()
        self.settimeout(exchange.left())
        data = super().recv(_FED)
        exchange.took(len(data))
        if data:
            self._came.write(data)
        else:
            self._came.write_eof()

    def _flush(self) -> None:
        """Send what OpenSSL has to say for itself: a handshake, an alert, new keys. It is nothing of the request."""
        if self._goes.pending:
            self.settimeout(UNDER_WAY.get().left())
            socket.socket.sendall(self, self._goes.read())

    def _reply(self) -> None:
        """Send it if anybody listens: a receiver that has gone may have answered before."""
        try:
            self._flush()
        except OSError:
            self._cut_off = True


class _Context(ssl.SSLContext):
    """Wraps a socket in TLS of ours."""

    def wrap_socket(  # type: ignore[override]  # a socket all the same
        self, sock: socket.socket, *_: Any, server_hostname: str | None = None, **_options: Any
    ) -> TlsSocket:
        return TlsSocket(sock, self, server_hostname)


def tls_context(ca_file: str) -> ssl.SSLContext:
    """What every TLS connection must keep: 1.2 or newer, and a certificate for the host from one of these roots."""
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
