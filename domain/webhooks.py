"""What an attempt to deliver came to, and what follows from it: the table of outcomes, and the ladder of waits."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from random import Random
from typing import assert_never

from domain.errors import BadInput

LADDER = tuple(
    timedelta(seconds=wait)
    for wait in (0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
)  # fmt: skip
"""The longest wait before each attempt: at once, 5 s, 5 m, 30 m, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."""

LONGEST_RETRY_AFTER = timedelta(hours=1)
"""A receiver may ask for no more than this."""

_OUR_PAUSE = timedelta(seconds=30)
"""A fault of ours is looked at again no sooner than within this, whatever an endpoint's ladder says."""
_MOST_ATTEMPTS = 100
_LONGEST_WAIT = timedelta(days=7)
_LONGEST_LIFE = timedelta(days=30)


class FailureKind(StrEnum):
    """Why no answer came."""

    DNS = "dns"
    """The name has no address."""
    CONNECT = "connect"
    """Nobody took the connection."""
    TLS = "tls"
    """The handshake failed, or the certificate does not hold for the host."""
    TIMEOUT = "timeout"
    """The deadline came first."""
    RESET = "reset"
    """The connection broke off."""
    PROTOCOL = "protocol"
    """What came is no HTTP."""
    BLOCKED = "blocked"
    """Our own address guard refused the target."""
    OURS = "ours"
    """A fault on our side: resolver down, no sockets left, no key."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A status line came. Whatever went wrong after it, this is the answer."""

    status: int
    body_cut: str
    """The beginning of the body, as text that any table takes."""
    retry_after: timedelta | None
    peer: str
    """The address that answered, with its port."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No status line came."""

    kind: FailureKind
    detail: str
    """One line for an operator; it holds no secret, and for a blocked target nothing at all."""
    peer: str | None
    """The address that was tried last, if one was."""
    sent: bool
    """Whether a byte of the request may have reached the receiver."""


Result = Answered | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long one delivery is tried: both bounds hold, whichever comes first."""

    waits: tuple[timedelta, ...] = LADDER
    """The longest wait before each attempt; the last one repeats."""
    attempts: int = len(LADDER)
    max_age: timedelta = timedelta(days=4)
    """No attempt starts later after the event than this; it stands still while the endpoint is paused or disabled."""
    refusals_are_final: bool = False
    """Whether a 3xx or a 4xx that promises nothing for later ends the delivery."""

    def __post_init__(self) -> None:
        if not self.waits or not all(timedelta(0) <= wait <= _LONGEST_WAIT for wait in self.waits):
            raise BadInput("waits", "must be one wait or more, each from 0 to 7 days")
        if not 1 <= self.attempts <= _MOST_ATTEMPTS:
            raise BadInput("attempts", f"must lie between 1 and {_MOST_ATTEMPTS}")
        if not timedelta(0) < self.max_age <= _LONGEST_LIFE:
            raise BadInput("max_age", "must be longer than zero and at most 30 days")

    def step(self, attempt: int) -> timedelta:
        """The longest wait before this attempt; the first is 1."""
        return self.waits[min(attempt, len(self.waits)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The attempt that was just made."""

    number: int
    """Its place among the delivery's attempts; the first is 1."""
    age: timedelta
    """How old the delivery is by now, without the time its endpoint was paused or disabled."""
    spared: int = 0
    """How many earlier attempts were not charged to the receiver."""


class FinalReason(StrEnum):
    """Why a delivery ends as a dead letter."""

    ATTEMPTS = "attempts used up"
    AGE = "too old"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Delivered:
    """Done, for ever."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after this wait."""

    wait: timedelta
    charged: bool
    """Whether this failure counts toward disabling the endpoint."""


@dataclass(frozen=True, slots=True)
class Final:
    """Never tried again by itself: a dead letter."""

    reason: FinalReason
    charged: bool
    """Whether this failure counts toward disabling the endpoint."""


