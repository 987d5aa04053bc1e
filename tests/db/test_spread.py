"""A thousand deliveries that fail at once come back spread out, by what the settling really writes."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from sqlalchemy import text

from db import deliveries
from db.deliveries import Settled, Taken
from db.engine import Database
from domain.identity import EventId
from domain.webhooks import LADDER, judge
from tests.hooks import BOUNDS, BROKEN, TOOK, Hooks, fill_backlog

TOGETHER = 1000
STEPS = [(attempt, step) for attempt, step in enumerate(LADDER) if attempt > 0]
"""How many attempts were made, and how long the wait for the next one may be."""


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def all_taken(hooks: Hooks, attempt: int, like: Taken) -> list[Taken]:
    """As if every delivery were being sent at this instant, for this time."""
    rows = hooks.rows(
        """UPDATE deliveries SET attempts = :n, lease_token = gen_random_uuid(), lease_until = now() + interval '1 h',
                                 next_attempt_at = now() - interval '1 s' RETURNING event_id, lease_token""",
        n=attempt,
    )
    return [replace(like, event_id=EventId(event), token=UUID(str(token)), number=attempt) for event, token in rows]


_WAIT = text("SELECT next_attempt_at - clock_timestamp() FROM deliveries WHERE event_id = :event")


def seconds_of_return(hooks: Hooks, attempt: int, like: Taken) -> Counter[int]:
    """How many come back in each second after they failed; each wait is read directly after it was written."""
    random, waits = Random(attempt), Counter[int]()
    with hooks.database.session() as session, session.transaction() as tx:
        for taken in all_taken(hooks, attempt, like):
            verdict = judge(BROKEN, taken.made(TOOK), taken.policy, random=random)
            assert deliveries.settle(tx, taken, BROKEN, verdict, BOUNDS, took=TOOK) is Settled.DONE
            wait = tx.execute(_WAIT, {"event": taken.event_id}).scalar_one()
            waits[int(max(wait, timedelta(0)).total_seconds())] += 1
    return waits


@pytest.mark.parametrize(("attempt", "step"), STEPS, ids=[f"{step.total_seconds():.0f}s" for _, step in STEPS])
def test_no_second_sees_many_of_those_that_failed_together(hooks: Hooks, attempt: int, step: timedelta) -> None:
    hooks.endpoint()
    fill_backlog(hooks, TOGETHER)
    waits = seconds_of_return(hooks, attempt, hooks.taken(hooks.held()))
    assert waits.total() == TOGETHER
    assert max(waits) <= step.total_seconds()
    assert max(waits.values()) <= TOGETHER * (0.05 if step >= timedelta(seconds=30) else 0.3)
