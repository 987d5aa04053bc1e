"""Reminders that are due: one is taken in a committed change directly before its message, and settled with its token.

Two steps of one transaction, so that what is judged in between is judged under the row's lock: `next_due` locks a row,
then `claim` or `put_by` writes what was decided. Commit, then send; db.reminder_outcomes settles.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.expression import bindparam

from db import dead_letters, sweeps
from db.engine import Tx, by_index
from db.reminders import KEY
from domain.due_reminders import (
    BecomeEmail,
    CallOff,
    Drop,
    DueReminder,
    HoldNow,
    LeaveUnknown,
    Provider,
    Unsent,
    Wait,
)
from domain.holds import Status
from domain.identity import HoldId, reminder_key
from domain.reminding import ATTEMPTS, Channel, Made, Message

SWEEP = "reminders"
"""What `status` calls this sweep."""

LETTER = "reminder"
"""The kind of a dead letter that stands for a reminder whose text cannot be made."""

DUE = "r.channel = {channel} AND r.state IN ('scheduled', 'claimed') AND r.next_at <= now()"
"""SQL: somebody must look at reminder `r`: it is due, or its worker's lease is over."""

HOW_MANY = text(f"""
SELECT c.channel, (
    SELECT count(*) FROM (SELECT FROM reminders AS r WHERE {DUE.format(channel="c.channel")} LIMIT :most) AS few
) AS due
FROM (VALUES ('email'), ('sms')) AS c(channel)
""")  # noqa: S608 - the parts are constants of this file

_LOCK_NEXT_DUE = text(f"""
SELECT r.*, h.resource, h.customer, h.status, h.expires_at AS deadline, h.timezone, h.email, h.phone, h.locale,
       clock_timestamp() AS now, clock_timestamp() - r.first_attempt_at AS age
FROM (
    SELECT r.key, r.hold_id, r.channel, r.expires_at, r.lead, r.state, r.uncertain, r.decision, r.attempts,
           r.provider, r.message, r.first_attempt_at, r.token
    FROM reminders AS r WHERE {DUE.format(channel=":channel")}
    ORDER BY r.next_at LIMIT 1 FOR UPDATE SKIP LOCKED
) AS r LEFT JOIN holds AS h ON h.id = r.hold_id
""")  # noqa: S608 - the parts are constants of this file

_HOLD_NOW = text("""
SELECT h.resource, h.customer, h.status, h.expires_at AS deadline, h.timezone, h.email, h.phone, h.locale
FROM holds AS h WHERE h.id = :hold FOR SHARE SKIP LOCKED
""")

_IS_THERE = text("SELECT EXISTS (SELECT FROM holds WHERE id = :hold)")

_CLAIM = text("""
WITH taken AS (
    UPDATE reminders AS r
    SET state = 'claimed', uncertain = r.uncertain OR r.state = 'claimed', reason = NULL, token = gen_random_uuid(),
        attempts = r.attempts + 1, next_at = clock_timestamp() + CAST(:lease AS interval), message = :message,
        provider = :provider, first_attempt_at = coalesce(r.first_attempt_at, clock_timestamp())
    WHERE r.key = :key AND r.state IN ('scheduled', 'claimed')
    RETURNING r.key, r.attempts, r.token
), attempt AS (
    INSERT INTO reminder_attempts (key, number, started_at, worker, provider)
    SELECT t.key, t.attempts, clock_timestamp(), :worker, :provider FROM taken AS t
)
SELECT attempts, token FROM taken
""").bindparams(bindparam("message", type_=JSONB))

_END = text("""
UPDATE reminders AS r
SET state = CASE WHEN r.uncertain OR r.state = 'claimed' THEN 'unknown' ELSE :state END,
    uncertain = r.uncertain OR r.state = 'claimed', reason = :reason, covered_by = :covered_by,
    settled_at = clock_timestamp()
WHERE r.key = :key AND r.state IN ('scheduled', 'claimed')
""")

_WAIT = text("""
UPDATE reminders AS r
SET state = 'scheduled', uncertain = r.uncertain OR r.state = 'claimed', next_at = :until
WHERE r.key = :key AND r.state IN ('scheduled', 'claimed')
""")

_BECOME_EMAIL = text(f"""
INSERT INTO reminders (key, hold_id, channel, expires_at, lead, due_at, next_at, created_at)
SELECT {KEY.format(hold="r.hold_id", channel="'email'", deadline="r.expires_at", lead="r.lead")},
       r.hold_id, 'email', r.expires_at, r.lead, r.due_at, clock_timestamp(), clock_timestamp()
FROM reminders AS r WHERE r.key = :key
ON CONFLICT (key) DO NOTHING
RETURNING key
""")  # noqa: S608 - the parts are constants of this project

