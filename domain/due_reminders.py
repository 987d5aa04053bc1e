"""What becomes of a reminder whose time has come, judged while its row is locked and before anything is sent."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import assert_never

from domain import quiet_hours
from domain.holds import Status
from domain.identity import HoldId
from domain.quiet_hours import Candidate, Rules
from domain.reminding import WINDOW_MARGIN, Again, Channel, Made, Message, Unknown, judge

BUSY = timedelta(seconds=1)
"""A reminder whose hold is just being changed is looked at again after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who would send it: the gateway's name, and how long it knows an idempotency key, None where it takes none."""

    name: str
    key_window: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNow:
    """The hold as it stands while its reminder's row is locked."""

    resource: str
    customer: str
    status: Status
    expires_at: datetime
    timezone: str | None
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    locale: str | None

    def contact(self, channel: Channel) -> str | None:
        """Where a message by this channel goes."""
        match channel:
            case Channel.EMAIL:
                return self.email
            case Channel.SMS:
                return self.phone
            case _:
                assert_never(channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReminder:
    """A reminder that is due, or whose worker ended: then it is `abandoned`, and its last attempt has no outcome."""

    key: str
    hold_id: HoldId
    channel: Channel
    expires_at: datetime
    lead: timedelta
    now: datetime
    """By the database's clock, after the row was locked."""
    hold: HoldNow | None
    busy: bool = False
    """The hold is just being changed by somebody."""
    abandoned: bool = False
    uncertain: bool = False
    """An attempt ended as unknown."""
    asked: bool = False
    """An operator asked for one more attempt."""
    attempts: int = 0
    age: timedelta = timedelta(0)
    """Since the first attempt."""
    provider: str | None = None
    """Who was asked at the last attempt."""
    message: Message | None = None
    """The text as it was frozen at the first attempt."""

    @property
    def doubt(self) -> bool:
        """Whether the customer may have it already."""
        return self.uncertain or self.abandoned

    def window(self, provider: Provider) -> timedelta | None:
        """How long this provider knows the reminder's key; None where nobody vouches for that."""
        return provider.key_window if not self.asked and provider.name == self.provider else None


@dataclass(frozen=True, slots=True)
class Send:
    """It is sent now, to this address."""

    to: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallOff:
    """Its hold is over, or has another deadline."""

    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """It is not to be sent."""

    reason: str


@dataclass(frozen=True, slots=True)
class BecomeEmail:
    """It becomes the email of its deadline and lead, or is covered by it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It is looked at again then."""

    until: datetime


@dataclass(frozen=True, slots=True)
class LeaveUnknown:
    """The customer may have it, and nothing vouches for a repeat: an operator decides."""

    reason: str


Unsent = CallOff | Drop | BecomeEmail | Wait | LeaveUnknown
Decision = Send | Unsent


def decide(due: DueReminder, provider: Provider | None, rules: Rules, *, random: Random) -> Decision:
    """What becomes of it. The hold goes first, then doubt, then the customer's hours; the last word is an operator's.

    An operator's `resend` is sent in quiet hours too: somebody has looked at it.
    """
    if due.busy:
        return Wait(due.now + BUSY)
    if (over := _over(due)) is not None:
        return CallOff(over)
    hold = due.hold
    to = hold.contact(due.channel) if hold else None
    if hold is None or to is None:
        return Drop(f"the hold has no contact for {due.channel}")
    if provider is None:
        return Drop(f"no gateway is set for {due.channel}")
    if due.doubt and (why := _nothing_vouches(due, provider, random)) is not None:
        return LeaveUnknown(why)
    return Send(to) if due.asked else _by_the_hour(due, hold, rules, random)


def _over(due: DueReminder) -> str | None:
    hold = due.hold
    if hold is None:
        return "the hold is gone"
    if hold.status is not Status.HELD:
        return f"the hold was {hold.status}"
    if hold.expires_at != due.expires_at:
        return "the hold was extended"
    return "the hold has lapsed" if hold.expires_at <= due.now else None


def _nothing_vouches(due: DueReminder, provider: Provider, random: Random) -> str | None:
    """Why it must not be sent again by itself; None where the provider knows its key still, or an operator asked."""
    if due.abandoned:
        made = Made(
            number=due.attempts, left=due.expires_at - due.now, age=due.age, key_window=due.window(provider),
            doubt=due.uncertain,
        )  # fmt: skip
        verdict = judge(Unknown("the worker ended before it recorded the outcome"), made, random=random)
        return None if isinstance(verdict, Again) else getattr(verdict, "reason", "")
    window = due.window(provider)
    if due.asked or (window is not None and due.age + WINDOW_MARGIN < window):
        return None
    return "an attempt may have been accepted, and the provider does not know its key any more"


def _by_the_hour(due: DueReminder, hold: HoldNow, rules: Rules, random: Random) -> Decision:
    candidate = Candidate(
        channel=due.channel, zone=hold.timezone, has_email=hold.email is not None, expires_at=due.expires_at
    )
    verdict = quiet_hours.decide(due.now, candidate, rules, random=random)
    to = hold.contact(due.channel)
    if isinstance(verdict, quiet_hours.SendNow) and to is not None:
        return Send(to)
    if due.doubt:
        return LeaveUnknown("an attempt may have been accepted, and quiet hours have begun")
    match verdict:
        case quiet_hours.Suppress(reason):
            return Drop(reason)
        case quiet_hours.DowngradeToEmail():
            return BecomeEmail()
        case quiet_hours.DelayUntil(instant):
            return Wait(instant)
        case _:
            raise AssertionError(verdict)
