"""Reminders as an operator sees them, and the two things an operator may decide: one more attempt, or none."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, text

from db.engine import Tx
from db.reminders import OF_HOLD
from db.reminding import letter_key
from domain.identity import HoldId

_READ = """
SELECT r.key, r.hold_id, r.channel, r.state, r.reason, r.expires_at, r.lead, r.due_at, r.next_at, r.attempts,
       r.uncertain, r.provider, r.provider_id, r.covered_by, r.message, r.created_at, r.settled_at,
       r.decision, r.decided_at, r.decided_by
FROM reminders AS r
"""

WAITING = "r.state = 'unknown' AND r.decision IS DISTINCT FROM 'leave'"
"""SQL: reminder `r` waits for an operator."""

_LISTING = """
{read} WHERE (CAST(:state AS text) IS NULL OR r.state = :state)
  AND (CAST(:channel AS text) IS NULL OR r.channel = :channel) AND (NOT :waiting OR ({waiting}))
  AND {hold} AND r.key > :after
ORDER BY r.key LIMIT :limit
"""

_ALL = text(_LISTING.format(read=_READ, waiting=WAITING, hold="true"))
_OF_ONE_HOLD = text(_LISTING.format(read=_READ, waiting=WAITING, hold=OF_HOLD.format(hold="CAST(:hold AS text)")))

_ONE = text(f"{_READ} WHERE r.key = :key")

_ATTEMPTS = text("""
SELECT number, started_at, provider, outcome, reason, duration, worker FROM reminder_attempts
WHERE key = :key ORDER BY number
""")

# Holds are locked before their reminders, as by who closes them.
_LOCK_HOLD = text("""
SELECT FROM holds AS h JOIN reminders AS r ON r.key = :key AND h.id = r.hold_id FOR SHARE OF h
""")

# Without a token it is one that nobody has taken since: so the attempt that was asked for is known, and made once.
_RESEND_IF_UNSENT_AND_HOLD_COUNTS = text("""
UPDATE reminders AS r
SET state = 'scheduled', reason = 'an operator asked for one more attempt', next_at = clock_timestamp(),
    settled_at = NULL, token = NULL, decision = 'resend', decided_at = clock_timestamp(), decided_by = :operator
FROM holds AS h
WHERE r.key = :key AND r.state IN ('unknown', 'failed') AND h.id = r.hold_id AND h.status = 'held'
  AND h.expires_at = r.expires_at AND h.expires_at > clock_timestamp()
RETURNING r.key
""")

_LEAVE_IF_UNKNOWN = text(f"""
UPDATE reminders AS r SET decision = 'leave', decided_at = clock_timestamp(), decided_by = :operator
WHERE r.key = :key AND {WAITING}
RETURNING r.key
""")  # noqa: S608 - a constant of this file

_CLOSE_LETTER = text("""
UPDATE dead_letters SET replayed_at = clock_timestamp(), replayed_by = :operator, outcome = 'replayed'
WHERE key = :letter AND replayed_at IS NULL
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """A reminder as it stands. `message` is its frozen text, with the address: show it only to who asks for it."""

    key: str
    hold_id: str
    channel: str
    state: str
    reason: str | None
    expires_at: datetime
    lead: timedelta
    due_at: datetime
    next_at: datetime
    attempts: int
    uncertain: bool
    provider: str | None
    provider_id: str | None
    covered_by: str | None
    message: dict[str, Any] | None = field(repr=False)
    created_at: datetime
    settled_at: datetime | None
    decision: str | None
    decided_at: datetime | None
    decided_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request to a provider. Without an outcome nobody recorded how it ended."""

    number: int
    started_at: datetime
    provider: str
    outcome: str | None
    reason: str | None
    duration: timedelta | None
    worker: str


class Decided(StrEnum):
    """What became of an operator's wish."""

    DONE = "done"
    MISSING = "missing"
    NOT_OPEN = "not open"
    """It is in no state in which there is something to decide."""
    HOLD_OVER = "hold over"
    """Its hold is closed, lapsed or moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which reminders: None is all. `waiting`: only those that wait for an operator."""

    hold: HoldId | None = None
    channel: str | None = None
    state: str | None = None
    waiting: bool = False


def listing(tx: Tx, chosen: Selection, *, after: str = "", limit: int) -> list[Reminder]:
    """Reminders in the order of their keys, after one of them, at most so many."""
    asked = {
        "channel": chosen.channel, "state": chosen.state, "waiting": chosen.waiting, "after": after, "limit": limit,
    }  # fmt: skip
    if chosen.hold is None:
        return [_reminder(row) for row in tx.execute(_ALL, asked)]
    return [_reminder(row) for row in tx.execute(_OF_ONE_HOLD, {**asked, "hold": chosen.hold})]


def get(tx: Tx, key: str) -> Reminder | None:
    """One reminder."""
    row = tx.execute(_ONE, {"key": key}).one_or_none()
    return None if row is None else _reminder(row)


def attempts_of(tx: Tx, key: str) -> list[Attempt]:
    """The requests made for a reminder, in their order."""
    return [Attempt(**row._asdict()) for row in tx.execute(_ATTEMPTS, {"key": key})]


def resend(tx: Tx, key: str, operator: str) -> Decided:
    """Let a reminder that is unknown or failed be sent once more, at once and in quiet hours too; the lane does it.

    Two at once: the row's lock lets one through, and the other finds it scheduled. Against who closes the hold: the
    hold's row decides. Whatever comes of the attempt, nothing follows it by itself.
    """
    tx.execute(_LOCK_HOLD, {"key": key})
    if tx.execute(_RESEND_IF_UNSENT_AND_HOLD_COUNTS, {"key": key, "operator": operator}).one_or_none() is not None:
        tx.execute(_CLOSE_LETTER, {"letter": letter_key(key), "operator": operator})
        return Decided.DONE
    found = get(tx, key)
    if found is None:
        return Decided.MISSING
    return Decided.HOLD_OVER if found.state in {"unknown", "failed"} else Decided.NOT_OPEN


def leave(tx: Tx, key: str, operator: str) -> Decided:
    """Settle an unknown reminder as it is: nobody is asked about it any more. Two at once: one finds it settled."""
    if tx.execute(_LEAVE_IF_UNKNOWN, {"key": key, "operator": operator}).one_or_none() is not None:
        return Decided.DONE
    return Decided.MISSING if get(tx, key) is None else Decided.NOT_OPEN


def _reminder(row: Row[Any]) -> Reminder:
    return Reminder(**row._asdict())
