"""Send one signed request, and say what came of it: a value, whatever the receiver does."""

import ssl
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import client
from pathlib import Path
from threading import Lock

import requests
import urllib3
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from domain.addresses import NOT_ALLOWED, Target, check_url
from domain.errors import BadInput
from domain.signing import Key, signed_headers
from domain.webhooks import Answered, Failed, FailureKind, Result, parse_retry_after
from gateways.exchange import UNDER_WAY, Exchange, Stage, tls_context, uptime
from gateways.pinned import PinnedSession, is_our_fault
from gateways.resolver import BlockedAddress, NameUnknown, Resolver, ResolverSilent

_HEAD_BUDGET = 256 * 1024
"""Bytes of an answer besides its body: status lines, headers, chunk sizes, a handshake's tail."""
_LONGEST_DETAIL = 200
_INFLATERS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_WHILE_READING = (urllib3.exceptions.HTTPError, OSError, client.HTTPException, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One attempt, ready to be signed and sent."""

    endpoint_id: str
    url: str
    event_id: str
    timestamp: int
    """The instant of this attempt in Unix seconds, by the database's clock."""
    body: bytes = field(repr=False)
    keys: Sequence[Key] = field(repr=False)
    not_after: float
    """The last instant of `uptime` at which it may begin: when the delivery was taken, plus its lease, less the
    deadline. So it is over before another worker may take it, however long this one was stopped meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a sender."""

    deadline: timedelta = timedelta(seconds=15)
    """From look-up to the last byte read, all in all."""
    body: int = 16 * 1024
    """Bytes of an answer's body that are read, after decompression."""
    kept: int = 1024
    """Characters of it that are kept."""
    sessions: int = 128
    """Endpoints whose connections stay open; the least recently used one gives way."""
    connections: int = 4
    """Connections kept open for each."""


class Sender:
    """Sends webhooks for one process; make it after the fork, share it between threads, close it at the end."""

    def __init__(
        self, limits: Limits, *, dangerous: bool = False, resolver: Resolver | None = None,
        ca_file: Path | None = None, user_agent: str = "Holdfast/0.1",
    ) -> None:  # fmt: skip
        """`dangerous` opens plain http, every port and loopback; `ca_file` replaces the public certificate roots."""
        self.limits = limits
        self._dangerous = dangerous
        self._resolver = resolver or Resolver(loopback=dangerous)
        self._tls: ssl.SSLContext = tls_context(str(ca_file or DEFAULT_CA_BUNDLE_PATH))
        self._fixed = {
            "User-Agent": user_agent, "Accept-Encoding": "identity", "Accept": "*/*", "Connection": "keep-alive",
            "Content-Type": "application/json",
        }  # fmt: skip
        self._sessions: OrderedDict[str, PinnedSession] = OrderedDict()
        self._lock = Lock()

    def check(self, url: str) -> Target:
        """The target of a URL whose host may be sent to now: the guard for making, editing and testing an endpoint.

        Raises:
            BadInput: its form or one of its addresses is refused, or it has none.
        """
        target = check_url(url, dangerous=self._dangerous)
        try:
            self._resolver.addresses(target.host, target.port, self.limits.deadline.total_seconds())
        except BlockedAddress:
            raise BadInput("url", NOT_ALLOWED) from None
        except NameUnknown:
            raise BadInput("url", "has a host without an address; check its spelling") from None
        except ResolverSilent:
            raise BadInput("url", "cannot be checked: the resolver gives no answer; try again") from None
        return target

    def send(self, post: Post) -> Result:
        """Make one request within the deadline. Never raises: what a receiver does is a value.

        A worker that was frozen since it took the delivery sends nothing: another may have taken it by now. Frozen
        later, before the first byte, it finds the deadline over, which runs on a clock that does not stop.
        """
        if uptime() > post.not_after:
            return Failed(FailureKind.OURS, "this worker stood still since it took the delivery", None, sent=False)
        with _under_way(self.limits) as exchange:
            try:
                target = check_url(post.url, dangerous=self._dangerous)
            except BadInput:
                return Failed(FailureKind.BLOCKED, NOT_ALLOWED, None, sent=False)
            try:
                request = self._request(target, post)
                with closing(self._session(post.endpoint_id, target).send(
                    request, stream=True, allow_redirects=False, timeout=None, verify=True, proxies={}
                )) as response:  # fmt: skip
                    return self._answered(response, exchange, post)
            except Exception as error:  # noqa: BLE001 - whatever a hostile answer provokes must end as a value
                return _came_to_nothing(error, exchange)

    def close(self) -> None:
        """Close every connection that is idle."""
        with self._lock:
            while self._sessions:
                self._sessions.popitem()[1].close()

    def _session(self, endpoint_id: str, target: Target) -> PinnedSession:
        """The endpoint's session, kept from the last time unless it now has another address.

        One that gives way is let go, not closed: a thread may be using it, and its sockets close with it.
        """
        with self._lock:
            session = self._sessions.get(endpoint_id)
            if session is None or _origin(session.target) != _origin(target):
                session = PinnedSession(target, self._resolver, self._tls, connections=self.limits.connections)
                self._sessions[endpoint_id] = session
            self._sessions.move_to_end(endpoint_id)
            if len(self._sessions) > self.limits.sessions:
                self._sessions.popitem(last=False)
            return session

    def _request(self, target: Target, post: Post) -> requests.PreparedRequest:
        """The request as it goes out; made by hand, since there is nothing of a session or an environment to merge."""
        request = requests.PreparedRequest()
        request.method, request.url, request.body = "POST", target.url, post.body
        request.headers = CaseInsensitiveDict(
            self._fixed
            | signed_headers(post.keys, post.event_id, post.timestamp, post.body)
            | {"Content-Length": str(len(post.body))}
        )
        return request

    def _answered(self, response: requests.Response, exchange: Exchange, post: Post) -> Answered:
        """The answer, with as much of its body as came in time and is wanted."""
        now = datetime.fromtimestamp(post.timestamp, UTC)
        asked = parse_retry_after(response.headers.get("Retry-After"), now=now, date=response.headers.get("Date"))
        body = _body(response, self.limits.body)
        return Answered(response.status_code, _text(body, self.limits.kept), asked, exchange.peer or "")


@contextmanager
def _under_way(limits: Limits) -> Iterator[Exchange]:
    """The deadline runs from here."""
    exchange = Exchange(limits.deadline.total_seconds(), limits.body + _HEAD_BUDGET)
    token = UNDER_WAY.set(exchange)
    try:
        yield exchange
    finally:
        UNDER_WAY.reset(token)


def _origin(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.host, target.port


def _body(response: requests.Response, limit: int) -> bytes:
    """The beginning of the body, decompressed; what breaks off in the middle is kept as far as it came."""
    raw, parts, left = response.raw, [], limit
    try:
        while left > 0 and (part := raw.read1(left, decode_content=False)):
            parts.append(part)
            left -= len(part)
    except _WHILE_READING:
        raw.close()
    return _inflated(b"".join(parts), response.headers.get("Content-Encoding", "").strip().lower(), limit)


def _inflated(data: bytes, encoding: str, limit: int) -> bytes:
    """What a receiver compressed although it was asked not to; no more than the limit, however much is in it."""
    if encoding not in _INFLATERS:
        return data
    try:
        return zlib.decompressobj(_INFLATERS[encoding]).decompress(data, limit)
    except zlib.error:
        return data


def _text(body: bytes, kept: int) -> str:
    """Text that every table takes."""
    return body.decode("utf-8", "replace").replace("\x00", "")[:kept]


def _came_to_nothing(error: Exception, exchange: Exchange) -> Result:
    """The value for a request that ended in an exception.

    After a status line there is an answer, whatever broke off behind it: a delivered event is never sent again.
    """
    if exchange.status is not None:
        return Answered(exchange.status, "", None, exchange.peer or "")
    kind, detail = _kind(error, exchange.stage)
    if kind is FailureKind.TIMEOUT and exchange.stood_still():
        kind, detail = FailureKind.OURS, f"this worker stood still {exchange.stage}"
    peer = None if kind is FailureKind.BLOCKED else exchange.peer
    return Failed(kind, _line(detail), peer, exchange.sent)


def _kind(error: Exception, stage: Stage) -> tuple[FailureKind, str]:
    """The class of a failure, and a line about it."""
    for cause in _causes(error):
        if found := _before_connecting(cause) or _on_the_wire(cause, stage):
            return found
    return FailureKind.OURS, type(error).__name__


def _before_connecting(cause: BaseException) -> tuple[FailureKind, str] | None:
    match cause:
        case BlockedAddress():
            return FailureKind.BLOCKED, NOT_ALLOWED
        case NameUnknown():
            return FailureKind.DNS, "the host has no address"
        case ResolverSilent():
            return FailureKind.OURS, f"the resolver fails: {cause}"
        case BadInput():
            return FailureKind.OURS, str(cause)
    return None


def _on_the_wire(cause: BaseException, stage: Stage) -> tuple[FailureKind, str] | None:
    match cause:
        case TimeoutError():
            return FailureKind.TIMEOUT, f"the deadline came {stage}"
        case ssl.SSLError():
            return FailureKind.TLS, getattr(cause, "verify_message", "") or cause.reason or str(cause)
        case requests.RequestException():
            return None  # says no more than what it wraps
        case OSError():
            return _broken(cause, stage)
        case client.HTTPException():
            kind = FailureKind.TLS if stage is Stage.TLS else FailureKind.PROTOCOL
            return kind, f"{type(cause).__name__}: {cause}"
    return None


def _broken(error: OSError, stage: Stage) -> tuple[FailureKind, str]:
    """A connection that was not made, or that broke."""
    what = error.strerror or "closed without an answer"
    if is_our_fault(error):
        return FailureKind.OURS, f"{what}, {stage}"
    match stage:
        case Stage.LOOKUP | Stage.CONNECT:
            return FailureKind.CONNECT, what
        case Stage.TLS:
            return FailureKind.TLS, f"{what}, {stage}"
        case _:
            return FailureKind.RESET, f"{what}, {stage}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from or in, or was made of: libraries wrap theirs several times."""
    while error is not None:
        yield error
        held = next((part for part in error.args if isinstance(part, BaseException)), None)
        error = error.__cause__ or error.__context__ or held


def _line(text: str) -> str:
    """One line of printable text."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST_DETAIL])
