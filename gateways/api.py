"""One POST to a provider's HTTP API, and what its answer says for certain.

The classes, by how far the exchange came:

- Before the first byte of the request (look-up, connect, TLS): nothing was accepted. `Deferred`.
- A byte went out and no whole status came: the provider may have it. `Unknown`.
- 2xx that names the message: `Accepted`. A 2xx that does not is no answer of this API: `Unknown`.
- 429: refused for now, with what it asks for. 401, 402, 403, 404, 405, 407: refused for our account, key or address,
  which somebody will mend. All `Deferred`.
- 409: another request with this key is under way, or was different: one of them may have been accepted. 408, 425, 3xx,
  5xx: nothing in them says what became of the request. `Unknown`.
- Any other 4xx is about this message: `Rejected`.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import client
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from domain.addresses import Target, check_url
from domain.contacts import credential
from domain.errors import BadInput
from domain.reminding import Accepted, Deferred, Outcome, Rejected, Unknown
from domain.webhooks import parse_retry_after
from gateways.exchange import Exchange, tls_context, uptime
from gateways.messaging import STOOD_STILL, under_way, why
from gateways.pinned import PinnedSession
from gateways.resolver import Resolver

CONNECTIONS = 32
"""Kept open to a provider: more than a worker has threads."""
_BODY = 64 * 1024
_HEAD = 256 * 1024
_AGENT = "Holdfast/0.1"
_OURS = {401, 402, 403, 404, 405, 407}
_UNCERTAIN = {408, 409, 425}
_NEVER = datetime.max.replace(tzinfo=UTC)
"""Instead of a clock: a `Retry-After` that is a date is read by the answer's own `Date`, or not at all."""
_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)
_ID = re.compile(r"[!-~]{1,128}", re.ASCII)

Find = Callable[[Any], object]
"""Where in an answer's JSON something stands; a KeyError, IndexError or TypeError where it does not."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole status line came, and as much of the body as came in time."""

    status: int
    body: bytes = field(repr=False)
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class NoReply:
    """No status line came."""

    reason: str
    sent: bool
    """Whether a byte of the request may have reached the provider."""


def check_base_url(raw: str) -> Target:
    """Where an API is: https, or plain http on loopback, where stand-ins are.

    Raises:
        BadInput: it is no such URL, or one with more than a host and a path.
    """
    target = check_url(raw.rstrip("/"), dangerous=True)
    if target.scheme != "https" and not _is_loopback(target.host):
        raise BadInput("url", "must begin with https://; plain http is for loopback only")
    return target


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Api:
    """Posts to one provider. It follows no redirect, takes no cookie, and reads nothing of the environment."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, deadline: timedelta, ca_file: Path | None = None
    ) -> None:
        """`headers` go with each request, credentials and all; `ca_file` replaces the public certificate roots.

        Raises:
            BadInput: a URL or a header that cannot be used.
        """
        target = check_base_url(base_url)
        self._url = target.url.rstrip("/")
        self._headers = {name: credential(name, value) for name, value in headers.items()} | {
            "User-Agent": _AGENT, "Accept": "application/json", "Accept-Encoding": "identity",
            "Connection": "keep-alive",
        }  # fmt: skip
        self._deadline = deadline
        tls = tls_context(str(ca_file or DEFAULT_CA_BUNDLE_PATH))
        self._session = PinnedSession(target, Resolver(anywhere=True), tls, connections=CONNECTIONS)

    def post(self, path: str, headers: Mapping[str, str], body: bytes, *, not_after: float) -> Reply | NoReply:
        """One request within the deadline, begun by then. Never raises."""
        with under_way(self._deadline, _BODY + _HEAD) as exchange:
            if uptime() > not_after:
                return NoReply(STOOD_STILL, sent=False)
            try:
                with closing(self._session.send(
                    self._request(path, headers, body),
                    stream=True, allow_redirects=False, timeout=None, verify=True, proxies={},
                )) as response:  # fmt: skip
                    return _read(response)
            except Exception as error:  # noqa: BLE001 - whatever an answer provokes must end as a value
                return _no_reply(error, exchange)

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def _request(self, path: str, headers: Mapping[str, str], body: bytes) -> requests.PreparedRequest:
        request = requests.PreparedRequest()
        request.method, request.url, request.body = "POST", self._url + path, body
        request.headers = CaseInsensitiveDict(self._headers | dict(headers) | {"Content-Length": str(len(body))})
        return request


def _read(response: requests.Response) -> Reply:
    """The answer; a body that breaks off in the middle is kept as far as it came, and will be no JSON."""
    parts: list[bytes] = []
    left = _BODY
    try:
        while left > 0 and (part := response.raw.read1(left, decode_content=False)):
            parts.append(part)
            left -= len(part)
    except (urllib3.exceptions.HTTPError, OSError, client.HTTPException, ValueError):
        response.raw.close()
    asked = parse_retry_after(response.headers.get("Retry-After"), now=_NEVER, date=response.headers.get("Date"))
    return Reply(response.status_code, b"".join(parts), asked)


def _no_reply(error: Exception, exchange: Exchange) -> Reply | NoReply:
    """After a status line there is an answer, whatever broke off behind it."""
    if exchange.status is not None:
        return Reply(exchange.status, b"", None)
    return NoReply(why(error, exchange.stage), exchange.sent)


def outcome(answer: Reply | NoReply, *, message_id: Find, error_code: Find) -> Outcome:
    """What is certain after this answer; the table stands at the head of this module."""
    match answer:
        case NoReply(reason, sent=False):
            return Deferred(f"nothing was sent: {reason}")
        case NoReply(reason):
            return Unknown(f"no answer: {reason}")
        case Reply(status) if 200 <= status < 300:  # noqa: PLR2004 - the class of status codes
            known = _found(answer.body, message_id, _ID)
            return Accepted(known) if known else Unknown(f"{status}, but the answer names no message")
        case Reply(status) if status in _OURS or status == client.TOO_MANY_REQUESTS:
            return Deferred(_refused(answer, error_code), answer.retry_after)
        case Reply(status) if 400 <= status < 500 and status not in _UNCERTAIN:  # noqa: PLR2004 - as above
            return Rejected(_refused(answer, error_code))
        case Reply():
            return Unknown(_refused(answer, error_code))


def _refused(answer: Reply, error_code: Find) -> str:
    """Status and the provider's own code, and none of its words: they repeat the customer's number."""
    code = _found(answer.body, error_code, _CODE)
    return f"answered {answer.status} {code}" if code else f"answered {answer.status}"


def _found(body: bytes, find: Find, form: re.Pattern[str]) -> str | None:
    try:
        found = find(json.loads(body))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    text = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
    return text if form.fullmatch(text) else None
