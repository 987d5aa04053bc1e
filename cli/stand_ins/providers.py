"""Resend, Twilio and Telnyx, as far as one message needs them: paths, credentials, keys, answers and errors."""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from cli.stand_ins.faults import Fault, Faults, Then

API_KEY = "stand-in-key"
"""Resend's and Telnyx's."""
ACCOUNT = "AC00000000000000000000000000000000"
TOKEN = "stand-in-token"  # noqa: S105 - opens nothing but the stand-in
_TWILIO = f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"
_PATHS = {"/emails": "resend", "/v2/messages": "telnyx", _TWILIO: "twilio"}
_BASIC = "Basic " + base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
_SIGNED = {"resend": f"Bearer {API_KEY}", "telnyx": f"Bearer {API_KEY}", "twilio": _BASIC}
_CHANGED = {"resend": (409, "invalid_idempotent_request"), "telnyx": (422, "10015")}
"""What another body under the same key is answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came."""

    provider: str
    key: str | None
    headers: dict[str, str] = field(repr=False)
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """The form's, or the JSON's."""
        if self.provider == "twilio":
            return dict(parse_qsl(self.body.decode(), keep_blank_values=True))
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; None breaks the connection off, and no answer at all is silence."""

    status: int
    body: bytes
    retry_after: int | None = None

    def as_bytes(self) -> bytes:
        """As it goes over the wire."""
        asked = f"Retry-After: {self.retry_after}\r\n" if self.retry_after is not None else ""
        return (
            f"HTTP/1.1 {self.status} -\r\nContent-Type: application/json\r\n{asked}"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        ).encode() + self.body


class Providers:
    """The three of them behind one port."""

    def __init__(self, *, delay: float = 0.0) -> None:
        """They answer each request after `delay` seconds."""
        self.delay = delay
        self.faults = Faults()
        self.requests: list[Request] = []
        self.messages: list[Request] = []
        """What a customer would have got: one for each key, at Twilio one for each request."""
        self.heard = self.taken = 0
        """Requests and messages so far; kept where the lists are not."""
        self.keeps = True
        self.connections = 0
        self._known: dict[tuple[str, str], tuple[bytes, Answer]] = {}

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer | Then:
        """What to do about one request."""
        provider = _PATHS.get(path)
        if provider is None:
            return Answer(404, b'{"name":"not_found","code":20404,"errors":[{"code":"10005"}]}')
        request = Request(provider, headers.get("idempotency-key") if provider != "twilio" else None, headers, body)
        self.heard += 1
        if self.keeps:
            self.requests.append(request)
        if headers.get("authorization") != _SIGNED[provider]:
            return _refused(provider, 401)
        fault = self.faults.next()
        honest = self._taken(request) if fault is None or fault.effect else None
        return _failing(provider, fault) if fault else honest or Then.DROP

    def _taken(self, request: Request) -> Answer:
        """A new message, or the answer that its key got the first time."""
        known = self._known.get((request.provider, request.key or ""))
        if known is not None:
            return known[1] if known[0] == request.body else _refused(request.provider, *_CHANGED[request.provider])
        self.taken += 1
        if self.keeps:
            self.messages.append(request)
        answer = Answer(201 if request.provider == "twilio" else 200, _accepted(request.provider, self.taken))
        if request.key is not None:
            self._known[request.provider, request.key] = request.body, answer
        return answer


def _accepted(provider: str, number: int) -> bytes:
    name = f"{number:032x}"
    told: Any = {
        "resend": {"id": name},
        "telnyx": {"data": {"record_type": "message", "id": name, "to": [{"status": "queued"}]}},
        "twilio": {"sid": f"SM{name}", "status": "queued", "error_code": None},
    }[provider]
    return json.dumps(told).encode()


def _refused(provider: str, status: int, code: str = "", retry_after: int | None = None) -> Answer:
    """An error in the provider's own form; its words repeat an address and a number, as theirs do."""
    words = "+4915112345678 and anna@example.com are not welcome here"
    told: Any = {
        "resend": {"statusCode": status, "name": code or "validation_error", "message": words},
        "telnyx": {"errors": [{"code": code or "10015", "title": "Bad Request", "detail": words}]},
        "twilio": {"code": 21211, "message": words, "status": status},
    }[provider]
    return Answer(status, json.dumps(told).encode(), retry_after)


def _failing(provider: str, fault: Fault) -> Answer | Then:
    match fault.then:
        case Then.ANSWER:
            return _refused(provider, fault.status, retry_after=fault.retry_after)
        case Then.NONSENSE:
            return Answer(200, b"<html>Welcome to the Wi-Fi of this hotel</html>")
        case Then.DROP | Then.SILENCE:
            return fault.then


class Talk(asyncio.Protocol):
    """One connection, from the providers' side: a request, its answer, and the next."""

    def __init__(self, providers: Providers, loop: asyncio.AbstractEventLoop) -> None:
        providers.connections += 1
        self._providers, self._loop = providers, loop
        self._came = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Speak through this."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer, once a request is whole."""
        self._came += data
        head, ended, rest = self._came.partition(b"\r\n\r\n")
        if not ended:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): text for name, _, text in (one.partition(": ") for one in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._came = rest[length:]
        if line.startswith("GET /count "):
            self._say(Answer(200, self._count()))
            return
        answer = self._providers.answer(line.split(" ")[1], headers, rest[:length])
        if answer is Then.SILENCE:
            return
        self._loop.call_later(self._providers.delay, self._say, answer)

    def _count(self) -> bytes:
        at = self._providers
        return json.dumps({"requests": at.heard, "messages": at.taken, "connections": at.connections}).encode()

    def _say(self, answer: Answer | Then) -> None:
        assert self._transport is not None
        if isinstance(answer, Answer):
            self._transport.write(answer.as_bytes())
        else:
            self._transport.abort()
