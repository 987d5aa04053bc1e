"""One call to Infrai: made again while that can help, and taken out of its envelope."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from threading import Event
from time import monotonic, time
from typing import Any
from urllib.parse import quote

from domain.infrai import CAPABILITIES, Capability, compact, idempotency_key, is_retryable, retry_after
from gateways.infrai_errors import InfraiError, Told, Unreachable, Unreadable, WaitAsked, one_line, refusal
from gateways.infrai_wire import Ask, NoAnswer, Reply, Wire

LONGEST_SLEEP = timedelta(seconds=2)
"""A longer wait is for a row to keep, not for a thread to sleep."""
_FIRST_WAIT = 0.1
_SMALL_ANSWER = 1024 * 1024

Json = Any
"""What JSON can hold; every reader checks what it takes out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The bounds of one call, all its attempts and waits together."""

    deadline: timedelta = timedelta(seconds=10)
    attempts: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be done."""

    capability: str
    target: str | None = None
    """The id in the last place of the path."""
    body: Mapping[str, Json] | None = None
    intent: str | None = None
    """What is meant to happen once; None reads only."""
    most: int = _SMALL_ANSWER
    """Bytes of the answer, at most."""


def _pause(seconds: float) -> None:
    Event().wait(seconds)


@dataclass(slots=True)
class Caller:
    """Makes calls with one key over one wire."""

    wire: Wire
    key: str = field(repr=False)
    patience: Patience
    pause: Callable[[float], None] = _pause
    """How the short waits are waited; a test counts them."""

    def data(self, call: Call) -> Json:
        """The `data` of the envelope of a call.

        Raises:
            WaitAsked: the service asked for a wait that is longer than a call may sleep, or was busy at each attempt.
            Unreachable: no answer at any attempt.
            Unreadable: the answer is of no known form.
            InfraiError: any other refusal, by its class.
        """
        capability = CAPABILITIES[call.capability]
        ask = partial(self._ask, capability, call)
        return self._until_settled(call.capability, ask, partial(_data, call.capability))

    def document(self, name: str) -> dict[str, Json]:
        """What discovery says of a capability: unwrapped, and readable without a key.

        Raises:
            InfraiError: as for any call; `NotThere` if discovery does not know it.
        """
        path = f"/v1/discovery/{quote(name, safe='')}"
        label = f"discovery of {name}"

        def ask(seconds: float) -> Ask:
            return Ask("GET", path, {"Accept": "application/json"}, None, seconds, _SMALL_ANSWER)

        document: dict[str, Json] = self._until_settled(label, ask, partial(_object, label))
        return document

    def _until_settled(
        self, label: str, ask: Callable[[float], Ask], read: Callable[[Reply], Json]
    ) -> Json:  # fmt: skip
        """Ask until there is an answer that a repeat would not better.

        Two at once with one key: the server lets one through and gives both its answer. Dies before the answer: the
        effect may have happened, and whoever repeats it uses the same key. A clock that is wrong: waits are measured
        by a monotonic one, and dates are read by the server's own.
        """
        ends = monotonic() + self.patience.deadline.total_seconds()
        last: InfraiError = Unreachable(label, Told(hint="the deadline came"))
        for attempt in range(1, self.patience.attempts + 1):
            left = ends - monotonic()
            if left <= 0:
                break
            try:
                reply = self.wire.ask(ask(left))
            except NoAnswer as fault:
                last, wait = Unreachable(label, Told(hint=str(fault))), _ladder(attempt)
            else:
                told = _told(reply, self.key)
                if HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
                    return read(reply)
                if not is_retryable(reply.status, told.code):
                    raise refusal(label, told)
                wait = _asked(reply) or _ladder(attempt)
                last = WaitAsked(label, told, wait)
            if wait > LONGEST_SLEEP or monotonic() + wait.total_seconds() >= ends:
                break
            if attempt < self.patience.attempts:
                self.pause(wait.total_seconds())
        raise last

    def _ask(self, capability: Capability, call: Call, seconds: float) -> Ask:
        path = capability.path.replace("{}", quote(call.target or "", safe=""))
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json"}
        if call.intent is not None:
            headers["Idempotency-Key"] = idempotency_key(call.capability, call.target or "", call.intent)
        body = None
        if capability.method != "GET":
            headers["Content-Type"] = "application/json"
            body = compact(dict(call.body or {}), "body") + b"\n"
        return Ask(capability.method, path, headers, body, seconds, call.most)


def _ladder(attempt: int) -> timedelta:
    """The wait after this attempt where nobody says how long: doubled each time, half of it by chance."""
    top = _FIRST_WAIT * 2 ** (attempt - 1)
    return timedelta(seconds=top * (0.5 + secrets.randbelow(1000) / 2000))


def _asked(reply: Reply) -> timedelta | None:
    now = datetime.fromtimestamp(time(), UTC)
    return retry_after(reply.headers.get("Retry-After"), now=now, date=reply.headers.get("Date"))


def _parsed(reply: Reply) -> Json:
    """The body as JSON, or None."""
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        return None


def _told(reply: Reply, key: str) -> Told:
    """What a failure says, in whatever form: an envelope, parts of one, or none at all."""
    envelope = _parsed(reply)
    envelope = envelope if isinstance(envelope, dict) else {}
    error, metadata = (_mapping(envelope.get(name)) for name in ("error", "metadata"))
    hint = _text(error, "hint") or _text(error, "message")
    return Told(
        reply.status,
        _text(error, "code") or "UNKNOWN_ERROR",
        one_line(hint.replace(key, "***")),
        _text(metadata, "request_id"),
    )


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    return one_line(value) if isinstance(value, str) else ""


def _object(label: str, reply: Reply) -> dict[str, Json]:
    value = _parsed(reply)
    if not isinstance(value, dict):
        raise Unreadable(label, Told(reply.status, "UNREADABLE", "the answer is no JSON object"), "body")
    return value


def _data(label: str, reply: Reply) -> Json:
    envelope = _object(label, reply)
    request_id = _text(_mapping(envelope.get("metadata")), "request_id")
    if envelope.get("ok") is not True:
        raise Unreadable(label, Told(reply.status, "UNREADABLE", "`ok` is not true", request_id), "ok")
    return envelope.get("data")  # void calls may have none; whoever reads it names what is missing
