"""The server's clock, which a test moves: a week passes in no time."""

from threading import Lock
from time import time


class Clock:
    """Seconds since 1970. Frozen at a start it moves only when it is moved; else it runs, and may be moved ahead."""

    def __init__(self, frozen_at: float | None = None) -> None:
        self._frozen_at = frozen_at
        self._ahead = 0.0
        self._lock = Lock()

    def now(self) -> float:
        """The present instant."""
        return (time() if self._frozen_at is None else self._frozen_at) + self._ahead

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        with self._lock:
            self._ahead += seconds
