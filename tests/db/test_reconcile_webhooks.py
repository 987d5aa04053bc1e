"""Each check of the outbox finds what it is for, and is silent on an outbox that is in order."""

from datetime import timedelta

import pytest

from db import endpoint_events, endpoints, pruning
from db.engine import Database
from db.invariants_webhooks import WEBHOOK_INVARIANTS
from db.reconcile import violations
from domain.endpoints import Overrides
from tests.hooks import BROKEN, OK, Hooks

PLANTED: list[tuple[str, dict[str, str | None]]] = [
    ("UPDATE events SET audience = 7 WHERE event_id = 'reservation-placed:good:1'", {"event-deliveries": "good"}),
    (
        """DELETE FROM attempts WHERE event_id = 'reservation-placed:good:1';
           DELETE FROM deliveries WHERE event_id = 'reservation-placed:good:1'""",
        {"event-deliveries": "good"},
    ),
    ("UPDATE deliveries SET attempts = 9 WHERE event_id LIKE '%:good:%'", {"delivery-attempts": "good"}),
    ("UPDATE attempts SET number = 4 WHERE event_id LIKE '%:good:%'", {"delivery-attempts": "good"}),
    (
        "UPDATE deliveries SET endpoint_id = 'x' WHERE event_id LIKE '%:waiting:%' AND endpoint_id = 'ep'",
        {"delivery-event": "waiting"},
    ),
    (
        """INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker)
           VALUES ('x', 'x', 1, 'auto', now(), '{}', 'w')""",
        {"attempt-delivery": None},
    ),
    ("DELETE FROM dead_letters", {"delivery-letter": "bad"}),
    (
        "UPDATE deliveries SET state = 'cancelled' WHERE state = 'dead' AND trigger <> 'test'",
        {"delivery-letter": "bad"},
    ),
    (
        """UPDATE deliveries SET attempts = 101 WHERE event_id LIKE '%:waiting:%' AND endpoint_id = 'ep';
           INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker)
           SELECT 'reservation-placed:waiting:1', 'ep', n, 'auto', now(), '{}', 'w'
           FROM generate_series(1, 101) AS n""",
        {"delivery-bounds": "waiting"},
    ),
    ("UPDATE attempts SET status = 500 WHERE event_id LIKE '%:good:%'", {"delivered-attempt": "good"}),
]


@pytest.fixture
def hooks(database: Database) -> Hooks:
    """One delivery in each state, a test, and facts about endpoints."""
    hooks = Hooks(database)
    hooks.placed("early")
    hooks.endpoint(overrides=Overrides(max_attempts=1))
    hooks.endpoint("gone")
    hooks.placed("good")
    hooks.attempt(OK)
    hooks.placed("bad")
    hooks.attempt(BROKEN)
    hooks.call(endpoint_events.try_out)
    hooks.attempt(BROKEN)
    hooks.placed("waiting")
    hooks.call(endpoints.disable, "gone", "by hand")
    hooks.call(endpoints.delete, "gone")
    return hooks


def told(hooks: Hooks) -> dict[str, str | None]:
    with hooks.database.transaction() as tx:
        return {violation.check: violation.hold_id for violation in violations(tx)}


def test_an_outbox_in_order_has_no_violation(hooks: Hooks) -> None:
    states = hooks.rows("SELECT DISTINCT state FROM deliveries ORDER BY 1")
    assert states == [("cancelled",), ("dead",), ("delivered",), ("pending",)]
    assert told(hooks) == {}


@pytest.mark.parametrize(("change", "expected"), PLANTED)
def test_a_planted_violation_is_found_and_nothing_else(
    hooks: Hooks, change: str, expected: dict[str, str | None]
) -> None:
    for statement in change.split(";\n"):
        hooks.sql(statement)
    assert told(hooks) == expected


def test_each_check_has_a_violation_planted_for_it() -> None:
    assert {check for _, expected in PLANTED for check in expected} == set(WEBHOOK_INVARIANTS)


def test_pruning_keeps_what_somebody_waits_for_and_forgets_the_rest(hooks: Hooks) -> None:
    for hold in ("good", "bad", "waiting", "early"):
        hooks.sql("UPDATE endpoints SET types = '{reservation.placed}'")
        hooks.cancel(hold)
    pruned = pruning.prune(hooks.database, older_than=timedelta(0))
    assert (pruned.holds, hooks.count("holds")) == (4, 0)
    left = hooks.rows("SELECT event_id FROM events WHERE hold_id IS NOT NULL ORDER BY 1")
    assert left == [("reservation-placed:bad:1",), ("reservation-placed:waiting:1",)]
    assert hooks.count("attempts", "event_id LIKE '%:good:%'") == 0
    assert told(hooks) == {}
    assert hooks.attempt(OK).event_id == "reservation-placed:waiting:1"