@dataclass(frozen=True, slots=True)
class NotCharged:
    """The fault is ours: try again after this wait; it uses up none of the receiver's attempts, only the age."""

    wait: timedelta
    kind: FailureKind


@dataclass(frozen=True, slots=True)
class EndpointGone:
    """The receiver asks for nothing more: disable the endpoint, pause its deliveries."""

    then: Retry | Final
    """What becomes of this delivery once somebody enables the endpoint again."""


Verdict = Delivered | Retry | Final | NotCharged | EndpointGone


def judge(  # noqa: PLR0911 - the table has as many rows
    result: Result, made: Made, policy: RetryPolicy, *, random: Random
) -> Verdict:
    """What follows from one attempt. Total: every result has exactly one verdict."""
    match result:
        case Answered(status=status) if 200 <= status < 300:  # noqa: PLR2004 - the class of status codes
            return Delivered()
        case Answered(status=410):
            return EndpointGone(_again(made, policy, random))
        case Answered(status=429, retry_after=asked):
            return _again(made, policy, random, asked=asked, charged=False)
        case Answered(status=status) if policy.refusals_are_final and not _may_pass(status):
            return Final(FinalReason.REFUSED, charged=True)
        case Answered(retry_after=asked):
            return _again(made, policy, random, asked=asked)
        case Failed(kind=FailureKind.BLOCKED | FailureKind.OURS as kind):
            return _not_charged(made, policy, random, kind)
        case Failed():
            return _again(made, policy, random)
        case _:
            assert_never(result)


def _may_pass(status: int) -> bool:
    """Whether the receiver itself says that this may pass: too slow, too early, too many, or its own fault."""
    return status in {408, 425, 429} or status >= 500  # noqa: PLR2004 - the class of status codes


def _again(
    made: Made, policy: RetryPolicy, random: Random, *, asked: timedelta | None = None, charged: bool = True
) -> Retry | Final:
    """The next attempt, unless the attempts are used up or it would start too late."""
    if made.number - made.spared >= policy.attempts:
        return Final(FinalReason.ATTEMPTS, charged)
    wait = max(wait_before(made.number + 1, policy, random), min(asked or timedelta(0), LONGEST_RETRY_AFTER))
    return Final(FinalReason.AGE, charged) if made.age + wait > policy.max_age else Retry(wait, charged)


def _not_charged(made: Made, policy: RetryPolicy, random: Random, kind: FailureKind) -> NotCharged | Final:
    """As the ladder goes on, so that a long fault of ours makes few attempts; the age bounds it."""
    wait = _jittered(max(policy.step(made.number + 1), _OUR_PAUSE), random)
    return Final(FinalReason.AGE, charged=False) if made.age + wait > policy.max_age else NotCharged(wait, kind)


def wait_before(attempt: int, policy: RetryPolicy, random: Random) -> timedelta:
    """The wait before this attempt, with full jitter: anything from nothing to the ladder's step, evenly."""
    return _jittered(policy.step(attempt), random)


def _jittered(longest: timedelta, random: Random) -> timedelta:
    return longest * random.random()


def parse_retry_after(raw: str | None, *, now: datetime, date: str | None = None) -> timedelta | None:
    """What a `Retry-After` asks for: seconds, or a date, which is read by the receiver's own clock (`Date`).

    Rubbish, and what lies in the past, is None; nothing is longer than an hour.
    """
    if raw is None:
        return None
    if re.fullmatch(r"\d{1,18}", raw.strip(), re.ASCII):
        return min(timedelta(seconds=min(int(raw), 86_400)), LONGEST_RETRY_AFTER)
    until = _http_date(raw)
    if until is None:
        return None
    wait = until - (_http_date(date) or now)
    return min(wait, LONGEST_RETRY_AFTER) if wait >= timedelta(0) else None


def _http_date(raw: str | None) -> datetime | None:
    """An HTTP date in any of its forms, in UTC."""
    try:
        instant = parsedate_to_datetime(raw or "")
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
