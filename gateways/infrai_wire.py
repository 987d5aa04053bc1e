"""One HTTP request to one origin over connections that are kept alive, under one deadline, its answer capped."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path

import requests
import urllib3
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from domain.addresses import Target, check_url
from domain.errors import BadInput, HoldfastError
from gateways.exchange import UNDER_WAY, Exchange, Stage, TooMuch, tls_context
from gateways.pinned import PinnedSession
from gateways.resolver import BlockedAddress, NameUnknown, Resolver, ResolverSilent

_HEAD_BUDGET = 64 * 1024
"""Bytes of an answer besides its body."""


class NoAnswer(HoldfastError):
    """There is no whole answer; whether the request took effect is not known."""


_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (NameUnknown, "the host has no address"),
    (BlockedAddress, "the host's address is not one that everybody can reach"),
    (ResolverSilent, "the resolver gives no answer"),
    (TooMuch, "the answer is longer than any answer of this call"),
)
_ON_THE_WAY = (
    requests.RequestException, urllib3.exceptions.HTTPError, OSError, HTTPException, ValueError,
    NoAnswer, NameUnknown, BlockedAddress, ResolverSilent,
)  # fmt: skip
"""What a network or an answer provokes; anything else is a defect of ours, and must not look like theirs."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, ready to go out."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    seconds: float
    """For all of it, from look-up to the last byte read."""
    most: int
    """Bytes of the answer's body, at most."""


def check_origin(raw: str, field: str) -> Target:
    """Where to send to: https, or plain http to this machine only, since a key goes with each request.

    Raises:
        BadInput: another form, or a host that not everybody can reach and that is not this machine.
    """
    try:
        target = check_url(raw.rstrip("/"), dangerous=True)
    except BadInput as refused:
        raise BadInput(field, refused.cause) from None
    if "?" in target.url:
        raise BadInput(field, "has a query; write the address alone, like https://api.example.com")
    if target.scheme == "http" and target.host not in _LOOPBACK:
        raise BadInput(field, "must begin with https://; plain http is for this machine only")
    return target


@cache
def _tls(ca_file: str) -> ssl.SSLContext:
    """Roots take their time to be read, so once a process."""
    return tls_context(ca_file)


class Wire:
    """Connections to one origin. Make it after the fork, share it between threads, close it at the end."""

    def __init__(
        self, target: Target, *, loopback: bool | None = None, connections: int = 8, ca_file: Path | None = None
    ) -> None:
        """`loopback` opens this machine, which is else open to a URL that names it; `ca_file` replaces the roots."""
        resolver = Resolver(loopback=target.host in _LOOPBACK if loopback is None else loopback)
        tls = _tls(str(ca_file or DEFAULT_CA_BUNDLE_PATH))
        self._session = PinnedSession(target, resolver, tls, connections=connections)
        self._prefix = target.url.rstrip("/")

    def ask(self, ask: Ask) -> Reply:
        """Make one request.

        Raises:
            NoAnswer: no connection, no whole answer in time, or more of it than was allowed for.
        """
        request = requests.PreparedRequest()
        body = ask.body or b""  # not None, and with its length: what the library is not told it makes up
        request.method, request.url, request.body = ask.method, self._prefix + ask.path, body
        request.headers = CaseInsensitiveDict(
            {"Accept-Encoding": "identity", "Connection": "keep-alive"}
            | dict(ask.headers)
            | {"Content-Length": str(len(body))}
        )
        with _under_way(ask) as exchange:
            try:
                return self._whole(request)
            except _ON_THE_WAY as error:
                raise NoAnswer(_explained(error, exchange)) from None

    def _whole(self, request: requests.PreparedRequest) -> Reply:
        with closing(self._session.send(
            request, stream=True, allow_redirects=False, timeout=None, verify=True, proxies={}
        )) as response:  # fmt: skip
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise NoAnswer("the answer is compressed, which was not asked for")
            return Reply(response.status_code, response.headers, response.raw.read(decode_content=False))

    def close(self) -> None:
        """Close every connection that is idle."""
        self._session.close()


@contextmanager
def _under_way(ask: Ask) -> Iterator[Exchange]:
    """The deadline runs from here."""
    exchange = Exchange(ask.seconds, ask.most + _HEAD_BUDGET)
    token = UNDER_WAY.set(exchange)
    try:
        yield exchange
    finally:
        UNDER_WAY.reset(token)


def _explained(error: BaseException, exchange: Exchange) -> str:
    """A line without an address or a key in it; libraries wrap the cause several times."""
    cause: BaseException | None = error
    while cause is not None:
        if line := _line(cause, exchange.stage):
            return line
        held = next((part for part in cause.args if isinstance(part, BaseException)), None)
        cause = cause.__cause__ or cause.__context__ or held
    return f"the connection ended {exchange.stage}"


def _line(cause: BaseException, stage: Stage) -> str | None:
    for kind, line in _CAUSES:
        if isinstance(cause, kind):
            return line
    match cause:
        case NoAnswer():
            return str(cause)
        case TimeoutError():
            return f"the deadline came {stage}"
        case ssl.SSLError():
            return f"TLS: {getattr(cause, 'verify_message', '') or cause.reason or 'failed'}"
        case OSError() if not isinstance(cause, requests.RequestException) and cause.strerror:
            return f"{cause.strerror}, {stage}"
    return None
