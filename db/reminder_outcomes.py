"""What one attempt at a reminder came to: written by who has the newest token."""

from datetime import timedelta
from enum import StrEnum
from typing import Any, assert_never

from sqlalchemy import text

from db.engine import Tx, by_index
from db.reminding import Taken
from domain.reminding import Accepted, Again, Deferred, Failed, Next, Outcome, Rejected, Sent, Undecided, Unknown

# A hold that was closed or moved while this was under way called off what was scheduled, and found this one claimed.
_SETTLE_IF_TOKEN_IS_NEWEST = text("""
WITH answered AS (
    UPDATE reminder_attempts SET outcome = :outcome, reason = :told, duration = :took
    WHERE key = :key AND number = :number AND outcome IS NULL
), judged AS (
    SELECT r.key, r.uncertain OR :outcome = 'unknown' AS uncertain, CASE
        WHEN :state = 'scheduled' AND NOT EXISTS (
            SELECT FROM holds AS h WHERE h.id = r.hold_id AND h.status = 'held' AND h.expires_at = r.expires_at
        ) THEN CASE WHEN r.uncertain OR :outcome = 'unknown' THEN 'unknown' ELSE 'cancelled' END
        ELSE :state END AS state
    FROM reminders AS r WHERE r.key = :key
)
UPDATE reminders AS r
SET state = j.state, uncertain = j.uncertain,
    reason = CASE WHEN j.state = :state THEN :reason ELSE 'the hold was closed or extended meanwhile' END,
    provider_id = coalesce(:provider_id, r.provider_id),
    next_at = coalesce(clock_timestamp() + CAST(:wait AS interval), r.next_at),
    settled_at = CASE WHEN j.state <> 'scheduled' THEN clock_timestamp() END
FROM judged AS j
WHERE r.key = j.key AND r.token = :token
  AND (r.state = 'claimed' OR (r.state = 'unknown' AND :state = 'sent'))
RETURNING r.state
""")


class Settled(StrEnum):
    """Whether the settling counted."""

    DONE = "done"
    LOST = "lost"
    """The token is not the newest, or somebody has decided meanwhile."""


def settle(tx: Tx, taken: Taken, outcome: Outcome, following: Next, *, took: timedelta) -> Settled:
    """Write what one attempt came to, and what follows.

    Only with the newest token: who lost the lease changes the record of the own attempt, and may still say that a
    reminder which is thought unknown was accepted. A retry of a hold that was closed or moved meanwhile is called off.
    Dies before commit: one lease later nobody knows.
    """
    by_index(tx)
    name, told = _told(outcome)
    values = {"key": taken.message.key, "number": taken.number, "token": taken.token, "took": took, "outcome": name}
    state = tx.execute(_SETTLE_IF_TOKEN_IS_NEWEST, {**values, "told": told, **_columns(following)}).one_or_none()
    return Settled.LOST if state is None else Settled.DONE


def _told(outcome: Outcome) -> tuple[str, str | None]:
    match outcome:
        case Accepted():
            return "accepted", None
        case Deferred(reason):
            return "deferred", reason
        case Rejected(reason):
            return "rejected", reason
        case Unknown(reason):
            return "unknown", reason
        case _:
            assert_never(outcome)


def _columns(following: Next) -> dict[str, Any]:
    values: dict[str, Any] = {"state": "sent", "reason": None, "provider_id": None, "wait": None}
    match following:
        case Sent(provider_id):
            return values | {"provider_id": provider_id}
        case Again(wait=wait):
            return values | {"state": "scheduled", "reason": "it is tried again", "wait": wait}
        case Failed(reason):
            return values | {"state": "failed", "reason": reason}
        case Undecided(reason):
            return values | {"state": "unknown", "reason": reason}
        case _:
            assert_never(following)