_FORGETTABLE = text("SET LOCAL synchronous_commit = off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A reminder that this worker may send once, now: its attempt is counted and on record, its text frozen."""

    message: Message
    hold_id: HoldId
    number: int
    token: UUID
    asked: bool
    uncertain: bool
    """An earlier attempt may have been accepted."""
    left: timedelta
    """Until the hold's deadline, when it was taken."""
    age: timedelta
    """Since the first attempt, when it was taken."""
    key_window: timedelta | None
    """How long its provider knows the key."""

    def made(self, took: timedelta) -> Made:
        """The attempt as its judge sees it, after it took so long.

        One that an operator asked for is the last: nothing follows it by itself.
        """
        return Made(
            number=ATTEMPTS if self.asked else self.number,
            left=self.left - took,
            age=self.age + took,
            key_window=None if self.asked else self.key_window,
            doubt=self.uncertain,
        )


def dispatch(tx: Tx, *, apart: timedelta, most: int) -> dict[Channel, int]:
    """How many reminders are due by each channel, counted up to `most`; none if a tick began less than `apart` ago.

    Two beats, a pile of old ticks: the sweep's row is the lock. Nothing here must survive a crash of the database.
    """
    tx.execute(_FORGETTABLE)
    if not sweeps.tick(tx, SWEEP, apart=apart):
        return {}
    by_index(tx)
    return {Channel(row.channel): row.due for row in tx.execute(HOW_MANY, {"most": most}) if row.due}


def next_due(tx: Tx, channel: Channel) -> DueReminder | None:
    """The reminder of this channel that has waited longest, its row locked until the transaction ends.

    Ten at once: each skips what others have locked, and after their commit it is not due. A hold that is closed or
    moved calls off its reminders in the same transaction: had it the row first, the row is passed over; else it waits
    for our commit. Of a reminder that was taken before, that lock says nothing, since one under way is left alone: so
    then the hold itself is locked, without waiting, since its writers lock in the other order.
    """
    by_index(tx)
    row = tx.execute(_LOCK_NEXT_DUE, {"channel": channel.value}).one_or_none()
    if row is None:
        return None
    if row.attempts == 0:
        return _due(row, _hold(row), busy=False)
    hold = tx.execute(_HOLD_NOW, {"hold": row.hold_id}).one_or_none()
    busy = hold is None and bool(tx.execute(_IS_THERE, {"hold": row.hold_id}).scalar_one())
    return _due(row, None if hold is None else _hold(hold), busy=busy)


def _due(row: Row[Any], hold: HoldNow | None, *, busy: bool) -> DueReminder:
    return DueReminder(
        key=row.key,
        hold_id=HoldId(row.hold_id),
        channel=Channel(row.channel),
        expires_at=row.expires_at,
        lead=row.lead,
        now=row.now,
        hold=hold,
        busy=busy,
        abandoned=row.state == "claimed",
        uncertain=row.uncertain,
        asked=row.decision == "resend" and row.token is None,
        attempts=row.attempts,
        age=row.age or timedelta(0),
        provider=row.provider,
        message=None if row.message is None else Message.from_data(row.message),
    )


def _hold(row: Row[Any]) -> HoldNow | None:
    if row.status is None:
        return None
    return HoldNow(
        resource=row.resource,
        customer=row.customer,
        status=Status(row.status),
        expires_at=row.deadline,
        timezone=row.timezone,
        email=row.email,
        phone=row.phone,
        locale=row.locale,
    )


def claim(
    tx: Tx, due: DueReminder, message: Message, provider: Provider, *, lease: timedelta, worker: str
) -> Taken:  # fmt: skip
    """Take a reminder that `next_due` has locked: count the attempt, put it on record, freeze the text.

    Dies before commit: nothing was taken. After it: one lease later it is found abandoned, and nobody knows whether
    the message went out.
    """
    asked = {
        "key": due.key, "lease": lease, "message": message.as_data(), "provider": provider.name, "worker": worker,
    }  # fmt: skip
    row = tx.execute(_CLAIM, asked).one()
    return Taken(
        message=message,
        hold_id=due.hold_id,
        number=row.attempts,
        token=row.token,
        asked=due.asked,
        uncertain=due.doubt,
        left=due.expires_at - due.now,
        age=due.age,
        key_window=provider.key_window,
    )


def put_by(tx: Tx, due: DueReminder, decision: Unsent) -> None:
    """Write that a reminder, which `next_due` has locked, is not sent now. In doubt it ends as unknown, whatever else.

    An SMS that becomes an email: the email's key lets one through, so there is never a second for one deadline and
    lead.
    """
    match decision:
        case CallOff(reason):
            _end(tx, due, "cancelled", reason)
        case Drop(reason):
            _end(tx, due, "suppressed", reason)
        case LeaveUnknown(reason):
            _end(tx, due, "unknown", reason)
        case BecomeEmail():
            made = tx.execute(_BECOME_EMAIL, {"key": due.key}).one_or_none()
            reason = "covered by email" if made is None else "quiet hours: it became an email"
            covered_by = reminder_key(due.hold_id, Channel.EMAIL, due.expires_at, due.lead)
            _end(tx, due, "suppressed", reason, covered_by=covered_by)
        case Wait(until):
            tx.execute(_WAIT, {"key": due.key, "until": until})
        case _:
            assert_never(decision)


def _end(tx: Tx, due: DueReminder, state: str, reason: str, *, covered_by: str | None = None) -> None:
    tx.execute(_END, {"key": due.key, "state": state, "reason": reason, "covered_by": covered_by})


def bury(tx: Tx, due: DueReminder, error: str) -> None:
    """End a reminder whose text cannot be made, with a dead letter that shows why."""
    _end(tx, due, "failed", error)
    dead_letters.bury(tx, letter_key(due.key), LETTER, {"reminder": due.key}, error, hold=due.hold_id)


def letter_key(reminder: str) -> str:
    """The key of a reminder's dead letter."""
    return f"{LETTER}:{reminder}"
