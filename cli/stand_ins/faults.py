"""How a stand-in fails: one fault is used up by one message, in the order they were given."""

import threading
from collections import deque
from dataclasses import dataclass
from enum import StrEnum


class Then(StrEnum):
    """What comes instead of an honest answer."""

    ANSWER = "answer"
    """This status, or SMTP code."""
    DROP = "drop"
    """The connection breaks off."""
    NONSENSE = "nonsense"
    """Something that is no answer of this protocol's; over HTTP with status 200."""
    SILENCE = "silence"
    """Nothing, until the other side gives up."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure."""

    then: Then
    effect: bool = False
    """Whether the message is taken all the same."""
    status: int = 500
    retry_after: int | None = None
    """Seconds that an answer asks for."""


class Faults:
    """Those that are still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Fault] = deque()

    def add(self, *faults: Fault) -> None:
        """Fail in these ways, one message each."""
        with self._lock:
            self._waiting.extend(faults)

    def next(self) -> Fault | None:
        """The one for this message."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None
