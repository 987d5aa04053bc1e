"""Drain one endpoint's due deliveries through one slot: take, send, settle and take the next, for a moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Protocol

import structlog
from sqlalchemy.exc import DBAPIError

from db import deliveries, faults, onward, slots
from db.deliveries import Nothing, Settled, Taken
from db.engine import Database, Session, Tx
from db.slots import Slot
from domain.endpoints import DeliveryPolicy, EndpointId
from domain.webhooks import Answered, Delivered, Result, Verdict, judge

log = structlog.get_logger(__name__)

_random = Random()  # noqa: S311 - spreads retries, guards nothing


class Send(Protocol):
    """Makes the one request of a taken delivery, within the deadline; what comes of it is a value."""

    def __call__(self, taken: Taken) -> Result:
        """Send it now."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What one message did. `again`: its time is over and a mark was left for the message that goes on."""

    sent: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What every drain of a process has in common. `budget`: takes nothing more after this long."""

    db: Database
    send: Send
    policy: DeliveryPolicy
    worker: str
    budget: timedelta = timedelta(seconds=1)
    clock: Callable[[], float] = time.monotonic

    def __call__(self, endpoint: EndpointId) -> Drained:
        """Take a slot and send what is due, one after the other, until nothing is or the time is over.

        Twice, or more messages than slots: the rest find no free slot. Dies before a request: that attempt is counted
        and one lease later the next one follows; after it and before settling: the same, and the receiver sees the id
        again. A large backlog gives its thread back after `budget`, so that it shares the workers with others.
        """
        until = self.clock() + self.budget.total_seconds()
        with self.db.session() as session:
            with session.transaction() as tx:
                slot = slots.take(tx, endpoint, self.policy)
                if slot is None:
                    return Drained()
                turn = _Turn(self, session, slot, until)
                next_one = turn.go_on(tx)
            while not isinstance(next_one, Drained):
                next_one = turn.settle_and_go_on(next_one, *self._timed(next_one))
            return next_one

    def _timed(self, taken: Taken) -> tuple[Result, timedelta]:
        began = self.clock()
        result = self.send(taken)
        return result, timedelta(seconds=self.clock() - began)


class _Turn:
    """A slot, until a moment of the drain's clock."""

    def __init__(self, drain: Drain, session: Session, slot: Slot, until: float) -> None:
        self._drain, self._session, self._slot, self._until = drain, session, slot, until
        self._sent = 0

    def settle_and_go_on(self, taken: Taken, result: Result, took: timedelta) -> Taken | Drained:
        """One commit a delivery. If that fails, what came of this one is settled alone, without its record."""
        self._sent += 1
        policy = self._drain.policy
        verdict = judge(result, taken.made(took), taken.policy, random=_random)
        if isinstance(verdict, Delivered) and isinstance(result, Answered) and self._drain.clock() < self._until:
            next_one = self._delivered(taken, result, took)
            if next_one is not None:
                return next_one
        try:
            with self._session.transaction() as tx:
                settled = deliveries.settle(tx, taken, result, verdict, policy, took=took)
                next_one = self.go_on(tx, took)
        except DBAPIError as error:
            log.warning("delivery.unrecorded", event_id=taken.event_id, error=faults.cause(error))
            with self._drain.db.transaction() as tx:
                settled = deliveries.settle(tx, taken, result, verdict, policy, took=took, record=False)
                slots.leave(tx, self._slot, policy, took=took)
            next_one = Drained(self._sent)
        _tell(taken, verdict, settled)
        return next_one

    def _delivered(self, taken: Taken, answer: Answered, took: timedelta) -> Taken | Drained | None:
        """The common case in one round trip; None where it is not that case."""
        drain = self._drain
        with self._session.transaction() as tx:
            found = onward.settle_delivered_and_take(
                tx, taken, answer, self._slot, drain.policy, took=took, worker=drain.worker
            )
        if not isinstance(found, Nothing):
            return found
        with self._session.transaction() as tx:
            return self.go_on(tx, took)

    def go_on(self, tx: Tx, took: timedelta | None = None) -> Taken | Drained:
        """Take the next delivery, or leave the slot. A slow endpoint asks the sweep for another: it may be too slow."""
        policy = self._drain.policy
        if self._drain.clock() >= self._until:
            again = took is not None and took < policy.slow_after
            slots.leave(tx, self._slot, policy, again=again, took=took)
            return Drained(self._sent, again=again)
        found = deliveries.take(tx, self._slot, policy, worker=self._drain.worker, took=took)
        if isinstance(found, Nothing):
            slots.leave(tx, self._slot, policy, took=took)
            return Drained(self._sent)
        return found


def _tell(taken: Taken, verdict: Verdict, settled: Settled) -> None:
    """A line for each attempt that was no plain success."""
    name = type(verdict).__name__
    if settled is Settled.LOST or name != "Delivered":
        log.info(
            "delivery.attempted", event_id=taken.event_id, endpoint=taken.endpoint_id, number=taken.number,
            verdict=name, settled=settled.value,
        )  # fmt: skip
