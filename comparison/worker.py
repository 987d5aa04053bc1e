"""The worker of the experiment: reads a body, applies it by the function every path applies by, answers afterwards."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from comparison.candidate import Delivery, Verdict
from db import expiry
from db.engine import Database
from domain.outcomes import Outcome
from domain.paths import Carrier
from domain.references import MalformedReference, parse_reference
from settings import settings
from tasks.messages import bury

MALFORMED = "malformed"
"""Said of a body that became a dead letter."""


class Point(StrEnum):
    """Where a consumer is killed."""

    BEFORE_COMMIT = "before-commit"
    """Applied, not committed."""
    BEFORE_ACK = "before-ack"
    """Committed, not acknowledged."""


@dataclass(frozen=True, slots=True)
class Handled:
    """One delivery and what became of it."""

    delivery: Delivery
    outcome: str


@dataclass
class ExpiryWorker:
    """Applies references to one database.

    `now` judges a deadline by this instant instead of the database's clock: the same parameter of the same statement
    that tests use. `dies` kills this process, by SIGKILL, at that point of the first delivery.

    Two at once, twice, late or early: `expiry.expire` says. Dies before commit: the message comes again and is
    applied. Dies after it: the message comes again and is a duplicate.
    """

    db: Database
    name: str
    now: datetime | None = None
    dies: Point | None = None
    verdict: Callable[[Handled], Verdict] = lambda _: Verdict.ACK
    handled: list[Handled] = field(default_factory=list)

    def __call__(self, delivery: Delivery) -> Verdict:
        """Apply one delivery; its verdict, once the transaction is committed."""
        by = Carrier(
            message_id=f"{self.name}:{delivery.message_id}"[:200],
            path=None,
            run=None,
            worker=f"{self.name}@comparison",
            redelivered=bool(delivery.again),
        )
        handled = Handled(delivery, self._apply(delivery.body, by))
        if self.dies is Point.BEFORE_ACK:
            _die()
        self.handled.append(handled)
        return self.verdict(handled)

    def _apply(self, body: bytes, by: Carrier) -> str:
        raw: object = None
        try:
            raw = _read(body)
            reference = parse_reference(raw)
        except MalformedReference as problem:
            bury(self.db, by, body.decode("utf-8", "replace") if raw is None else raw, problem)
            return MALFORMED
        with self.db.transaction() as tx:
            [outcome] = expiry.expire(tx, [reference], by, grace=settings().rescue_grace, now=self.now)
            if self.dies is Point.BEFORE_COMMIT:
                _die()
        return outcome.value

    def outcomes(self) -> list[str]:
        """What became of each delivery, in order."""
        return [one.outcome for one in self.handled]

    def expired(self) -> int:
        """How many deliveries changed a hold."""
        return self.outcomes().count(Outcome.EXPIRED.value)


def _read(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedReference("message", "is no JSON in UTF-8") from None


def _die() -> None:
    """End as a machine does that loses its power."""
    os.kill(os.getpid(), signal.SIGKILL)
