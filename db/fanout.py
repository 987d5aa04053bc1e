"""Deliveries of new events: one for each endpoint that, in the transaction's snapshot, wants the type.

A piece of the statement that writes the events, so that a rolled back event has no delivery and a committed one has
all of its own. Without endpoints it joins with an empty table.
"""

_WANTS = "p.state <> 'deleted' AND (p.types IS NULL OR {event_type} = ANY(p.types))"


def audience_of(event_type: str, *, where: str = "true") -> str:
    """SQL: how many endpoints an event of this type goes to, in the same snapshot as `deliveries_of`."""
    wants = _WANTS.format(event_type=event_type)
    return f"(SELECT count(*) FROM endpoints AS p WHERE {wants} AND {where})"  # noqa: S608 - constants of this project


def deliveries_of(source: str, *, event_id: str, event_type: str, at: str, where: str = "true") -> str:
    """SQL: insert the deliveries of the events that `source`, a FROM item, gives `where` it does.

    `event_id`, `event_type` and `at` are SQL expressions; `p` is the endpoint. A paused or disabled endpoint gets its
    deliveries, which wait; how long it has stood still so far is noted, since that is no part of their age.
    """
    return f"""
    INSERT INTO deliveries (event_id, endpoint_id, next_attempt_at, created_at, aging_since, still_before)
    SELECT {event_id}, p.id, {at} + coalesce(p.waits[1] * random(), '0'), {at}, {at},
           p.stood_still + coalesce(greatest({at} - p.still_since, '0'), '0')
    FROM {source} CROSS JOIN endpoints AS p
    WHERE {_WANTS.format(event_type=event_type)} AND {where}
    """  # noqa: S608 - the parts are constants of this project
