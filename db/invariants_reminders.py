"""What must always hold of reminders and their attempts. In the form of db.invariants."""

# ruff: noqa: S608 - every part of a statement is a constant of this project

from collections.abc import Mapping

from db.invariants import Invariant
from db.reminders import KEY

_KEY = KEY.format(hold="r.hold_id", channel="r.channel", deadline="r.expires_at", lead="r.lead")

# A reminder is written where its instant lies ahead of the change that gave the hold its deadline. When an imported
# hold came in is on no record, so of those only what is still ahead is looked for.
_OWED = """
FROM holds AS h CROSS JOIN LATERAL unnest(h.leads) AS l(lead)
CROSS JOIN LATERAL (VALUES ('email', h.email), ('sms', h.phone)) AS c(channel, contact)
JOIN effects AS e ON e.hold_id = h.id AND e.version = h.version AND e.kind IN ('placed', 'extended')
LEFT JOIN reminders AS r ON r.hold_id = h.id AND r.channel = c.channel AND r.expires_at = h.expires_at
                        AND r.lead = l.lead
WHERE h.status = 'held' AND c.contact IS NOT NULL
  AND h.expires_at - l.lead > CASE WHEN e.imported THEN now() ELSE e.at END
"""

REMINDER_INVARIANTS: Mapping[str, Invariant] = {
    "reminder-key": Invariant(
        "each reminder's key is spelled from its hold, channel, deadline and lead, so there is one of each",
        f"SELECT r.hold_id, format('reminder %s has another key', r.key) FROM reminders AS r WHERE r.key <> {_KEY}",
    ),
    # Resend and Telnyx answer a repeated key without sending again; and an operator may order a second.
    "reminder-once": Invariant(
        "no reminder was accepted twice by itself, and each that was sent was accepted",
        """
        SELECT r.hold_id, format('reminder %s is %s, accepted %s times', r.key, r.state, coalesce(a.accepted, 0))
        FROM reminders AS r LEFT JOIN (
            SELECT key, count(*) AS accepted, count(*) FILTER (WHERE provider NOT IN ('resend', 'telnyx')) AS apart
            FROM reminder_attempts WHERE outcome = 'accepted' GROUP BY key
        ) AS a ON a.key = r.key
        WHERE (a.apart > 1 AND r.decision IS DISTINCT FROM 'resend')
           OR (r.state = 'sent' AND coalesce(a.accepted, 0) = 0)
        """,
    ),
    "reminder-attempts": Invariant(
        "each reminder has as many attempts on record as it counts, numbered from 1",
        """
        SELECT r.hold_id, format('reminder %s counts %s attempts, on record: %s', r.key, r.attempts,
                                 coalesce(a.attempts, 0))
        FROM reminders AS r LEFT JOIN (
            SELECT key, count(*) AS attempts, max(number) AS last FROM reminder_attempts GROUP BY key
        ) AS a ON a.key = r.key
        WHERE coalesce(a.attempts, 0) <> r.attempts OR coalesce(a.last, 0) <> r.attempts
        """,
    ),
    "reminder-lease": Invariant(
        "no reminder is under way long after its lease",
        """
        SELECT r.hold_id, format('reminder %s is claimed, its lease ended at %s', r.key, r.next_at)
        FROM reminders AS r WHERE r.state = 'claimed' AND r.next_at < now() - interval '10 minutes'
        """,
    ),
    "reminder-hold": Invariant(
        "what was never taken is scheduled only before the deadline of a held hold",
        """
        SELECT r.hold_id, format('reminder %s is scheduled, the hold is %s', r.key, coalesce(h.status, 'gone'))
        FROM reminders AS r LEFT JOIN holds AS h ON h.id = r.hold_id
        WHERE r.state = 'scheduled' AND r.attempts = 0
          AND (h.id IS NULL OR h.status <> 'held' OR h.expires_at <> r.expires_at)
        """,
    ),
    "reminder-owed": Invariant(
        "each held hold with contacts has its reminders: one for each channel and lead that lay ahead",
        f"""
        SELECT h.id, format('has no reminder by %s, %s before its deadline', c.channel, l.lead)
        {_OWED} AND r.key IS NULL
        """,
    ),
}
