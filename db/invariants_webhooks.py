"""What must always hold of events, deliveries and attempts. In the form of db.invariants."""

from collections.abc import Mapping

from db.invariants import Invariant

WEBHOOK_INVARIANTS: Mapping[str, Invariant] = {
    "event-deliveries": Invariant(
        "each event has as many deliveries as there were endpoints that wanted it",
        """
        SELECT v.hold_id, format('event %s went to %s endpoints, deliveries: %s', v.event_id, v.audience,
                                 coalesce(d.deliveries, 0))
        FROM events AS v LEFT JOIN (
            SELECT event_id, count(*) AS deliveries FROM deliveries GROUP BY event_id
        ) AS d ON d.event_id = v.event_id
        WHERE coalesce(d.deliveries, 0) <> v.audience
        """,
    ),
    "delivery-event": Invariant(
        "each delivery's event and endpoint exist",
        """
        SELECT v.hold_id, format('delivery of %s for %s: the %s is not there', d.event_id, d.endpoint_id,
                                 CASE WHEN v.event_id IS NULL THEN 'event' ELSE 'endpoint' END)
        FROM deliveries AS d LEFT JOIN events AS v ON v.event_id = d.event_id
        LEFT JOIN endpoints AS p ON p.id = d.endpoint_id
        WHERE v.event_id IS NULL OR p.id IS NULL
        """,
    ),
    "delivery-attempts": Invariant(
        "each delivery has as many attempts on record as it counts, numbered from 1",
        """
        SELECT v.hold_id, format('delivery of %s for %s counts %s attempts, on record: %s', d.event_id,
                                 d.endpoint_id, d.attempts, coalesce(a.attempts, 0))
        FROM deliveries AS d LEFT JOIN events AS v ON v.event_id = d.event_id LEFT JOIN (
            SELECT event_id, endpoint_id, count(*) AS attempts, max(number) AS last FROM attempts GROUP BY 1, 2
        ) AS a ON a.event_id = d.event_id AND a.endpoint_id = d.endpoint_id
        WHERE coalesce(a.attempts, 0) <> d.attempts OR coalesce(a.last, 0) <> d.attempts
        """,
    ),
    "attempt-delivery": Invariant(
        "each attempt's delivery exists",
        """
        SELECT NULL, format('attempt %s of %s for %s belongs to no delivery', a.number, a.event_id, a.endpoint_id)
        FROM attempts AS a LEFT JOIN deliveries AS d ON d.event_id = a.event_id AND d.endpoint_id = a.endpoint_id
        WHERE d.event_id IS NULL
        """,
    ),
    # Of the trigger `test` none: whoever tried an endpoint out has seen what came of it.
    "delivery-letter": Invariant(
        "each dead delivery has its dead letter, and an open dead letter of a delivery a dead one",
        """
        SELECT v.hold_id, format('delivery of %s for %s is %s, its dead letter %s', d.event_id, d.endpoint_id,
                                 d.state, CASE WHEN l.id IS NULL THEN 'missing' ELSE 'open' END)
        FROM deliveries AS d LEFT JOIN events AS v ON v.event_id = d.event_id
        LEFT JOIN dead_letters AS l ON l.key = concat('delivery:', d.event_id, ':', d.endpoint_id)
        WHERE (d.state = 'dead' AND d.trigger <> 'test' AND l.id IS NULL)
           OR (d.state <> 'dead' AND l.id IS NOT NULL AND l.replayed_at IS NULL)
        """,
    ),
    # Judged by the present bounds, so only by attempts since these hold. What is unsure is left out: an attempt without
    # its answer may have been spared, of a replay before the last one nobody knows the age, and an endpoint may have
    # stood still at any time.
    "delivery-bounds": Invariant(
        "no delivery, and no replay, was charged more attempts or tried later than its endpoint allows",
        """
        WITH bound AS (
            SELECT id, p.stood_still + coalesce(now() - p.still_since, '0') AS still,
                   coalesce(p.max_attempts, :attempts) AS cap, coalesce(p.max_age, CAST(:max_age AS interval)) AS age,
                   greatest(p.bounds_since, CAST(:bounds_since AS timestamptz), '-infinity') AS since
            FROM endpoints AS p
        ), judged AS (
            SELECT d.event_id, d.endpoint_id, d.attempts, d.spared, d.replays, b.age,
                   CASE d.trigger WHEN 'test' THEN 1 ELSE b.cap END AS cap, bool_or(a.number = d.attempts) AS lately,
                   count(*) FILTER (WHERE a.trigger <> 'replay' AND a.charged) AS first_walk,
                   count(*) FILTER (WHERE a.trigger = 'replay' AND a.charged) AS replayed,
                   bool_or(a.started_at > interval '1 min' + CASE
                       WHEN a.number > d.earlier THEN d.aging_since + b.age + b.still - d.still_before
                       WHEN a.trigger = 'auto' THEN d.created_at + b.age + b.still END) AS late
            FROM deliveries AS d JOIN bound AS b ON b.id = d.endpoint_id
            JOIN (
                SELECT *, duration IS NOT NULL AND coalesce(failure, '') NOT IN ('blocked', 'ours') AS charged
                FROM attempts
            ) AS a ON a.event_id = d.event_id AND a.endpoint_id = d.endpoint_id AND a.started_at >= b.since
            GROUP BY d.event_id, d.endpoint_id, b.cap, b.age
        )
        SELECT v.hold_id, format('delivery of %s for %s: %s attempts, %s of them spared, %s replays; allowed: %s each, '
                                 'within %s', j.event_id, j.endpoint_id, j.attempts, j.spared, j.replays, j.cap, j.age)
        FROM judged AS j LEFT JOIN events AS v ON v.event_id = j.event_id
        WHERE j.lately AND j.attempts - j.spared > j.cap
           OR j.first_walk > j.cap OR j.replayed > j.cap * j.replays OR j.late
        """,
    ),
    "delivered-attempt": Invariant(
        "each delivered delivery has an attempt that was answered with 2xx, unless its record could not be written",
        """
        SELECT v.hold_id, format('delivery of %s for %s is delivered, no attempt says so', d.event_id, d.endpoint_id)
        FROM deliveries AS d LEFT JOIN events AS v ON v.event_id = d.event_id
        WHERE d.state = 'delivered' AND NOT EXISTS (
            SELECT FROM attempts AS a WHERE a.event_id = d.event_id AND a.endpoint_id = d.endpoint_id
              AND (a.status BETWEEN 200 AND 299 OR a.duration IS NULL))
        """,
    ),
}
