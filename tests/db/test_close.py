"""Confirming and cancelling: the deadline decides, once, and a repeat changes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from db import holds
from db.engine import Database
from domain.holds import Answer, Done, Reason, Refused, Status
from domain.identity import HoldId
from domain.outcomes import Outcome
from domain.terms import For
from tests.helpers import Desk, wait_for_lock, wait_until, whole_second

Close = Callable[[Desk, str, int], Answer]

CLOSINGS = pytest.mark.parametrize(
    ("close", "status"),
    [
        pytest.param(lambda desk, hold, version: desk.confirm(hold, version), Status.CONFIRMED, id="confirm"),
        pytest.param(lambda desk, hold, version: desk.cancel(hold, version), Status.CANCELLED, id="cancel"),
    ],
)


def refusal(answer: Answer) -> Reason:
    assert isinstance(answer, Refused)
    return answer.reason


@CLOSINGS
def test_closing_writes_one_effect_one_closing_entry_and_one_event(desk: Desk, close: Close, status: Status) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    desk.extend("h", 1, For(timedelta(hours=1)))
    answer = close(desk, "h", 2)
    assert isinstance(answer, Done)
    assert not answer.repeated
    hold = desk.read("h")
    assert (hold.status, hold.version) == (status, 2)
    assert hold.closed_at is not None
    assert hold.closed_at < hold.expires_at
    at = hold.closed_at
    kind = f"kind = '{status}'"
    assert desk.sql(f"SELECT key, version, expires_at, at, receipt FROM effects WHERE {kind}") == [
        (f"hold-{status}:h", 2, hold.expires_at, at, None)
    ]
    assert desk.sql("SELECT amount, currency, reason, at FROM ledger WHERE side = 'close'") == [
        (-1250, "EUR", status, at)
    ]
    assert desk.sql(f"SELECT event_id, occurred_at FROM events WHERE type = 'reservation.{status}'") == [
        (f"reservation-{status}:h:2", at)
    ]


@CLOSINGS
def test_a_repeat_returns_the_hold_as_it_is_and_changes_nothing(desk: Desk, close: Close, status: Status) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    close(desk, "h", 1)
    before = desk.everything()
    for _ in range(2):
        answer = close(desk, "h", 1)
        assert isinstance(answer, Done)
        assert answer.repeated
        assert answer.hold.status is status
    assert desk.everything() == before


@CLOSINGS
def test_a_repeat_after_the_deadline_still_returns_the_hold(desk: Desk, close: Close, status: Status) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    close(desk, "h", 1)
    desk.sql("UPDATE holds SET expires_at = date_trunc('second', now()) - interval '47 hours'")
    answer = close(desk, "h", 1)
    assert isinstance(answer, Done)
    assert answer.repeated


def test_a_cancel_for_another_reason_or_version_is_no_repeat(desk: Desk) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    desk.cancel("h", 1, "customer called")
    before = desk.everything()
    assert refusal(desk.cancel("h", 1, "fraud")) is Reason.CLOSED
    assert refusal(desk.cancel("h", 2, "customer called")) is Reason.CLOSED
    assert desk.everything() == before
    assert desk.read("h").close_reason == "customer called"


def test_what_was_closed_otherwise_is_refused(desk: Desk) -> None:
    desk.placed("confirmed")
    desk.confirm("confirmed")
    desk.placed("cancelled")
    desk.cancel("cancelled")
    desk.expire(desk.overdue("expired").reference)
    before = desk.everything()
    assert refusal(desk.cancel("confirmed")) is Reason.CLOSED
    assert refusal(desk.confirm("cancelled")) is Reason.CLOSED
    assert refusal(desk.confirm("expired")) is Reason.CLOSED
    assert refusal(desk.cancel("expired")) is Reason.CLOSED
    assert desk.everything() == before


@CLOSINGS
def test_another_version_is_refused(desk: Desk, close: Close, status: Status) -> None:
    desk.placed("h")
    before = desk.everything()
    assert refusal(close(desk, "h", 2)) is Reason.WRONG_VERSION
    assert desk.everything() == before


@CLOSINGS
def test_a_second_after_the_deadline_of_a_hold_nobody_has_swept_it_is_refused(
    desk: Desk, close: Close, status: Status
) -> None:
    """The deadline decides: at t=61 of a 60 s hold."""
    desk.placed("h", For(timedelta(seconds=60)), amount=1250, currency="EUR")
    desk.age("h", timedelta(seconds=61))
    before = desk.everything()
    assert refusal(close(desk, "h", 1)) is Reason.LAPSED
    assert desk.everything() == before


def test_confirmed_before_the_deadline_and_swept_after_it_stays_confirmed(desk: Desk) -> None:
    """Confirmed at t<60 of a 60 s hold and swept at t=61: no release, no event."""
    placed = desk.placed("h", For(timedelta(seconds=60)), amount=1250, currency="EUR")
    desk.confirm("h")
    before = desk.everything()
    late = placed.placed_at + timedelta(seconds=61.5)
    assert desk.expire(placed.reference, now=late) == [Outcome.STALE]
    after = desk.everything()
    assert after["receipts"] != before["receipts"]
    assert after | {"receipts": []} == before
    assert desk.read("h").status is Status.CONFIRMED


@CLOSINGS
def test_closing_that_waited_past_the_deadline_for_its_lock_is_refused(
    desk: Desk, database: Database, close: Close, status: Status
) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    with database.transaction() as other, ThreadPoolExecutor(1) as pool:
        deadline = whole_second(other, ahead=timedelta(seconds=2))
        desk.sql("UPDATE holds SET expires_at = :deadline", deadline=deadline)
        before = desk.everything()
        holds.lock(other, HoldId("h"))
        waiting = pool.submit(close, desk, "h", 1)
        wait_for_lock(other)
        assert holds.clock(other) < deadline
        wait_until(other, deadline)
        other.rollback()
        answer = waiting.result()
    assert refusal(answer) is Reason.LAPSED
    assert desk.everything() == before


def test_closing_is_recorded_at_the_very_instant_by_which_it_was_judged(desk: Desk, database: Database) -> None:
    """Even if the statement takes longer than what was left: a slow trigger stands for a slow machine."""
    desk.placed("h")
    desk.sql("""CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_sleep(extract(epoch FROM old.expires_at - clock_timestamp()) + 0.01); RETURN new;
    END $$""")
    desk.sql("CREATE TRIGGER dawdle BEFORE UPDATE OF status ON holds FOR EACH ROW EXECUTE FUNCTION dawdle()")
    with database.transaction() as tx:
        deadline = whole_second(tx, ahead=timedelta(seconds=2))
        tx.execute(text("UPDATE holds SET expires_at = :deadline"), {"deadline": deadline})
    answer = desk.confirm("h")
    assert isinstance(answer, Done)
    assert answer.hold.closed_at is not None
    assert answer.hold.closed_at < deadline <= answer.hold.read_at
    assert desk.sql("SELECT at < expires_at FROM effects WHERE kind = 'confirmed'") == [(True,)]


@pytest.mark.parametrize("close", ["confirm", "cancel"])
def test_a_hold_without_money_is_closed_without_a_ledger_entry(desk: Desk, close: str) -> None:
    desk.placed("h")
    getattr(desk, close)("h")
    assert desk.count("ledger") == 0
    assert desk.count("effects") == 2
    assert desk.count("events") == 2
