"""What sending one reminder came to, and what follows from it: three outcomes, and a short ladder of waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import assert_never

LADDER = (timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))
"""The longest wait before the second to the fifth attempt."""

ATTEMPTS = len(LADDER) + 1
"""Attempts at one reminder, at most; an operator's `resend` is not one of them."""

LONGEST_RETRY_AFTER = timedelta(hours=1)
"""A provider may ask for no more than this."""

WINDOW_MARGIN = timedelta(minutes=1)
"""An attempt that relies on a provider's memory of the key begins this long before that memory ends: clocks differ."""


class Channel(StrEnum):
    """A way to a customer."""

    EMAIL = "email"
    SMS = "sms"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as it is frozen when the reminder is taken. It names a customer's hold, so no log shows it."""

    subject: str | None = field(repr=False)
    """An email's; an SMS has none."""
    text: str = field(repr=False)
    html: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One reminder, ready to be sent; each attempt sends the same."""

    key: str
    """The reminder's effect key; also the provider's idempotency key, where it takes one."""
    channel: Channel
    to: str = field(repr=False)
    """An email address, or a number in E.164."""
    text: Rendered

    def as_data(self) -> dict[str, str | None]:
        """As JSON keeps it."""
        return {
            "key": self.key, "channel": self.channel.value, "to": self.to,
            "subject": self.text.subject, "text": self.text.text, "html": self.text.html,
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: Mapping[str, str | None]) -> "Message":
        """The message that `as_data` told; a KeyError or ValueError if it was something else."""
        key, channel, to, text = data["key"], data["channel"], data["to"], data["text"]
        if key is None or channel is None or to is None or text is None:
            raise ValueError("a message has a key, a channel, a recipient and a text")
        return cls(key, Channel(channel), to, Rendered(data["subject"], text, data["html"]))


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider has taken the message, and will answer for it."""

    provider_id: str | None
    """How the provider knows it."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """It was surely not accepted, and may be tried again: nobody answered, too many at once, our configuration."""

    reason: str
    """One line for an operator; no contact and no secret in it."""
    retry_after: timedelta | None = None
    """What the provider asks for."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It was surely not accepted, and never will be."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A byte went out and nothing certain came back: the customer may have it, or not."""

    reason: str


Outcome = Accepted | Deferred | Rejected | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The attempt that was just made, by the database's clock."""

    number: int
    """Its place among the reminder's attempts; the first is 1."""
    left: timedelta
    """Until the hold's deadline. No attempt begins from then on."""
    age: timedelta
    """Since the first attempt began."""
    key_window: timedelta | None
    """How long the provider knows a key again; None where it takes none."""
    doubt: bool = False
    """Whether an earlier attempt ended as unknown: then only "accepted" can still say what the customer has."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Done, for ever."""

    provider_id: str | None


@dataclass(frozen=True, slots=True)
class Again:
    """Send the same once more after this wait, under the same key."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class Failed:
    """The customer did surely not get it, and it is not tried again by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Nobody knows whether the customer got it: an operator decides."""

    reason: str


Next = Sent | Again | Failed | Undecided


def judge(outcome: Outcome, made: Made, *, random: Random) -> Next:
    """What follows from one attempt. Total: every outcome has exactly one continuation.

    What may have reached the customer is sent again only under a key that the provider still knows. A doubt stays: a
    refusal that comes after an unknown attempt tells of itself alone.
    """
    match outcome:
        case Accepted(provider_id):
            return Sent(provider_id)
        case Unknown(reason):
            return _in_doubt(reason, None, made, random)
        case Deferred(reason, asked) if made.doubt:
            return _in_doubt(reason, asked, made, random)
        case Rejected(reason) if made.doubt:
            return Undecided(f"{reason}; an earlier attempt may have been accepted")
        case Deferred(reason, asked):
            return _not_accepted(reason, asked, made, random)
        case Rejected(reason):
            return Failed(reason)
        case _:
            assert_never(outcome)


def _not_accepted(reason: str, asked: timedelta | None, made: Made, random: Random) -> Again | Failed:
    if made.number >= ATTEMPTS:
        return Failed(f"{reason}; {ATTEMPTS} attempts were made")
    wait = wait_before(made.number + 1, asked, random)
    return Again(wait) if wait < made.left else Failed(f"{reason}; the hold lapses before the next attempt")


def _in_doubt(reason: str, asked: timedelta | None, made: Made, random: Random) -> Again | Undecided:
    if made.key_window is None:
        return Undecided(f"{reason}; this provider takes no key, so it is not sent again by itself")
    if made.number >= ATTEMPTS:
        return Undecided(f"{reason}; {ATTEMPTS} attempts were made")
    wait = wait_before(made.number + 1, asked, random)
    if wait >= made.left:
        return Undecided(f"{reason}; the hold lapses before the next attempt")
    if made.age + wait + WINDOW_MARGIN >= made.key_window:
        return Undecided(f"{reason}; the provider will not know the key any more")
    return Again(wait)


def wait_before(attempt: int, asked: timedelta | None, random: Random) -> timedelta:
    """The wait before this attempt (2 or more), with full jitter, and no shorter than a provider asks for."""
    step = LADDER[min(attempt - 2, len(LADDER) - 1)]
    return max(step * random.random(), min(asked or timedelta(0), LONGEST_RETRY_AFTER))
