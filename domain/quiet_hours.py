"""At which hours a customer is left alone, and what becomes of a reminder that falls into them.

The policy, and why. By default an SMS in quiet hours becomes an email where there is an address, and else is not sent:
it rings at a bedside, and in the US a text before 08:00 or from 21:00 on, local, can cost its sender a lawsuit (TCPA).
Not delayed, since most holds lapse before the morning, and a reminder of a lapsed hold is worse than none. An email is
always sent: it waits in its mailbox, silently, until it is read.

Quiet hours are stretches of real time between two readings of the customer's clock, and each night has one. A reading
that does not exist (spring) moves forward by the gap; of one that comes twice (autumn) the first counts, so a window
neither begins nor ends a second time in one night.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from random import Random
from typing import assert_never
from zoneinfo import ZoneInfo

from domain.errors import BadInput
from domain.instants import rfc3339
from domain.reminding import Channel

SPREAD = timedelta(minutes=15)
"""Delayed reminders go out within this after the window's end, so that a night's worth does not come at one second."""

_DAY = timedelta(days=1)
_FORM = re.compile(r"(\d\d:\d\d(?::\d\d)?)\s*-\s*(\d\d:\d\d(?::\d\d)?)", re.ASCII)


class Policy(StrEnum):
    """What becomes of a reminder in quiet hours."""

    SUPPRESS = "suppress"
    DOWNGRADE = "downgrade"
    """An SMS becomes an email if there is an address, and else is suppressed."""
    DELAY = "delay"
    """To the window's end, if the hold still lives then, and else it is suppressed."""
    SEND = "send"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one reading of the customer's clock up to another, which is no longer quiet; it may wrap midnight.

    Raises:
        BadInput: both are the same, or carry a zone: the zone is the customer's.
    """

    start: time = time(21)
    end: time = time(8)

    def __post_init__(self) -> None:
        if self.start.tzinfo or self.end.tzinfo:
            raise BadInput("quiet_hours", "carry a zone; leave it out, the customer's own counts")
        if self.start == self.end:
            raise BadInput("quiet_hours", "begin when they end; write them like 21:00-08:00, or off")

    def until(self, instant: datetime, zone: str | None) -> datetime | None:
        """When they end, in UTC, if this instant lies in them; `zone` is an IANA name, UTC without one."""
        end = self._ends(instant, zone)
        while end is not None and (later := self._ends(end, zone)) is not None:
            end = later
        return end

    def _ends(self, instant: datetime, zone: str | None) -> datetime | None:
        for start, end in self._around(instant, ZoneInfo(zone or "UTC")):
            if start <= instant < end:
                return end
        return None

    def _around(self, instant: datetime, zone: ZoneInfo) -> Iterator[tuple[datetime, datetime]]:
        """The windows that may hold the instant. Two days back, since a zone may skip one (Apia, 30 December 2011)."""
        today = instant.astimezone(zone).date()
        for day in (today - _DAY, today, today - 2 * _DAY):
            yield _at(day, self.start, zone), _at(day + _DAY if self.end < self.start else day, self.end, zone)


def _at(day: date, reading: time, zone: ZoneInfo) -> datetime:
    """The instant of this reading: `fold=0` moves what does not exist by the gap, and takes the first of two."""
    return datetime.combine(day, reading.replace(fold=0), zone).astimezone(UTC)


def parse_quiet_hours(raw: str) -> QuietHours | None:
    """`21:00-08:00`, or `off`, which is None.

    Raises:
        BadInput: it is neither.
    """
    if raw.strip().lower() == "off":
        return None
    match = _FORM.fullmatch(raw.strip())
    try:
        start, end = map(time.fromisoformat, match.groups() if match else ("", ""))
    except ValueError:
        raise BadInput("quiet_hours", f"{raw[:40]!r} are no hours; write them like 21:00-08:00, or off") from None
    return QuietHours(start, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a deployment has decided.

    Raises:
        BadInput: an email shall be downgraded: there is nothing below it.
    """

    hours: QuietHours | None = QuietHours()
    """None: there are no quiet hours."""
    sms: Policy = Policy.DOWNGRADE
    email: Policy = Policy.SEND

    def __post_init__(self) -> None:
        if self.email is Policy.DOWNGRADE:
            raise BadInput("quiet_email", "cannot be downgrade; use send, delay or suppress")

    def policy(self, channel: Channel) -> Policy:
        """The one for this channel."""
        match channel:
            case Channel.EMAIL:
                return self.email
            case Channel.SMS:
                return self.sms
            case _:
                assert_never(channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A reminder that is about to be sent."""

    channel: Channel
    zone: str | None
    """The customer's, an IANA name; UTC without one."""
    has_email: bool
    expires_at: datetime
    """The hold's deadline."""


@dataclass(frozen=True, slots=True)
class SendNow:
    """It may go out."""


@dataclass(frozen=True, slots=True)
class Suppress:
    """It is dropped."""

    reason: str


@dataclass(frozen=True, slots=True)
class DowngradeToEmail:
    """It becomes the email of its deadline and lead, or is covered by it."""


@dataclass(frozen=True, slots=True)
class DelayUntil:
    """It is due again then, and judged again."""

    instant: datetime


Verdict = SendNow | Suppress | DowngradeToEmail | DelayUntil


def decide(  # noqa: PLR0911 - the table has as many rows
    now: datetime, candidate: Candidate, rules: Rules, *, random: Random
) -> Verdict:
    """Whether this reminder may go out at this instant, and what becomes of it if not."""
    end = rules.hours.until(now, candidate.zone) if rules.hours else None
    if end is None:
        return SendNow()
    match rules.policy(candidate.channel):
        case Policy.SEND:
            return SendNow()
        case Policy.DOWNGRADE if candidate.has_email:
            return DowngradeToEmail()
        case Policy.DOWNGRADE:
            return Suppress("quiet hours, and no email address to use instead")
        case Policy.SUPPRESS:
            return Suppress("quiet hours")
        case Policy.DELAY if end < candidate.expires_at:
            return DelayUntil(_spread(end, candidate, rules, random))
        case Policy.DELAY:
            return Suppress(f"quiet hours last until {rfc3339(end)}, and the hold lapses before")
        case policy:
            assert_never(policy)


def _spread(end: datetime, candidate: Candidate, rules: Rules, random: Random) -> datetime:
    """Some time after the window's end, while the hold lives and before the next window begins."""
    chosen = end + min(SPREAD, candidate.expires_at - end) * random.random()
    return end if rules.hours and rules.hours.until(chosen, candidate.zone) else chosen
