"""What Holdfast keeps to of the Infrai contract: limits, calls, codes, keys and signatures. No network in it."""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from domain.errors import BadInput
from domain.webhooks import LONGEST_RETRY_AFTER, parse_retry_after

LONGEST_DELAY = timedelta(days=7)
"""A message may be delayed by so much, at most; what is due later waits in a table."""
LARGEST_PAYLOAD = 256_000
"""Bytes of compact JSON. Whether 256 KB means this or 262,144 is not published, so the smaller one is kept to."""
LARGEST_BATCH = 100
"""Messages published or consumed by one call."""
LONGEST_LEASE = timedelta(hours=12)
LONGEST_RUN = timedelta(seconds=900)
"""One run of a scheduled call, at most."""

RETRYABLE_CODES = frozenset({
    "RATE_LIMIT_USER", "RATE_LIMIT_IP", "VENDOR_QUOTA_EXCEEDED", "VENDOR_DOWN", "VENDOR_TIMEOUT", "MAINTENANCE",
})  # fmt: skip
"""Codes after which the same call may be made again."""
_RETRYABLE_STATUS = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip

_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,80}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,9}\.\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Capability:
    """One call as this client makes it; the discovery document must still say the same."""

    method: str
    path: str
    """`{}` stands for a resource's id, always in the last place."""
    sends: frozenset[str] = frozenset()
    """Fields of the body that Holdfast is nothing without."""
    may_send: frozenset[str] = frozenset()
    """Fields of the body for what only some callers ask for; the published tables do not list all of them."""


def _sends(method: str, path: str, fields: str = "", may: str = "") -> Capability:
    return Capability(method, path, frozenset(fields.split()), frozenset(may.split()))


CAPABILITIES: Mapping[str, Capability] = {
    "queue.create": _sends("POST", "/v1/queue/create", "name type dead_letter_queue max_retries message_retention_days "
                           "visibility_timeout_default", may="enable_priority"),
    "queue.publish": _sends("POST", "/v1/queue/publish", "queue payload delay_seconds",
                            may="priority message_group_id deduplication_id"),
    "queue.publish_batch": _sends("POST", "/v1/queue/publish_batch", "queue messages"),
    "queue.consume": _sends("POST", "/v1/queue/consume", "queue max_messages visibility_timeout"),
    "queue.ack": _sends("POST", "/v1/queue/ack", "queue message_id"),
    "queue.nack": _sends("POST", "/v1/queue/nack", "queue message_id", may="delay_seconds"),
    "queue.stats": _sends("GET", "/v1/queue/stats/{}"),
    "queue.dlq.redrive": _sends("POST", "/v1/queue/dlq/redrive/{}"),
    "queue.push_subscribe": _sends("POST", "/v1/queue/push_subscribe/{}", "url",
                                   may="secret visibility_timeout max_retries dead_letter_queue"),
    "queue.delete": _sends("DELETE", "/v1/queue/delete/{}"),
    "cron.create": _sends("POST", "/v1/cron/create", "name task",
                          may="cron_expr run_at timezone timeout_seconds retry overlap_policy max_runs payload headers "
                              "secret on_failure_webhook"),
    "cron.get": _sends("GET", "/v1/cron/get/{}"),
    "cron.list": _sends("GET", "/v1/cron/list"),
    "cron.pause": _sends("POST", "/v1/cron/pause/{}"),
    "cron.resume": _sends("POST", "/v1/cron/resume/{}"),
    "cron.trigger": _sends("POST", "/v1/cron/trigger/{}"),
    "cron.delete": _sends("DELETE", "/v1/cron/delete/{}"),
    "cron.runs.list": _sends("GET", "/v1/cron/runs/list/{}"),
}  # fmt: skip
"""Every call the client can make, by the id under which discovery tells of it."""


def queue_name(raw: str) -> str:
    """The name, if every reading of the contract takes it.

    Raises:
        BadInput: it is empty, longer than 80 signs, or holds another sign than letters, digits and `_ - .`.
    """
    if _QUEUE.fullmatch(raw) is None:
        raise BadInput("queue", f"{raw[:90]!r} is no queue's name; use 1 to 80 letters, digits, _ - or .")
    return raw


def delay_seconds(delay: timedelta) -> int:
    """A delay as it is sent: in whole seconds, rounded up, so that a message errs late only.

    Raises:
        BadInput: it is negative, or longer than seven days.
    """
    seconds = math.ceil(delay.total_seconds())
    if not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise BadInput("delay", f"is {seconds} s; it must be from 0 to 604,800 s; keep what is due later in a table")
    return seconds


def compact(value: object, field: str) -> bytes:
    """A JSON value in as few bytes as it takes, keys in order.

    Raises:
        BadInput: it is no JSON: another type, a NaN, a lone surrogate.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInput(field, "is no JSON value that every side reads alike") from None


def check_payload(payload: object) -> None:
    """Refuse a payload that may be over the limit.

    Raises:
        BadInput: it is no JSON, or more than 256,000 bytes of it.
    """
    size = len(compact(payload, "payload"))
    if size > LARGEST_PAYLOAD:
        raise BadInput("payload", f"has {size} bytes of JSON; {LARGEST_PAYLOAD} at most: send a reference instead")


def idempotency_key(capability: str, target: str, intent: str) -> str:
    """The key of a write: the same for the same intent, however often and by whatever process it is made.

    `intent` says what is meant to happen once. The body is left out on purpose: one that is written anew after a crash
    (with a shorter delay) must meet the key of the first, not pass for another message.
    """
    digest = hashlib.sha256(json.dumps([capability, target, intent]).encode()).hexdigest()
    return f"holdfast-{capability}-{digest[:40]}"


def is_retryable(status: int, code: str) -> bool:
    """Whether an answer asks for the same call again: by its status, or by its code where the fault is the server's."""
    server = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return status in _RETRYABLE_STATUS or (server and code in RETRYABLE_CODES)


def retry_after(raw: str | None, *, now: datetime, date: str | None) -> timedelta | None:
    """What `Retry-After` asks for: seconds, whole or decimal, or a date, read by the server's own clock (`Date`)."""
    if raw is not None and _DECIMAL.fullmatch(raw.strip()):
        return min(timedelta(seconds=float(raw)), LONGEST_RETRY_AFTER)
    return parse_retry_after(raw, now=now, date=date)


def push_signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 over the raw body, in hex."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_signed(secret: str, body: bytes, header: str) -> bool:
    """Whether a push carries the signature of this secret, bare or after `sha256=`: public material shows both."""
    given = header.removeprefix("sha256=").lower().encode()
    return hmac.compare_digest(given, push_signature(secret, body).encode())
