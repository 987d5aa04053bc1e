"""A hold's reminders as steps of its trace."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Row, text

from db.engine import Tx
from db.reminders import OF_HOLD
from db.reminding import letter_key
from domain.contacts import mask_email, mask_phone
from domain.durations import format_duration
from domain.identity import HoldId
from domain.reminding import Channel
from domain.tracing import Step

_REMINDERS = text(f"""
SELECT r.key, r.channel, r.state, r.reason, r.lead, r.due_at, r.next_at, r.message->>'to' AS address, r.created_at,
       r.settled_at, r.decision, r.decided_at, r.decided_by, r.covered_by, r.provider_id
FROM reminders AS r WHERE {OF_HOLD.format(hold="CAST(:hold AS text)")} ORDER BY r.created_at, r.key
""")  # noqa: S608 - a constant of this project

_ATTEMPTS = text("""
SELECT key, number, started_at, provider, outcome, reason, duration, worker FROM reminder_attempts
WHERE key = ANY(CAST(:keys AS text[])) ORDER BY key, number
""")


def of_hold(tx: Tx, hold: HoldId) -> Sequence[Row[Any]]:
    """The rows of a hold's reminders, by a range of their key."""
    return tx.execute(_REMINDERS, {"hold": hold}).all()


def letter_keys(rows: Sequence[Row[Any]]) -> list[str]:
    """The keys that these reminders' dead letters would have."""
    return [letter_key(row.key) for row in rows]


def steps(tx: Tx, rows: Sequence[Row[Any]], *, show_contacts: bool) -> Iterator[Step]:
    """Each reminder: how it was scheduled, each attempt at it, what an operator decided, and how it ended."""
    made = defaultdict(list)
    for attempt in tx.execute(_ATTEMPTS, {"keys": [row.key for row in rows]}):
        made[attempt.key].append(attempt)
    for row in rows:
        which = {"reminder": row.key}
        waiting = row.next_at if row.state in {"scheduled", "claimed"} else None
        facts = {"lead": format_duration(row.lead), "due": row.due_at, "state": row.state, "next": waiting}
        yield Step(row.created_at, "reminder", {**which, **facts})
        to = None if row.address is None else row.address if show_contacts else _masked(row)
        for attempt in made[row.key]:
            yield Step(attempt.started_at, "reminder attempt", {**which, **_attempt(attempt), "to": to})
        if row.decided_at is not None:
            yield Step(row.decided_at, f"reminder {row.decision}", {**which, "by": row.decided_by})
        if row.settled_at is not None:
            ended = {"reason": row.reason, "covered_by": row.covered_by, "provider_id": row.provider_id}
            yield Step(row.settled_at, f"reminder {row.state}", {**which, **ended})


def _masked(row: Row[Any]) -> str:
    return mask_email(row.address) if row.channel == Channel.EMAIL else mask_phone(row.address)


def _attempt(attempt: Row[Any]) -> dict[str, object]:
    """What is known of one attempt; without an outcome nobody recorded how it ended."""
    return {
        "number": attempt.number,
        "provider": attempt.provider,
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "took_s": None if attempt.duration is None else attempt.duration.total_seconds(),
        "worker": attempt.worker,
    }
