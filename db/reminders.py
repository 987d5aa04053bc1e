"""Reminders follow their hold: written, called off and written anew in the transaction that changes it.

A reminder's key follows from hold, channel, deadline and lead, so all of one hold are a range of the primary key.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from db.engine import Tx
from domain.identity import HoldId
from domain.reminding import Channel

KEY = """
concat('hold-reminder:', {hold}, ':', {channel}, ':', CAST(extract(epoch FROM {deadline}) AS bigint), ':',
       CAST(extract(epoch FROM {lead}) AS bigint))
"""
"""SQL: a reminder's key. Spelled once more in domain.identity; a test holds the two together."""

OF_HOLD = "r.key > 'hold-reminder:' || {hold} || ':' AND r.key < 'hold-reminder:' || {hold} || ';'"
"""SQL: reminder `r` is this hold's. `;` is the character after `:`, and keys are compared byte by byte."""


def reminders_of(source: str, *, at: str) -> str:
    """SQL: write the reminders of the held holds in `source`, a FROM item, whose instant lies after `at`.

    One that this deadline has had is scheduled again if it was called off before anybody took it. One that was taken,
    sent or suppressed stays as it is: there is no second for the same deadline and lead.
    """
    return f"""
    INSERT INTO reminders AS r (key, hold_id, channel, expires_at, lead, due_at, next_at, created_at)
    SELECT {KEY.format(hold="h.id", channel="c.channel", deadline="h.expires_at", lead="l.lead")},
           h.id, c.channel, h.expires_at, l.lead, h.expires_at - l.lead, h.expires_at - l.lead, {at}
    FROM {source} AS h CROSS JOIN LATERAL unnest(h.leads) AS l(lead)
    CROSS JOIN LATERAL (VALUES ('email', h.email), ('sms', h.phone)) AS c(channel, contact)
    WHERE h.status = 'held' AND c.contact IS NOT NULL AND h.expires_at - l.lead > {at}
    ON CONFLICT (key) DO UPDATE
    SET state = 'scheduled', reason = NULL, settled_at = NULL, next_at = excluded.next_at
    WHERE r.state = 'cancelled' AND r.attempts = 0
    """  # noqa: S608 - the parts are constants of this project


_SCHEDULE = text(reminders_of("(SELECT * FROM holds WHERE id = :hold)", at="CAST(:at AS timestamptz)"))

_CALL_OFF_IF_SCHEDULED = text(f"""
UPDATE reminders AS r
SET state = CASE WHEN r.uncertain THEN 'unknown' ELSE 'cancelled' END, reason = :reason,
    settled_at = clock_timestamp()
FROM unnest(CAST(:holds AS text[])) AS g(id)
WHERE {OF_HOLD.format(hold="g.id")} AND r.state = 'scheduled'
""")  # noqa: S608 - the parts are constants of this file

_UNDER_WAY = text(f"""
SELECT r.channel FROM reminders AS r
WHERE {OF_HOLD.format(hold="CAST(:hold AS text)")} AND r.state = 'claimed' ORDER BY r.key
""")  # noqa: S608 - the parts are constants of this file


def schedule(tx: Tx, hold: HoldId, at: datetime) -> None:
    """Write what reminds of a hold's present deadline, from `at` on. The caller has the hold's row locked, or new."""
    tx.execute(_SCHEDULE, {"hold": hold, "at": at})


def call_off(tx: Tx, holds: Sequence[HoldId], reason: str) -> None:
    """Call off what is scheduled for these holds, whose rows the caller has locked and changed.

    Against a worker that takes one: both lock the reminder's row. Had the worker it first, this waits for its commit
    and leaves it: it is under way, and its take came before the caller's commit. Has this it first, the worker passes
    it over, or finds it called off. So nothing is sent whose take committed after the change. One that may have been
    sent already, and waited to be asked again with the same key, ends as unknown. Dies before commit: nothing is
    called off; after it: nothing is scheduled, and a repeat finds none.
    """
    tx.execute(_CALL_OFF_IF_SCHEDULED, {"holds": list(holds), "reason": reason})


def under_way(tx: Tx, hold: HoldId) -> tuple[Channel, ...]:
    """By which channels a reminder of this hold is just being sent; asked after `call_off`, in the same transaction."""
    return tuple(Channel(row.channel) for row in tx.execute(_UNDER_WAY, {"hold": hold}))
