"""Drain one endpoint's due deliveries through one slot: take, send, settle and take the next, for a moment."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, repeat
from random import Random
from typing import Protocol

import structlog
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from db import deliveries, faults, onward, slots
from db.deliveries import Nothing, Settled, Taken
from db.engine import Database, Session, Tx
from db.slots import Slot
from domain.endpoints import DeliveryPolicy, EndpointId
from domain.webhooks import Answered, Delivered, Result, Verdict, judge
from gateways.exchange import uptime

log = structlog.get_logger(__name__)

_random = Random()  # noqa: S311 - spreads retries, guards nothing

_FAULTS = (DBAPIError, PoolTimeout)
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between two tries of settling while the database is away; the last one repeats."""


class Send(Protocol):
    """Makes the one request of a taken delivery, within the deadline; what comes of it is a value."""

    def __call__(self, taken: Taken, asked_at: float) -> Result:
        """Send it now. Its lease began after `asked_at`, an instant of the drain's clock."""


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
    clock: Callable[[], float] = uptime
    wait: Callable[[float], object] = threading.Event().wait

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
                next_one = turn.settle_and_go_on(next_one, *self._timed(next_one, turn.asked_at))
            return next_one

    def _timed(self, taken: Taken, asked_at: float) -> tuple[Result, timedelta]:
        began = self.clock()
        result = self.send(taken, asked_at)
        return result, timedelta(seconds=self.clock() - began)


class _Turn:
    """A slot, until a moment of the drain's clock."""

    def __init__(self, drain: Drain, session: Session, slot: Slot, until: float) -> None:
        self._drain, self._session, self._slot, self._until = drain, session, slot, until
        self._sent = 0
        self.asked_at = drain.clock()
        """When the delivery under way was asked for: its lease cannot have begun earlier."""

    def settle_and_go_on(self, taken: Taken, result: Result, took: timedelta) -> Taken | Drained:
        """One commit a delivery. If that fails, what came of this one is settled alone, again and again."""
        self._sent += 1
        self.asked_at = self._drain.clock()
        until = self.asked_at + (self._drain.policy.lease - took).total_seconds()
        came = _Came(taken, result, judge(result, taken.made(took), taken.policy, random=_random), took)
        try:
            return self._at_once(came)
        except _FAULTS as error:
            log.warning("delivery.unrecorded", event_id=taken.event_id, error=_said(error))
        _tell(came, self._alone(came, until))
        return Drained(self._sent)

    def _at_once(self, came: "_Came") -> Taken | Drained:
        delivered = isinstance(came.verdict, Delivered) and isinstance(came.result, Answered)
        if delivered and self._drain.clock() < self._until and (next_one := self._delivered(came)) is not None:
            return next_one
        with self._session.transaction() as tx:
            settled = self._settle(tx, came)
            next_one = self.go_on(tx, came.took)
        _tell(came, settled)
        return next_one

    def _delivered(self, came: "_Came") -> Taken | Drained | None:
        """The common case in one round trip; None where it is not that case."""
        drain = self._drain
        assert isinstance(came.result, Answered)
        with self._session.transaction() as tx:
            found = onward.settle_delivered_and_take(
                tx, came.taken, came.result, self._slot, drain.policy, took=came.took, worker=drain.worker
            )
        if not isinstance(found, Nothing):
            return found
        with self._session.transaction() as tx:
            return self.go_on(tx, came.took)

    def _alone(self, came: "_Came", until: float) -> Settled:
        """Settle over a connection of its own, until the lease ends: a database that restarts costs no second POST.

        Where the server answers and refuses, the outcome is tried without its record. Twice, or after a commit of
        which nobody heard: the token is used up, and it is lost. A clock that is wrong: the token still guards.

        Raises:
            DBAPIError: the database stayed away; the lease runs out, and it is sent again.
        """
        record = True
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                with self._drain.db.transaction() as tx:
                    settled = self._settle(tx, came, record=record)
                    slots.leave(tx, self._slot, self._drain.policy, took=came.took)
                    return settled
            except _FAULTS as error:
                if not faults.is_away(error) and record:
                    record = False
                    continue
                if self._drain.clock() + pause >= until:
                    raise
            self._drain.wait(pause)
        raise AssertionError("the pauses have no end")

    def _settle(self, tx: Tx, came: "_Came", *, record: bool = True) -> Settled:
        policy = self._drain.policy
        return deliveries.settle(tx, came.taken, came.result, came.verdict, policy, took=came.took, record=record)

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


@dataclass(frozen=True, slots=True)
class _Came:
    """What came of one request."""

    taken: Taken
    result: Result
    verdict: Verdict
    took: timedelta


def _said(error: DBAPIError | PoolTimeout) -> str:
    return faults.cause(error) if isinstance(error, DBAPIError) else "no connection became free"


def _tell(came: _Came, settled: Settled) -> None:
    """A line for each attempt that was no plain success."""
    name = type(came.verdict).__name__
    if settled is Settled.LOST or name != "Delivered":
        log.info(
            "delivery.attempted", event_id=came.taken.event_id, endpoint=came.taken.endpoint_id,
            number=came.taken.number, verdict=name, settled=settled.value,
        )  # fmt: skip
