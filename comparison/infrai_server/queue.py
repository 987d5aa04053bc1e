"""One queue: what is ready, what waits, what is leased. Time is an argument; nothing here runs by itself."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

Json = Any
_DAY = 86_400


@dataclass(slots=True)
class Message:
    """A message, from its publication until it is acknowledged or its time is over."""

    message_id: str
    payload: Json
    published_at: float
    visible_at: float
    place: int
    """Its place in the order of publication."""
    origin: str
    """The queue it was published to: where a redrive takes it back to."""
    priority: int = 0
    group: str | None = None
    headers: dict[str, str] | None = None
    deliveries: int = 0
    failures: int = 0
    leased_until: float | None = None
    lease: float = 0.0
    stamp: int = 0
    """Raised at each change, so that an older entry of it in a heap counts no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a queue behaves."""

    fifo: bool = False
    dead_letter_queue: str | None = None
    max_retries: int = 3
    retention_days: int = 4
    lease: int = 30
    priorities: bool = False
    expiries_count: bool = True
    """X8."""
    backoff: bool = False
    """U16."""


@dataclass(frozen=True, slots=True)
class Handing:
    """How one consume hands messages out: faults of a transport that a consumer must bear."""

    duplicates: int = 0
    """So many of them stay visible although they are handed out."""
    newest_first: bool = False


ORDERLY = Handing()


@dataclass(slots=True)
class Queue:
    """Messages by their state. Entries of heaps are checked when they come up, instead of being searched for."""

    rules: Rules
    messages: dict[str, Message] = field(default_factory=dict)
    seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By deduplication id: the message it was first used for, and until when that counts."""
    _ready: list[tuple[int, int, int, str]] = field(default_factory=list)
    _waiting: list[tuple[float, int, int, str]] = field(default_factory=list)
    _ends: list[tuple[float, str]] = field(default_factory=list)
    _groups: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def put(self, message: Message, now: float) -> None:
        """Take a message in, whether it is new, dead elsewhere, or comes back from there."""
        self.messages[message.message_id] = message
        heappush(self._ends, (message.published_at + self.rules.retention_days * _DAY, message.message_id))
        if self.rules.fifo:
            heappush(self._groups.setdefault(message.group or "", []), (message.place, message.message_id))
        self._hide(message, message.visible_at, now)

    def settle(self, now: float) -> list[Message]:
        """Bring everything up to this instant; returns the messages that are dead by it, which left the queue."""
        while self._ends and self._ends[0][0] <= now:
            self.drop(heappop(self._ends)[1], now)
        dead: list[Message] = []
        while self._waiting and self._waiting[0][0] <= now:
            at, _, stamp, message_id = heappop(self._waiting)
            message = self.messages.get(message_id)
            if message is None or message.stamp != stamp:
                continue
            if message.leased_until is None:
                self._offer(message)
            elif self._lease_ended(message, at, now):
                dead.append(message)
        return dead

    def take(self, most: int, lease: float, now: float, handing: Handing = ORDERLY) -> list[Message]:
        """Up to `most` visible messages, hidden from now on until their lease ends or they are acknowledged."""
        if handing.newest_first:
            self._ready.sort(reverse=True)
        taken: list[Message] = []
        while self._ready and len(taken) < most:
            _, _, stamp, message_id = self._ready.pop(0) if handing.newest_first else heappop(self._ready)
            message = self.messages.get(message_id)
            if message is not None and message.stamp == stamp and self._is_first(message):
                taken.append(message)
                message.deliveries += 1
                message.stamp += 1
        if handing.newest_first:
            heapify(self._ready)
        for number, message in enumerate(taken):
            if number < handing.duplicates:
                self._offer(message)
                continue
            message.lease, message.leased_until = lease, now + lease
            heappush(self._waiting, (message.leased_until, message.place, message.stamp, message.message_id))
        return taken

    def drop(self, message_id: str, now: float) -> Message | None:
        """Take a message out for good; the next of its group moves up."""
        message = self.messages.pop(message_id, None)
        if message is not None and self.rules.fifo:
            head = self._head(message.group or "")
            if head is not None and head.leased_until is None and head.visible_at <= now:
                self._offer(head)
        return message

    def give_back(self, message: Message, delay: float, now: float) -> bool:
        """Count a failure of a leased message; True if it is dead by it, and left the queue."""
        message.leased_until = None
        return self._failed(message, now + delay, now)

    def wait(self, message: Message, until: float, now: float) -> None:
        """End a lease; the message is visible from `until` on."""
        message.leased_until = None
        self._hide(message, until, now)

    def counts(self, now: float) -> tuple[int, int, int]:
        """How many are visible, leased, and delayed."""
        leased = sum(message.leased_until is not None for message in self.messages.values())
        delayed = sum(message.leased_until is None and message.visible_at > now for message in self.messages.values())
        return len(self.messages) - leased - delayed, leased, delayed

    def _lease_ended(self, message: Message, at: float, now: float) -> bool:
        """The same for a lease nobody ended; True if the message is dead by it."""
        message.leased_until = None
        if not self.rules.expiries_count:
            self._hide(message, at, now)
            return False
        longer = message.lease * (2**message.failures - 1) if self.rules.backoff else 0.0
        return self._failed(message, at + longer, now)

    def _failed(self, message: Message, visible_at: float, now: float) -> bool:
        message.failures += 1
        if message.failures > self.rules.max_retries and self.rules.dead_letter_queue is not None:
            self.drop(message.message_id, now)
            return True
        self._hide(message, visible_at, now)
        return False

    def _hide(self, message: Message, until: float, now: float) -> None:
        message.visible_at = until
        message.stamp += 1
        if until > now:
            heappush(self._waiting, (until, message.place, message.stamp, message.message_id))
        else:
            self._offer(message)

    def _offer(self, message: Message) -> None:
        """Make a message ready, if no earlier one of its group stands before it."""
        if not self._is_first(message):
            return
        message.stamp += 1
        priority = -message.priority if self.rules.priorities else 0
        heappush(self._ready, (priority, message.place, message.stamp, message.message_id))

    def _is_first(self, message: Message) -> bool:
        """Whether no earlier message of its group stands before it; what is not is offered once it is."""
        return not self.rules.fifo or self._head(message.group or "") is message

    def _head(self, group: str) -> Message | None:
        """The first message of a group that is still there."""
        places = self._groups.get(group, [])
        while places and places[0][1] not in self.messages:
            heappop(places)
        if not places:
            self._groups.pop(group, None)
            return None
        return self.messages[places[0][1]]
