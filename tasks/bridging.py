"""Carrying references over Infrai's queue: publish what enters the horizon, consume, apply, acknowledge.

Whatever the service does (lose, repeat, reorder, answer late or not at all) changes only when a hold is expired.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from db import bridge, sweeps
from db.bridge import Batch, Open
from db.engine import Database
from db.sweeps import Run
from domain.errors import BadInput
from domain.infrai import LARGEST_BATCH
from domain.outcomes import Outcome
from domain.paths import Carrier, Path
from domain.references import MalformedReference, Reference, parse_reference
from domain.sweeping import ClaimPolicy
from gateways.infrai import Infrai
from gateways.infrai_answers import Message
from gateways.infrai_errors import Conflicting, InfraiError, WaitAsked
from gateways.infrai_terms import Outgoing
from gateways.side_by_side import side_by_side
from tasks.expiry import apply_each
from tasks.messages import bury

log = structlog.get_logger(__name__)

REST_AFTER_A_FAILURE = timedelta(seconds=10)
"""How long the service is left alone where it did not say for how long."""
_LONGEST_ID = 150
_COME_BACK = frozenset({None, Outcome.EARLY})
"""What is not acknowledged: the hold fails alone, or its time is to come. The message returns after its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridged:
    """What one tick did. `run` is None where there was nothing to do; `closed` says why the bridge was not used."""

    run: int | None = None
    messages: int = 0
    acknowledged: int = 0
    gone: int = 0
    """Messages that somebody else had acknowledged before, or that went with their queue."""
    too_soon: bool = False
    closed: str | None = None
    error: str | None = None

    def as_data(self) -> dict[str, object]:
        """The run as JSON carries it."""
        return {
            "run": self.run, "messages": self.messages, "acknowledged": self.acknowledged, "gone": self.gone,
            "too_soon": self.too_soon, "closed": self.closed, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """One process's end of the bridge. `lease`: of consumed messages and of batches; `old`: see `bridge.take`."""

    db: Database
    client: Infrai
    queue: str
    bounds: ClaimPolicy
    worker: str
    lease: timedelta
    budget: timedelta
    connections: int = 4
    clock: Callable[[], float] = time.monotonic

    def publish(self, *, apart: timedelta) -> Bridged:
        """One tick: publish what is due, batch by batch, until nothing is or the budget is used.

        Two beats, an old tick: the sweep's row lets one through. Dies at any point: see `bridge.take`.
        """
        with self.db.transaction() as tx:
            if not sweeps.tick(tx, bridge.PUBLISHING, apart=apart):
                return Bridged(too_soon=True)
            closed = _closed(bridge.standing(tx))
            if closed is not None or not bridge.anything_to_publish(tx):
                sweeps.forgettable(tx)
                return Bridged(closed=closed)
            run = sweeps.open_run(tx, bridge.PUBLISHING)
        tally = _Tally(run)
        with self._recorded(tally):
            until = self.clock() + self.budget.total_seconds()
            while self.clock() < until and (batch := self._take()) is not None:
                tally.messages += self._publish(tally, batch)
        return tally.told()

    def consume(self, *, apart: timedelta) -> Bridged:
        """One tick: consume, apply and acknowledge until the queue has nothing more to give or the budget is used.

        Twice at once: the queue's lease gives each message to one. Dies before the commit: nothing happened, the
        message comes again; after it and before the acknowledgement: it comes again and is `duplicate`.
        """
        with self.db.transaction() as tx:
            begun = sweeps.tick(tx, bridge.CONSUMING, apart=apart)
            closed = _closed(bridge.standing(tx))
            sweeps.forgettable(tx)
        if not begun or closed is not None:
            return Bridged(too_soon=not begun, closed=closed)
        tally = _Tally(None)
        with self._recorded(tally):
            until = self.clock() + self.budget.total_seconds()
            while self.clock() < until:
                messages = self.client.consume(self.queue, most=LARGEST_BATCH, lease=self.lease)
                if not messages:
                    break
                self._apply_and_acknowledge(tally, messages)
        return tally.told()

    def _take(self) -> Batch | None:
        """A batch that one round of calls can publish, also where messages go one by one.

        Else a slow service would never get to a batch's end within the time that a task has.
        """
        most = self.client.at_once()
        with self.db.transaction() as tx:
            return bridge.take(tx, most, lease=self.lease, old=self.bounds.grace)

    def _publish(self, tally: "_Tally", batch: Batch) -> int:
        """Publish a batch and note it. The first of two publications of one batch stands, so their ids may be lost."""
        outgoing = [Outgoing(payload=line.reference.as_data(), delay=batch.delay(line)) for line in batch.lines]
        ids: Sequence[str | None]
        try:
            ids = self.client.publish_batch(self.queue, outgoing, intent=batch.id)
        except Conflicting:
            ids = [None] * len(batch.lines)
        except InfraiError:
            with self.db.transaction() as tx:
                bridge.give_back(tx, batch)
            raise
        with self.db.transaction() as tx:
            count = bridge.published(tx, batch, ids)
            if tally.run is not None:
                sweeps.published(tx, tally.run, count)
        return count

    def _apply_and_acknowledge(self, tally: "_Tally", messages: Sequence[Message]) -> None:
        with self.db.transaction() as tx:
            run = tally.run = tally.run or sweeps.open_run(tx, bridge.CONSUMING)
            sweeps.observed(tx, run, len(messages))
        tally.messages += len(messages)
        acknowledged = self._acknowledge(tally, self.apply(run, messages))
        with self.db.transaction() as tx:
            sweeps.published(tx, run, acknowledged)

    def apply(self, run: Run, messages: Sequence[Message]) -> list[Message]:
        """Apply these in one transaction; returns those that are done with and may be acknowledged."""
        by = Carrier(message_id=_name(messages), path=Path.INFRAI, run=run.id, worker=self.worker)
        done: list[Message] = []
        readable: list[tuple[Message, Reference]] = []
        for message in messages:
            try:
                readable.append((message, parse_reference(message.payload)))
            except MalformedReference as problem:
                self._bury(by, message, problem)
                done.append(message)
        outcomes = apply_each(self.db, [reference for _, reference in readable], by, self.bounds)
        told = zip(readable, outcomes, strict=True)
        return done + [message for (message, _), outcome in told if outcome not in _COME_BACK]

    def _bury(self, by: Carrier, message: Message, problem: BadInput) -> None:
        bury(self.db, replace(by, message_id=_name([message])), message.payload, problem)

    def _acknowledge(self, tally: "_Tally", messages: Sequence[Message]) -> int:
        """One call each, side by side; what could not be acknowledged comes again, and changes nothing."""
        told = side_by_side(self._acknowledge_one, messages, self.connections)
        tally.acknowledged += told.count(True)
        tally.gone += told.count(False)
        return told.count(True)

    def _acknowledge_one(self, message: Message) -> bool | None:
        """False: it was gone already. None: its id is one that no request can hold, and the service will bury it."""
        try:
            return self.client.ack(self.queue, message.message_id)
        except BadInput:
            return None

    @contextmanager
    def _recorded(self, tally: "_Tally") -> Iterator[None]:
        """Keep what ends a run: a wait that was asked for, or a failure, after which the service is left alone."""
        error: str | None = "the run was cut short"
        try:
            yield
            error = None
        except InfraiError as fault:
            error = tally.error = str(fault)
            rest = fault.after if isinstance(fault, WaitAsked) else REST_AFTER_A_FAILURE
            with self.db.transaction() as tx:
                bridge.rest(tx, rest, error)
                tally.run = tally.run or sweeps.open_run(tx, bridge.CONSUMING)
            log.warning("bridge.failed", error=error, rest_s=rest.total_seconds())
        finally:
            if tally.run is not None:
                with self.db.transaction() as tx:
                    sweeps.finish(tx, tally.run, error)


@dataclass(slots=True)
class _Tally:
    run: Run | None
    messages: int = 0
    acknowledged: int = 0
    gone: int = 0
    error: str | None = None

    def told(self) -> Bridged:
        return Bridged(
            run=None if self.run is None else self.run.id,
            messages=self.messages, acknowledged=self.acknowledged, gone=self.gone, error=self.error,
        )  # fmt: skip


def _closed(standing: bridge.Standing) -> str | None:
    """Why the bridge is not to be used now; None: it is open."""
    return None if isinstance(standing, Open) else str(standing)


def _name(messages: Sequence[Message]) -> str:
    """What a receipt calls these: the first one's id, and how many came with it."""
    first = "infrai:" + ascii(messages[0].message_id)[1:-1][:_LONGEST_ID]
    return first if len(messages) == 1 else f"{first}+{len(messages) - 1}"
