"""Send one channel's due reminders, one after the other: take, commit, send, settle and take the next, for a moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Protocol
from zoneinfo import ZoneInfoNotFoundError

import structlog
from sqlalchemy.exc import DBAPIError

from db import faults, reminder_outcomes, reminding
from db.engine import Database, Session, Tx
from db.reminder_outcomes import Settled
from db.reminding import Taken
from domain.due_reminders import DueReminder, HoldNow, Provider, Send, decide
from domain.quiet_hours import Rules
from domain.reminding import Accepted, Channel, Message, Outcome, judge
from gateways.exchange import uptime
from gateways.messaging import Gateway
from gateways.texts import TemplateFault

log = structlog.get_logger(__name__)

_random = Random()  # noqa: S311 - spreads retries, guards nothing

_MOST_UNSENT = 100
"""Reminders that one transaction ends or postpones without sending one; the next goes on."""


class Compose(Protocol):
    """Makes the message of a reminder that is sent for the first time; raises TemplateFault where it cannot."""

    def __call__(self, due: DueReminder, hold: HoldNow, to: str) -> Message:
        """Render it now."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What one message did. `again`: its time is over, and more may be due."""

    sent: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What every drain of a process has in common. `budget`: takes nothing more after this long.

    `deadline`: how long a gateway's request takes at most. None begins so late that it would outlast its lease.
    """

    db: Database
    gateways: Mapping[Channel, Gateway]
    compose: Compose
    rules: Rules
    worker: str
    lease: timedelta
    deadline: timedelta
    budget: timedelta = timedelta(seconds=5)
    clock: Callable[[], float] = uptime
    random: Random = _random

    def __call__(self, channel: Channel) -> Drained:
        """Send what is due by this channel until nothing is, or the time is over.

        Twice, or many at once: each takes others' rows, or finds none. Dies before the request or after it, and
        before settling: one lease later the reminder is unknown, or asked again with the same key and text where its
        provider knows the key. So no crash makes a second message.
        """
        began = self.clock()
        turn = _Turn(self, channel, began, began + self.budget.total_seconds())
        with self.db.session() as session:
            with session.transaction() as tx:
                following = turn.next_one(tx)
            while isinstance(following, Taken):
                following = turn.send_and_go_on(session, following)
        return following


class _Turn:
    """One channel's turn, until a moment of the drain's clock."""

    def __init__(self, drain: Drain, channel: Channel, began: float, until: float) -> None:
        self._drain, self._channel, self._until = drain, channel, until
        self._asked_at = began  # before the newest take, and so before its lease began
        self._gateway = drain.gateways.get(channel)
        self._provider = (
            None if self._gateway is None else Provider(name=self._gateway.name, key_window=self._gateway.key_window)
        )
        self._sent = 0

    def next_one(self, tx: Tx) -> Taken | Drained:
        """Take the next reminder that is to be sent; what is not to be is ended or postponed on the way."""
        for _ in range(_MOST_UNSENT):
            if self._drain.clock() >= self._until:
                break
            due = reminding.next_due(tx, self._channel)
            if due is None:
                return Drained(self._sent)
            try:
                taken = self._take(tx, due)
            except TemplateFault as fault:
                _bury(tx, due, str(fault))
            except ZoneInfoNotFoundError:  # whoever placed the hold has newer zones than this worker
                _bury(
                    tx, due, f"no time zone {due.hold and due.hold.timezone} is known here; renew this worker's tzdata"
                )
            else:
                if taken is not None:
                    return taken
        return Drained(self._sent, again=True)

    def _take(self, tx: Tx, due: DueReminder) -> Taken | None:
        """Claim what is to be sent. What a single reminder can provoke comes up before anything is written."""
        decision = decide(due, self._provider, self._drain.rules, random=self._drain.random)
        if not isinstance(decision, Send):
            reminding.put_by(tx, due, decision)
            log.info("reminder.not_sent", reminder=due.key, decision=type(decision).__name__)
            return None
        assert self._provider is not None
        assert due.hold is not None
        message = due.message or self._drain.compose(due, due.hold, decision.to)
        return reminding.claim(tx, due, message, self._provider, lease=self._drain.lease, worker=self._drain.worker)

    def send_and_go_on(self, session: Session, taken: Taken) -> Taken | Drained:
        """One commit a reminder. If that fails, what came of this one is written alone, whatever the next provoked."""
        outcome, took = self._send(taken.message)
        self._sent += 1
        self._asked_at = self._drain.clock()
        try:
            with session.transaction() as tx:
                self._settle(tx, taken, outcome, took)
                return self.next_one(tx)
        except DBAPIError as fault:
            log.warning("reminder.unrecorded", reminder=taken.message.key, error=faults.cause(fault))
        except Exception:
            self._settle_alone(taken, outcome, took)
            raise
        if isinstance(outcome, Accepted):
            outcome = Accepted(None)  # the provider's name for it may be what cannot be written
        self._settle_alone(taken, outcome, took)
        return Drained(self._sent)

    def _send(self, message: Message) -> tuple[Outcome, timedelta]:
        assert self._gateway is not None
        began, spare = self._drain.clock(), self._drain.lease - self._drain.deadline
        outcome = self._gateway.send(message, not_after=self._asked_at + spare.total_seconds())
        return outcome, timedelta(seconds=self._drain.clock() - began)

    def _settle_alone(self, taken: Taken, outcome: Outcome, took: timedelta) -> None:
        with self._drain.db.transaction() as tx:
            self._settle(tx, taken, outcome, took)

    def _settle(self, tx: Tx, taken: Taken, outcome: Outcome, took: timedelta) -> None:
        following = judge(outcome, taken.made(took), random=self._drain.random)
        settled = reminder_outcomes.settle(tx, taken, outcome, following, took=took)
        if not isinstance(outcome, Accepted) or settled is Settled.LOST:
            log.info(
                "reminder.attempted", reminder=taken.message.key, number=taken.number,
                outcome=type(outcome).__name__, then=type(following).__name__, settled=settled.value,
            )  # fmt: skip


def _bury(tx: Tx, due: DueReminder, error: str) -> None:
    reminding.bury(tx, due, error)
    log.warning("reminder.unrendered", reminder=due.key, error=error)
