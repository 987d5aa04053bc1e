"""Each check of the outbox finds what it is for, and is silent on an outbox that is in order."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from db import endpoint_events, endpoints, pruning
from db.engine import Database
from db.invariants_webhooks import WEBHOOK_INVARIANTS
from db.reconcile import violations
from domain.endpoints import Overrides
from domain.webhooks import RetryPolicy
from tests.hooks import BROKEN, OK, Hooks

_ATTEMPTS = """
UPDATE deliveries SET attempts = {last} WHERE event_id LIKE '%:{hold}:%' AND endpoint_id = 'ep';
INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker, duration, status)
SELECT 'reservation-placed:{hold}:1', 'ep', n, '{trigger}', {at}, '{{}}', 'w', '1 s', 500
FROM generate_series({first}, {last}) AS n;
"""
"""Attempts that failed, to the receiver's charge."""
_REPLAYED = """
UPDATE deliveries
SET trigger = 'replay', replays = {replays}, earlier = {earlier}, spared = {spared}, replayed_at = now(),
    aging_since = now()
WHERE event_id LIKE '%:{hold}:%' AND endpoint_id = 'ep'"""

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
    (_ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=2, at="now()"), {"delivery-bounds": "waiting"}),
    (  # in the walk before the replay that has just begun
        _ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=2, at="now() - interval '1 h'")
        + _REPLAYED.format(hold="waiting", earlier=2, spared=2, replays=1),
        {"delivery-bounds": "waiting"},
    ),
    (  # in the replay
        _ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=1, at="now() - interval '1 h'")
        + _ATTEMPTS.format(hold="waiting", trigger="replay", first=2, last=3, at="now()")
        + _REPLAYED.format(hold="waiting", earlier=1, spared=1, replays=1),
        {"delivery-bounds": "waiting"},
    ),
    (  # a replay before the last one
        _ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=1, at="now() - interval '1 h'")
        + _ATTEMPTS.format(hold="waiting", trigger="replay", first=2, last=4, at="now()")
        + _REPLAYED.format(hold="waiting", earlier=4, spared=4, replays=2),
        {"delivery-bounds": "waiting"},
    ),
    (
        _ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=1, at="now() + interval '4 days 2 min'"),
        {"delivery-bounds": "waiting"},
    ),
    (
        _ATTEMPTS.format(hold="waiting", trigger="auto", first=1, last=1, at="now() + interval '1 h 2 min'")
        + ";\nUPDATE endpoints SET max_age = '1 h'",
        {"delivery-bounds": "waiting"},
    ),
    (  # an attempt of a test is its only one
        """UPDATE deliveries SET attempts = 2 WHERE trigger = 'test';
           INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker)
           SELECT event_id, endpoint_id, 2, 'test', started_at, key_ids, worker FROM attempts WHERE trigger = 'test'""",
        {"delivery-bounds": None},
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


def told(hooks: Hooks, **bounds: Any) -> dict[str, str | None]:
    with hooks.database.transaction() as tx:
        return {violation.check: violation.hold_id for violation in violations(tx, **bounds)}


def test_an_outbox_in_order_has_no_violation(hooks: Hooks) -> None:
    states = hooks.rows("SELECT DISTINCT state FROM deliveries ORDER BY 1")
    assert states == [("cancelled",), ("dead",), ("delivered",), ("pending",)]
    assert told(hooks) == {}


@pytest.mark.parametrize(("change", "expected"), PLANTED)
def test_a_planted_violation_is_found_and_nothing_else(
    hooks: Hooks, change: str, expected: dict[str, str | None]
) -> None:
    for statement in change.split(";\n"):
        if statement.strip():
            hooks.sql(statement)
    assert told(hooks) == expected


def test_attempts_made_under_other_bounds_are_not_judged_by_the_present_ones(hooks: Hooks) -> None:
    """Of an endpoint's own it is known since when they hold; of the deployment's, whoever changed them says so."""
    now = hooks.rows("SELECT now()")[0][0]
    hooks.endpoint("free")
    hooks.endpoint("bound", overrides=Overrides(max_attempts=5))
    hooks.placed("h")
    for name in ("free", "bound"):
        for _ in range(4):
            hooks.make_due()
            hooks.attempt(BROKEN, name)
    assert told(hooks) == {}
    hooks.call(endpoints.edit, "bound", hooks.see("bound").terms)
    assert hooks.rows("SELECT bounds_since FROM endpoints WHERE id = 'bound'") == [(None,)]
    hooks.call(endpoints.edit, "bound", replace(hooks.see("bound").terms, overrides=Overrides(max_attempts=2)))
    assert told(hooks) == {}
    lower = RetryPolicy(attempts=3)
    assert told(hooks, bounds=lower) == {"delivery-bounds": "h"}
    assert told(hooks, bounds=lower, bounds_since=now) == {"delivery-bounds": "h"}
    assert told(hooks, bounds=lower, bounds_since=now + timedelta(hours=1)) == {}


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
