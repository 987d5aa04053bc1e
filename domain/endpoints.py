"""Who hears of facts: an endpoint as it is kept, its bounds, and the facts about endpoints themselves."""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from domain.changes import Event, Kind
from domain.errors import BadInput
from domain.identity import EventId
from domain.instants import rfc3339
from domain.webhooks import RetryPolicy

EndpointId = NewType("EndpointId", str)

MOST_SLOTS = 64
"""Requests one endpoint may have under way, at most."""
LONGEST_GRACE = timedelta(days=7)
"""How long a key may go on signing beside its successor, at most."""
_HIGHEST_RATE = 10_000.0
_LOWEST_RATE = 0.001
_ENDPOINT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class State(StrEnum):
    """Where an endpoint stands. Deleted is for ever; the row stays."""

    ENABLED = "enabled"
    PAUSED = "paused"
    DISABLED = "disabled"
    DELETED = "deleted"


class Told(StrEnum):
    """What others were last told of an endpoint; each is also the end of an event's type."""

    FAILING = "failing"
    DISABLED = "disabled"
    RECOVERED = "recovered"


RESERVATION_TYPES = tuple(f"reservation.{kind.value}" for kind in Kind)
ENDPOINT_TYPES = tuple(f"endpoint.{told.value}" for told in Told)
EVENT_TYPES = (*RESERVATION_TYPES, *ENDPOINT_TYPES)
"""What can be subscribed to."""
TEST_TYPE = "webhook.test"
"""Goes to the one endpoint that is tested, and nobody subscribes to it."""


def endpoint_id(raw: str) -> EndpointId:
    """The text as an endpoint's id.

    Raises:
        BadInput: it is not 1 to 64 of A-Z a-z 0-9 _ -.
    """
    if _ENDPOINT_ID.fullmatch(raw) is None:
        raise BadInput("endpoint", f"{raw[:70]!r} is no endpoint id; use 1 to 64 of A-Z a-z 0-9 _ -")
    return EndpointId(raw)


def new_endpoint_id() -> EndpointId:
    """An id for an endpoint whose owner gave none."""
    return EndpointId(f"ep_{secrets.token_hex(10)}")


def event_types(raw: Sequence[str]) -> tuple[str, ...]:
    """These types, each once, in the order of EVENT_TYPES.

    Raises:
        BadInput: none at all, or one that no event has.
    """
    if not raw:
        raise BadInput("types", "are none; leave them out to get every type")
    for name in raw:
        if name not in EVENT_TYPES:
            raise BadInput("types", f"{name[:40]!r} is no event type; use {', '.join(EVENT_TYPES)}")
    return tuple(name for name in EVENT_TYPES if name in raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Where an endpoint's bounds differ from the deployment's; None where they do not."""

    waits: tuple[timedelta, ...] | None = None
    max_attempts: int | None = None
    max_age: timedelta | None = None
    client_errors_final: bool = False
    """Whether a 3xx or a 4xx that promises nothing for later ends the delivery."""

    def over(self, policy: RetryPolicy) -> RetryPolicy:
        """The bounds that hold for this endpoint.

        Raises:
            BadInput: one of them lies outside what is possible.
        """
        return replace(
            policy,
            waits=policy.waits if self.waits is None else self.waits,
            attempts=policy.attempts if self.max_attempts is None else self.max_attempts,
            max_age=policy.max_age if self.max_age is None else self.max_age,
            refusals_are_final=self.client_errors_final,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an endpoint's owner decides. `url` has been through the address guard, `label` through `clean_label`."""

    url: str
    label: str | None = None
    types: tuple[str, ...] | None = None
    """None: every type, also those still to be invented."""
    overrides: Overrides = field(default_factory=Overrides)
    slots: int = 4
    """Requests under way at once, at most, over all workers."""
    rate: float | None = None
    """Requests a second, at most, over all workers; None is no limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MOST_SLOTS:
            raise BadInput("slots", f"must lie between 1 and {MOST_SLOTS}")
        if self.rate is not None and not _LOWEST_RATE <= self.rate <= _HIGHEST_RATE:
            raise BadInput("rate", f"must lie between {_LOWEST_RATE} and {_HIGHEST_RATE:.0f} a second")
        self.overrides.over(RetryPolicy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint as it stood at `read_at` by the database's clock."""

    id: EndpointId
    terms: Terms
    state: State
    reason: str | None
    created_at: datetime
    failing_since: datetime | None
    """When the failures in a row began, later by the time the endpoint was paused since."""
    failures: int
    """Charged failures in a row."""
    breaker_until: datetime | None
    """Until then nothing is sent; after it, one request at a time until one succeeds. None: all is well."""
    told: Told | None
    read_at: datetime

    @property
    def breaker(self) -> str:
        """`closed`, `open` or `half-open`."""
        return breaker(self.breaker_until, self.read_at)


def breaker(until: datetime | None, now: datetime) -> str:
    """How a breaker that was set to this instant stands: `closed`, `open` or `half-open`."""
    if until is None:
        return "closed"
    return "open" if until > now else "half-open"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """When failures in a row close the tap for a while, warn, and end it."""

    breaker_after: int = 5
    """Failures in a row after which the breaker opens."""
    breaker_pause: timedelta = timedelta(seconds=5)
    """How long it stays open at first; twice as long after each probe that fails."""
    breaker_longest: timedelta = timedelta(minutes=1)
    warn_after: timedelta = timedelta(days=1)
    """Failing this long without a success, others are told."""
    disable_after: timedelta = timedelta(days=5)
    """Failing this long without a success, it is disabled; never before others were told."""

    def __post_init__(self) -> None:
        if not self.warn_after < self.disable_after:
            raise BadInput("warn_after", "must be shorter than disable_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """How deliveries are taken and tried, unless an endpoint's overrides say otherwise."""

    lease: timedelta
    """How long a taken delivery, and the slot it is sent from, is left alone; longer than a request's deadline."""
    dispatch: timedelta = timedelta(seconds=5)
    """How long a slot waits for its message before another is published."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    health: HealthPolicy = field(default_factory=HealthPolicy)
    pace_slack: timedelta = timedelta(milliseconds=250)
    """How much of an unused rate is kept: a tick's worth, so that ticks can reach the rate."""
    threads: int = 48
    """Requests that all workers together can have under way."""
    slow_after: timedelta = timedelta(seconds=1)
    """An endpoint whose last request took this long, or that has one under way for so long, is slow."""


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def endpoint_event(told: Told, endpoint: EndpointId, reason: str, at: datetime) -> Event:
    """A fact about an endpoint, for the others: its id and why; no URL, since that may be a secret of its owner.

    The instant stands in the id, in microseconds: facts about one endpoint are made one after another.
    """
    return _event(f"endpoint.{told.value}", f"endpoint-{told.value}", endpoint, {"reason": reason}, at)


def trial_event(endpoint: EndpointId, at: datetime) -> Event:
    """What `endpoints test` sends."""
    return _event(TEST_TYPE, "webhook-test", endpoint, {}, at)


def _event(kind: str, name: str, endpoint: EndpointId, more: dict[str, str], at: datetime) -> Event:
    body = {"type": kind, "timestamp": rfc3339(at), "data": {"endpoint_id": endpoint, **more}}
    instant = int(at.timestamp()) * 1_000_000 + at.microsecond
    return Event(EventId(f"{name}:{endpoint}:{instant}"), kind, _encode(body).encode())
