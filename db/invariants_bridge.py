"""What must always hold of the bridge's messages; see db.invariants for the form."""

from collections.abc import Mapping

from db.invariants import Invariant

BRIDGE_INVARIANTS: Mapping[str, Invariant] = {
    "bridge-message": Invariant(
        "each held hold of a cohort on path infrai has its message, unless the cohort is being routed",
        """
        SELECT h.id, format('version %s in cohort %s has no message for the bridge since %s', h.version, h.cohort,
                            c.routed_at)
        FROM holds AS h JOIN cohort_paths AS c ON c.cohort = h.cohort
        LEFT JOIN bridge_messages AS m ON m.hold_id = h.id AND m.version = h.version
             AND (m.published_at IS NULL OR m.published_at >= c.routed_at)
        WHERE h.status = 'held' AND c.path = 'infrai' AND c.bridged_at IS NOT NULL AND m.hold_id IS NULL
        """,
    ),
    "bridge-deadline": Invariant(
        "a message names the deadline that its version of the hold has",
        """
        SELECT h.id, format('the message of version %s says %s, the hold %s', m.version, m.expires_at, h.expires_at)
        FROM bridge_messages AS m JOIN holds AS h ON h.id = m.hold_id AND h.version = m.version
        WHERE m.expires_at <> h.expires_at
        """,
    ),
}
