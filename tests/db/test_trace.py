"""A trace tells everything about one hold in order of time, and reads no table through."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from db import replays
from db.trace import trace
from domain.endpoints import EndpointId, Overrides
from domain.holds import Hold
from domain.identity import EventId, HoldId
from domain.outcomes import Outcome
from domain.paths import Carrier, Path
from domain.terms import Until
from domain.tracing import Step, Trace, in_time
from tests.helpers import Desk, fill, whole_second
from tests.histories import EUR, HOUR, forget, live_through_everything, set_aside, settle, sweep, take
from tests.hooks import BROKEN, OK, TIMEOUT, Hooks


def traced(desk: Desk, hold: str = "h") -> Trace:
    with desk.database.transaction() as tx:
        found = trace(tx, HoldId(hold))
    assert found is not None
    assert found.hold_id == hold
    return found


def story(desk: Desk, hold: str = "h") -> list[str]:
    return [step.what for step in traced(desk, hold).steps]


def facts(found: Trace, what: str) -> list[dict[str, object]]:
    return [dict(step.facts) for step in found.steps if step.what == what]


@pytest.fixture
def expired(desk: Desk) -> Hold:
    """A hold of 12.50 EUR, extended once and then expired by a sweep, on the second attempt of its message."""
    desk.placed("h", amount=1250, **EUR)
    desk.extend("h", 1, HOUR)
    desk.age("h", timedelta(hours=3, seconds=10))
    sweep(desk)
    desk.sql("UPDATE receipts SET retries = 1, redelivered = true")
    return desk.read("h")


def test_an_expiry_is_told_from_its_placing_to_its_event(desk: Desk, expired: Hold) -> None:
    assert story(desk) == [
        "placed",
        "extended",
        "lapsed",
        "ledger entry",
        "event",
        "event",
        "observed",
        "message",
        "attempt",
        "expired",
        "ledger entry",
        "event",
    ]


def test_each_step_of_an_expiry_has_its_facts(desk: Desk, expired: Hold) -> None:
    found = traced(desk)
    first_deadline = expired.expires_at - HOUR.length
    assert facts(found, "placed") == [{"version": 1, "deadline": first_deadline}]
    assert facts(found, "extended") == [
        {"version": 2, "deadline": expired.expires_at, "deadline_before": first_deadline}
    ]
    assert facts(found, "lapsed") == [{"claims": 1}]
    run, claimed_until = (
        desk.sql("SELECT id, started_at FROM sweep_runs")[0],
        desk.sql("SELECT claimed_until FROM holds"),
    )
    assert facts(found, "observed") == [
        {"run": 1, "sweep": "expiry:sweep", "started": run.started_at, "claimed_until": claimed_until[0][0]}
    ]
    assert facts(found, "message") == [{"message": "m-1", "path": "sweep", "run": 1}]
    assert facts(found, "attempt") == [{"attempt": 2, "redelivered": True, "worker": "worker@test", "receipt": 1}]
    closed_at = expired.closed_at
    assert closed_at is not None
    late = (closed_at - expired.expires_at).total_seconds()
    assert facts(found, "expired") == [{"version": 2, "deadline": expired.expires_at, "late_s": late}]
    assert facts(found, "ledger entry") == [
        {"side": "open", "amount": 1250, "currency": "EUR", "reason": "placed"},
        {"side": "close", "amount": -1250, "currency": "EUR", "reason": "expired"},
    ]
    assert [told["event"] for told in facts(found, "event")] == [
        "reservation-placed:h:1",
        "reservation-extended:h:2",
        "reservation-expired:h:2",
    ]


def test_what_happened_at_one_instant_is_told_in_the_order_of_its_causes(desk: Desk) -> None:
    hold = desk.overdue("h", amount=5, **EUR)
    desk.sql("UPDATE effects SET at = :at", at=hold.expires_at)
    desk.sql("UPDATE events SET occurred_at = :at", at=hold.expires_at)
    desk.sql("ALTER TABLE ledger DISABLE TRIGGER ALL")
    desk.sql("UPDATE ledger SET at = :at", at=hold.expires_at)
    desk.sql("INSERT INTO sweep_runs (sweep, started_at) VALUES ('expiry\\:sweep', :at)", at=hold.expires_at)
    by = Carrier(message_id="m", path=Path.SWEEP, run=1, worker="w")
    assert desk.expire(hold.reference, by=by, now=hold.expires_at) == [Outcome.EXPIRED]
    found = traced(desk)
    assert {step.at for step in found.steps} == {hold.expires_at}
    assert [step.what for step in found.steps] == [
        "placed", "ledger entry", "event",
        "lapsed", "observed", "message", "attempt", "expired", "ledger entry", "event",
    ]  # fmt: skip


def test_a_run_that_began_before_the_deadline_observed_the_hold_no_sooner_than_then(desk: Desk, expired: Hold) -> None:
    desk.sql("UPDATE sweep_runs SET started_at = :early", early=expired.expires_at - HOUR.length)
    (observed,) = (step for step in traced(desk).steps if step.what == "observed")
    assert observed.at == expired.expires_at
    assert observed.facts["started"] == expired.expires_at - HOUR.length


def test_confirming_and_cancelling_are_told_with_their_reason(desk: Desk) -> None:
    for hold in ("kept", "dropped"):
        desk.placed(hold, amount=5, **EUR)
    desk.confirm("kept")
    desk.cancel("dropped", reason="rain")
    assert story(desk, "kept") == ["placed", "ledger entry", "event", "confirmed", "ledger entry", "event"]
    (cancelled,) = facts(traced(desk, "dropped"), "cancelled")
    assert cancelled["reason"] == "rain"


def test_an_extension_set_back_tells_each_deadline_it_had(desk: Desk) -> None:
    first = desk.placed("h").expires_at
    for version, deadline in enumerate((first + HOUR.length, first, first + 2 * HOUR.length), start=1):
        desk.extend("h", version, Until(deadline))
    assert [(told["deadline_before"], told["deadline"]) for told in facts(traced(desk), "extended")] == [
        (first, first + HOUR.length),
        (first + HOUR.length, first),
        (first, first + 2 * HOUR.length),
    ]


def test_more_than_nine_versions_are_told_in_order(desk: Desk) -> None:
    desk.placed("h")
    for version in range(1, 12):
        desk.extend("h", version, HOUR)
    assert [told["version"] for told in facts(traced(desk), "extended")] == list(range(2, 13))


def test_an_overdue_hold_tells_that_it_lapsed_and_which_run_claims_it(desk: Desk) -> None:
    desk.overdue("h")
    assert story(desk) == ["placed", "lapsed", "event"]
    desk.sql("INSERT INTO sweep_runs (sweep, started_at) VALUES ('expiry\\:sweep', now())")
    desk.sql("UPDATE holds SET claimed_run = 1, claims = 2")
    found = traced(desk)
    assert facts(found, "lapsed") == [{"claims": 2}]
    assert [told["run"] for told in facts(found, "observed")] == [1]


def test_a_hold_that_was_set_aside_tells_its_dead_letter_and_what_became_of_it(desk: Desk) -> None:
    hold = desk.overdue("h")
    letter = set_aside(desk, "h")
    desk.expire(hold.reference)
    settle(desk, letter, Outcome.EXPIRED)
    found = traced(desk)
    assert facts(found, "dead letter") == [
        {"number": letter, "kind": "expiry", "attempts": 3, "error": "numeric field overflow", "run": None}
    ]
    assert facts(found, "dead letter settled") == [{"number": letter, "outcome": "expired", "by": "ops"}]
    assert [step.what for step in found.steps][-5:] == [
        "message", "attempt", "expired", "event", "dead letter settled"
    ]  # fmt: skip


def test_deliveries_are_told_with_each_request_and_how_they_ended(desk: Desk) -> None:
    hooks = Hooks(desk.database)
    hooks.endpoint("ep", overrides=Overrides(max_attempts=2))
    hooks.placed("h")
    hooks.placed("other")
    hooks.sql("UPDATE deliveries SET next_attempt_at = now() + interval '1 h' WHERE event_id LIKE '%other%'")
    for result in (TIMEOUT, BROKEN):
        hooks.sql("UPDATE deliveries SET next_attempt_at = now() WHERE event_id NOT LIKE '%other%'")
        hooks.attempt(result)
    where = {"event": "reservation-placed:h:1", "endpoint": "ep"}
    made = {**where, "trigger": "auto", "took_s": 0.02, "peer": "192.0.2.1:443", "worker": "worker@test"}
    found = traced(desk)
    assert [step.what for step in found.steps] == [
        "placed", "event", "delivery", "request", "request", "delivery dead", "dead letter"
    ]  # fmt: skip
    assert facts(found, "delivery") == [{**where, "state": "dead", "next_attempt": None}]
    assert facts(found, "request") == [
        {**made, "number": 1, "status": None, "failure": "timeout"},
        {**made, "number": 2, "status": 500, "failure": None},
    ]
    assert facts(found, "delivery dead") == [where]
    [letter] = facts(found, "dead letter")
    assert (letter["kind"], letter["error"]) == ("delivery", "attempts used up")


def test_a_replayed_delivery_tells_who_did_it_and_that_it_was_delivered(desk: Desk) -> None:
    hooks = Hooks(desk.database)
    hooks.endpoint("ep", overrides=Overrides(max_attempts=1))
    hooks.placed("h")
    hooks.make_due()
    hooks.attempt(BROKEN)
    event = EventId("reservation-placed:h:1")
    with desk.database.transaction() as tx:
        replays.replay(tx, event, EndpointId("ep"), operator="jo")
    assert facts(traced(desk), "delivery") == [
        {"event": event, "endpoint": "ep", "state": "pending", "next_attempt": hooks.delivery().next_attempt_at}
    ]
    hooks.make_due()
    hooks.attempt(OK)
    found = traced(desk)
    assert [step.what for step in found.steps] == [
        "placed", "event", "delivery", "request", "dead letter",
        "delivery replayed", "dead letter settled", "request", "delivered",
    ]  # fmt: skip
    assert facts(found, "delivery replayed") == [{"event": event, "endpoint": "ep", "by": "jo", "replays": 1}]
    assert [told["trigger"] for told in facts(found, "request")] == ["auto", "replay"]


def test_an_imported_hold_says_so(desk: Desk) -> None:
    take(desk, {"id": "h", "expires_in": "-3h", "status": "confirmed", "version": 4, "amount": 7, "currency": "JPY"})
    found = traced(desk)
    assert [step.what for step in found.steps] == ["placed", "ledger entry", "confirmed", "ledger entry"]
    assert [step.facts["imported"] for step in found.steps if step.what in {"placed", "confirmed"}] == [True, True]


def test_a_pruned_hold_tells_what_remains(desk: Desk) -> None:
    hold = desk.overdue("h", amount=5, **EUR)
    letter = set_aside(desk, "h")
    desk.expire(hold.reference)
    settle(desk, letter, Outcome.EXPIRED)
    forget(desk, "h")
    found = traced(desk)
    assert found.hold is None
    assert sorted(step.what for step in found.steps) == [
        "dead letter", "dead letter settled", "ledger entry", "ledger entry"
    ]  # fmt: skip


def test_nothing_is_known_of_an_id_nobody_used(desk: Desk) -> None:
    desk.placed("h")
    with desk.database.transaction() as tx:
        assert trace(tx, HoldId("h2")) is None


def test_holds_whose_ids_begin_alike_are_not_mixed_up(desk: Desk) -> None:
    for hold in ("h", "h1", "h-", "h_v2"):
        desk.placed(hold)
        desk.extend(hold, 1, HOUR)
    assert story(desk) == ["placed", "event", "extended", "event"]


def test_json_carries_instants_as_texts(desk: Desk) -> None:
    at = datetime(2026, 12, 1, 9, tzinfo=UTC)
    step = Step(at, "observed", {"run": 1, "started": at, "claimed_until": None})
    assert Trace(HoldId("h"), None, (step,)).as_data() == {
        "id": "h",
        "hold": None,
        "steps": [
            {
                "at": "2026-12-01T09:00:00Z",
                "what": "observed",
                "facts": {"run": 1, "started": "2026-12-01T09:00:00Z", "claimed_until": None},
            }
        ],
    }
    hold = desk.placed("h")
    assert traced(desk).as_data()["hold"] == hold.as_data()


def test_steps_of_one_instant_keep_their_order() -> None:
    at = datetime(2026, 12, 1, 9, tzinfo=UTC)
    later, first, second = Step(at + HOUR.length, "later"), Step(at, "first"), Step(at, "second")
    assert in_time([later, first, second]) == (first, second, later)


def test_no_table_is_read_through(desk: Desk) -> None:
    """The plan of each statement on tables with 20,000 holds: keys only."""
    live_through_everything(desk)
    with desk.database.transaction() as tx:
        fill(tx, [f"other-{n}" for n in range(20_000)], deadline=whole_second(tx, HOUR.length))
        tx.execute(text("ANALYZE"))
    seen: list[tuple[str, Any]] = []
    for hold in ("gone", "aside", "longer", "old-kept"):
        with desk.database.transaction() as tx:
            event.listen(tx, "before_cursor_execute", lambda *call: seen.append((call[2], call[3])))
            assert trace(tx, HoldId(hold)) is not None
    assert len(seen) >= 20
    with desk.database.transaction() as tx:
        tx.execute(text("SET LOCAL enable_seqscan = off"))  # small tables: what matters is that a key can be used
        for statement, values in seen:
            plan = "\n".join(row[0] for row in tx.exec_driver_sql(f"EXPLAIN {statement}", values))
            assert "Seq Scan" not in plan, plan
        tx.execute(text("SET LOCAL enable_seqscan = on"))
        for statement, values in seen:
            plan = "\n".join(row[0] for row in tx.exec_driver_sql(f"EXPLAIN {statement}", values))
            for large in ("holds", "effects", "ledger"):
                assert f"Seq Scan on {large}" not in plan, plan
