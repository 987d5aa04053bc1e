"""What every way to a customer has in common: one small protocol, so that a further provider is one module."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from requests import RequestException

from domain.reminding import Channel, Message, Outcome
from gateways.exchange import UNDER_WAY, Exchange, TooMuch
from gateways.resolver import NameUnknown, ResolverSilent

KEY_WINDOW = timedelta(hours=24)
"""How long Resend and Telnyx know a key again."""


class Gateway(Protocol):
    """Sends messages for one process; made after the fork, shared between threads, closed at the end.

    It decides nothing: it sends once, and says what is certain about that.
    """

    @property
    def name(self) -> str:
        """As settings and records call it."""

    @property
    def channel(self) -> Channel:
        """What it carries."""

    @property
    def key_window(self) -> timedelta | None:
        """How long the provider answers a repeated key without sending again; None where it takes no key."""

    def send(self, message: Message, *, not_after: float) -> Outcome:
        """Send once, within the deadline. Never raises; no reason it gives holds a contact, a text or a secret.

        `not_after`: nothing is begun once `gateways.exchange.uptime` is past this. A worker that was frozen since it
        took the reminder, or whose machine was, must not send what an operator may have sent again by now. Frozen
        later, it finds the deadline over, which runs on the same clock and is kept at every read and write.
        """

    def close(self) -> None:
        """Close idle connections."""


@contextmanager
def under_way(deadline: timedelta, budget: int) -> Iterator[Exchange]:
    """One exchange; its deadline runs from here, and no more bytes than the budget are read in it."""
    exchange = Exchange(deadline.total_seconds(), budget)
    token = UNDER_WAY.set(exchange)
    try:
        yield exchange
    finally:
        UNDER_WAY.reset(token)


STOOD_STILL = "this worker stood still since it took the reminder"
"""Why a message was not begun; it may be, by whoever has the reminder now."""


def why(error: BaseException | None, stage: str) -> str:  # noqa: PLR0911 - one line a cause
    """One line about a failure: its own words where it knows some, and how far the exchange had come.

    Libraries wrap failures several times; the outermost that says something counts. Nothing the other side said is in
    it, since it may repeat the customer's address.
    """
    while error is not None:
        match error:
            case TimeoutError():
                return f"the deadline came {stage}"
            case NameUnknown():
                return "the host has no address"
            case ResolverSilent():
                return f"the resolver fails: {error}"
            case TooMuch():
                return f"it sent more than any answer needs, {stage}"
            case ssl.SSLError():
                return f"TLS: {getattr(error, 'verify_message', '') or error.reason or 'failed'}"
            case OSError(strerror=str(said)) if not isinstance(error, RequestException):
                return f"{said}, {stage}"
        error = error.__cause__ or error.__context__
    return f"broken off, {stage}"
