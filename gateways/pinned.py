"""A `requests` session for one target: it connects to checked addresses only, and keeps nothing but connections."""

import errno
import logging
import socket
import ssl
from http import client
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from domain.addresses import Target
from gateways.exchange import UNDER_WAY, Exchange, PlainSocket, Stage, uptime
from gateways.resolver import Address, Resolver, SockAddr

logging.getLogger("urllib3").setLevel(logging.ERROR)  # below that it writes URLs, which may hold a receiver's token

_MOST_ADDRESSES = 4
_CONNECTION_LIVES = 120.0
"""Seconds. Then the name is looked up anew, so that traffic follows it."""
_JOINED = 64 * 1024
"""Bytes of a body that are copied behind its head; a longer one goes out by itself."""
_CONNECTION_RESTS = 4.0
"""Seconds. Most receivers close after five or more; a request that crosses such a close on its way is a failure."""

_OUR_FAULTS = {
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT,
    errno.ENETUNREACH, errno.ENETDOWN, errno.EPERM, errno.EACCES,
}  # fmt: skip


def is_our_fault(error: OSError) -> bool:
    """Whether this machine, and not the receiver, kept a connection from being made."""
    return error.errno in _OUR_FAULTS


class _LastAnswer(client.HTTPResponse):
    """An answer whose status line counts once it is read, whatever comes after; what comes before it (1xx) does not."""

    def _read_status(self) -> tuple[str, int, str]:
        exchange = UNDER_WAY.get()
        exchange.stage = Stage.ANSWER
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]  # the one place that reads it
            if status == client.SWITCHING_PROTOCOLS:
                raise client.BadStatusLine("101 without being asked")
            if status >= client.OK:
                exchange.status = status
                return version, status, reason
            client._read_headers(self.fp)  # type: ignore[attr-defined]  # noqa: SLF001 - as it skips "100 Continue" itself


class _Pinned:
    """A connection that looks its host up once, checks every address, and connects to one it has checked."""

    def __init__(self: Any, *args: Any, resolver: Resolver, **options: Any) -> None:
        super().__init__(*args, **options)
        self._resolver = resolver
        self._opened = self._used = 0.0
        self._peer: str | None = None
        self._body_follows = False
        self._head = b""

    def _new_conn(self: Any) -> socket.socket:
        exchange = UNDER_WAY.get()
        exchange.stage = Stage.LOOKUP
        addresses = self._resolver.addresses(self.host, self.port, exchange.left())
        sock = connected(addresses, exchange)
        exchange.stage = Stage.TLS if isinstance(self, HTTPSConnection) else Stage.SEND
        self._opened, self._peer = uptime(), exchange.peer
        return sock

    def request(self: Any, *args: Any, **options: Any) -> None:
        self._used = uptime()
        if self.sock is not None:
            UNDER_WAY.get().peer = self._peer
        self._head, self._body_follows = b"", 0 < len(options["body"]) <= _JOINED
        super().request(*args, **options)  # type: ignore[misc]  # a mixin before a connection

    def send(self: Any, data: Any) -> None:
        """Head and body together, in one segment and one record of TLS; the library would send one after the other."""
        if self._body_follows:
            self._head, self._body_follows = data, False
        else:
            joined, self._head = self._head + data, b""
            super().send(joined)  # type: ignore[misc]  # a mixin before a connection

    @property
    def is_connected(self: Any) -> bool:
        """Whether this connection may carry one more request."""
        now = uptime()
        fresh: bool = now - self._opened < _CONNECTION_LIVES and now - self._used < _CONNECTION_RESTS
        return fresh and super().is_connected and self.sock.carries_another()  # type: ignore[misc]  # a mixin before a connection


class _PlainConnection(_Pinned, HTTPConnection):
    """Plain HTTP, for development and tests."""

    response_class = _LastAnswer


class _TlsConnection(_Pinned, HTTPSConnection):
    """HTTPS: name, SNI and certificate are the host's, whatever address was connected to."""

    response_class = _LastAnswer


def connected(addresses: list[Address], exchange: Exchange) -> socket.socket:
    """The first connection that is taken; each address gets its share of the time left, so one dead one is not all."""
    exchange.stage = Stage.CONNECT
    tried = addresses[:_MOST_ADDRESSES]
    errors: list[OSError] = []
    for place, (family, at) in enumerate(tried):
        exchange.peer = _shown(at)
        try:
            return _open(family, at, exchange.left() / (len(tried) - place))
        except OSError as error:
            errors.append(error)
    raise next((error for error in errors if not is_our_fault(error)), errors[0])


def _open(family: socket.AddressFamily, at: SockAddr, limit: float) -> socket.socket:
    sock = PlainSocket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(limit)
        sock.connect(at)
    except BaseException:
        sock.close()
        raise
    return sock


def _shown(at: SockAddr) -> str:
    return f"[{at[0]}]:{at[1]}" if ":" in at[0] else f"{at[0]}:{at[1]}"


class _PinnedAdapter(HTTPAdapter):
    """Sends to one target through one pool. There is no proxy, no retry, and nothing of the environment's in it."""

    def __init__(self, target: Target, resolver: Resolver, tls: ssl.SSLContext, connections: int) -> None:
        host = f"[{target.host}]" if ":" in target.host else target.host
        common: dict[str, Any] = {"maxsize": connections, "block": False, "resolver": resolver}
        self._pool: HTTPConnectionPool
        if target.scheme == "https":
            self._pool = HTTPSConnectionPool(host, target.port, ssl_context=tls, **common)
            self._pool.ConnectionCls = _TlsConnection
        else:
            self._pool = HTTPConnectionPool(host, target.port, **common)
            self._pool.ConnectionCls = _PlainConnection
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """None: there is one pool."""

    def get_connection_with_tls_context(self, *_args: Any, **_options: Any) -> HTTPConnectionPool:
        """The one pool."""
        return self._pool

    def cert_verify(self, *args: Any, **options: Any) -> None:
        """Nothing to set: the context verifies, and reads its roots once instead of at each connection."""

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """The answer without its cookies."""
        response = requests.Response()
        response.status_code, response.reason = resp.status, resp.reason
        response.headers = CaseInsensitiveDict(resp.headers)
        response.raw, response.request, response.url = resp, req, req.url or ""
        return response

    def close(self) -> None:
        """Close idle connections; one in use is closed when it is given back."""
        self._pool.close()


class _NoCookies(RequestsCookieJar):
    """Takes none."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Leave them where they are."""


class PinnedSession(requests.Session):
    """A session for one target. It follows no redirect, takes no cookie, and reads neither environment nor .netrc."""

    def __init__(self, target: Target, resolver: Resolver, tls: ssl.SSLContext, *, connections: int) -> None:
        """`connections` are kept alive at most; more at once work, and are closed after use."""
        super().__init__()
        self.target = target
        self.trust_env = False
        self.cookies = _NoCookies()
        self.adapters.clear()
        self.mount(f"{target.scheme}://", _PinnedAdapter(target, resolver, tls, connections))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Nowhere. Left to itself, the library reads a redirect's whole body, even when told not to follow."""
