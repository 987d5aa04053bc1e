"""What the experiment asks of a transport: one module implements `Candidate`, and says plainly what it cannot do.

A candidate moves bodies. It knows no hold, no deadline and no outcome: what is done with a body is the worker's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from domain.errors import HoldfastError


class NotAvailable(HoldfastError):
    """The candidate's engine does not answer here; its column is skipped, with this reason."""


class PublishRefused(HoldfastError):
    """The transport did not take a message, and said so: the body is too large, or the delay too long."""


class Standing(StrEnum):
    """What really ran."""

    REAL = "the real engine"
    PROTOCOL = "its protocol on another engine"
    CONTRACT = "our local contract server"


class Ability(StrEnum):
    """What a transport may lack."""

    MESSAGES = "messages"
    ACKS = "acknowledgements"
    DELAY = "delayed delivery"
    CRON = "a scheduler of its own"


class Verdict(StrEnum):
    """What a worker answers to one delivery."""

    ACK = "ack"
    WITHHELD = "withheld"
    """No answer at all, as from a consumer that has died: the transport must bring the message again."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What ran, in which version, and whether it is the real one."""

    name: str
    version: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Limit:
    """A published limit. `value` is in seconds or bytes; None where none was found, and `text` says so."""

    value: int | None
    text: str
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Who a candidate is. `lacks` gives the reason, with its published limit, for each ability it does not have."""

    name: str
    title: str
    engine: Engine
    redelivery: str
    """How a message that nobody acknowledged comes back, in words."""
    comes_back: float
    """Seconds after which such a message is delivered again, at the latest."""
    payload: Limit
    delay: Limit
    client: str
    """What carried messages between us and the engine, with its version; or what stood in its place."""
    push: str | None = None
    """The address it pushes to; None where it is polled."""
    cron: str | None = None
    """What drives its own scheduler."""
    lacks: Mapping[Ability, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message on its way to a worker. `again` is what the transport says of it, None where it says nothing."""

    body: bytes
    message_id: str
    again: bool | None = None


Worker = Callable[[Delivery], Verdict]
"""Takes one delivery; it answers after its commit, never before."""


@dataclass(frozen=True, slots=True)
class Doorway:
    """How another process reaches a candidate that has been started: `attach` of a module, and what to give it."""

    module: str
    address: Mapping[str, Any]


class Candidate(Protocol):
    """A transport in the experiment. One process uses it at a time, but for the consumers made from its doorway."""

    def describe(self) -> Description:
        """Who it is; asked after `start`."""

    def start(self) -> None:
        """Make what it needs, under names of its own.

        Raises:
            NotAvailable: its engine does not answer; nothing is left behind.
        """

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        """Take a message, to be delivered once the delay has passed.

        Raises:
            PublishRefused: it was not taken.
        """

    def deliver(self, worker: Worker, patience: float) -> bool:
        """Hand the next message to the worker within so many seconds, and act on its verdict. False: none came."""

    def tick(self, act: Callable[[], None], patience: float) -> bool:
        """Act once, at the next tick of the candidate's own scheduler. False: none came within so many seconds."""

    def advance(self, by: timedelta) -> bool:
        """Let time pass for the transport at once. False: its clock is the world's, and it has to be waited for."""

    def doorway(self) -> Doorway:
        """How a consumer in another process finds it."""

    def serve(self, worker: Worker) -> None:
        """Deliver to the worker until this process is killed, as a consumer in production would."""

    def stop(self) -> None:
        """Remove everything `start` and its messages have made. May be called twice."""
