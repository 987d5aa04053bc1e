"""Faults on demand: what a client must bear, made to happen a given number of times."""

from enum import StrEnum
from threading import Lock
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from comparison.infrai_server.problems import CODES
from comparison.infrai_server.queue import ORDERLY, Handing

_ANSWERED_AT_ONCE = frozenset({"rate_limit", "maintenance", "refuse", "not_json"})


class Kind(StrEnum):
    """What goes wrong."""

    RATE_LIMIT = "rate_limit"
    """429 RATE_LIMIT_USER; nothing was done."""
    MAINTENANCE = "maintenance"
    """503 MAINTENANCE; nothing was done."""
    REFUSE = "refuse"
    """A code of your choice with its status; nothing was done."""
    NOT_JSON = "not_json"
    """A page of HTML with a status of your choice; nothing was done."""
    DROP = "drop"
    """The effect happens, and the connection breaks instead of an answer."""
    STALL = "stall"
    """The call takes a while before it has its effect."""
    DUPLICATE = "duplicate"
    """A consume hands out so many messages without hiding them."""
    REORDER = "reorder"
    """A consume hands out the newest first."""


def _known(code: str) -> str:
    if code not in CODES:
        raise ValueError(f"is no code; there are {', '.join(CODES)}")
    return code


class Fault(BaseModel):
    """One fault, for the next calls of a path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    times: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    path: str = "/v1/"
    """Calls whose path begins with this."""
    retry_after: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """Seconds, in `Retry-After`; None leaves the header out."""
    as_date: bool = False
    """`Retry-After` as an HTTP date."""
    code: Annotated[str, AfterValidator(_known)] = "UNKNOWN_ERROR"
    """What a call is refused with."""
    status: Annotated[int, Field(ge=200, le=599)] = 429
    """Of the page of HTML."""
    seconds: Annotated[float, Field(ge=0, le=600)] = 0.5
    """How long a call stalls."""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Messages that a consume duplicates."""


class Faults:
    """Those still to come. Two calls at once take one each."""

    def __init__(self) -> None:
        self._left: list[tuple[Fault, int]] = []
        self._lock = Lock()

    def add(self, fault: Fault) -> None:
        """Let a fault happen from now on, so many times."""
        with self._lock:
            self._left.append((fault, fault.times))

    def clear(self) -> None:
        """Let no more happen."""
        with self._lock:
            self._left.clear()

    def instead(self, path: str) -> Fault | None:
        """What happens instead of a call."""
        return self._take(path, _ANSWERED_AT_ONCE)

    def during(self, path: str) -> Fault | None:
        """How long a call takes."""
        return self._take(path, {Kind.STALL})

    def after(self, path: str) -> Fault | None:
        """What becomes of the answer."""
        return self._take(path, {Kind.DROP})

    def handing(self) -> Handing:
        """How the next consume hands out."""
        path = "/v1/queue/consume"
        duplicate, reorder = self._take(path, {Kind.DUPLICATE}), self._take(path, {Kind.REORDER})
        if duplicate is None and reorder is None:
            return ORDERLY
        return Handing(0 if duplicate is None else duplicate.count, reorder is not None)

    def _take(self, path: str, kinds: "frozenset[str] | set[Kind]") -> Fault | None:
        if not self._left:
            return None
        with self._lock:
            for place, (fault, left) in enumerate(self._left):
                if fault.kind in kinds and path.startswith(fault.path):
                    if left == 1:
                        del self._left[place]
                    else:
                        self._left[place] = (fault, left - 1)
                    return fault
        return None
