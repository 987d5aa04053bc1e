"""Placing: once per id, once per exclusive resource, and never behind the database's clock."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event

from db import holds
from db.engine import Database
from domain.errors import BadInput
from domain.holds import Answer, Done, Hold, Reason, Refused, Status
from domain.identity import HoldId
from domain.terms import For, Until
from tests.helpers import TWO_HOURS, Desk, carrier, terms, wait_for_lock, wait_until, whole_second

SECOND = timedelta(seconds=1)


def refusal(answer: Answer) -> Reason:
    assert isinstance(answer, Refused)
    return answer.reason


def test_a_hold_is_kept_as_asked_with_its_deadline_rounded_up_to_a_whole_second(desk: Desk) -> None:
    hold = desk.placed("seat-1", timezone="America/New_York", amount=1250, currency="EUR")
    assert timedelta(hours=2) <= hold.expires_at - hold.placed_at < timedelta(hours=2) + SECOND
    assert hold == Hold(
        id=HoldId("seat-1"),
        resource="seat 14",
        customer="acme",
        status=Status.HELD,
        version=1,
        expires_at=hold.expires_at.replace(microsecond=0),
        timezone="America/New_York",
        amount=1250,
        currency="EUR",
        exclusive=False,
        cohort=62,
        placed_at=hold.placed_at,
        closed_at=None,
        close_reason=None,
        set_aside=False,
        read_at=hold.read_at,
    )
    assert desk.sql("SELECT terms FROM holds") == [
        (
            {
                "resource": "seat 14", "customer": "acme", "timezone": "America/New_York", "amount": 1250,
                "currency": "EUR", "exclusive": False, "for": 7200.0,
            },
        ),
    ]  # fmt: skip


def test_placing_writes_one_effect_one_opening_entry_and_one_event(desk: Desk) -> None:
    hold = desk.placed("h", amount=1250, currency="EUR")
    at = hold.placed_at
    assert desk.sql("SELECT key, hold_id, kind, version, expires_at, at, receipt, imported FROM effects") == [
        ("hold-placed:h", "h", "placed", 1, hold.expires_at, at, None, False)
    ]
    assert desk.sql("SELECT hold_id, side, amount, currency, reason, at FROM ledger") == [
        ("h", "open", 1250, "EUR", "placed", at)
    ]
    assert desk.sql("SELECT event_id, hold_id, type, occurred_at FROM events") == [
        ("reservation-placed:h:1", "h", "reservation.placed", at)
    ]
    assert desk.count("receipts") == 0


def test_a_hold_without_money_has_no_ledger_entry(desk: Desk) -> None:
    desk.placed("h")
    assert desk.count("ledger") == 0
    assert desk.count("effects") == 1


def test_the_same_id_and_terms_return_the_hold_and_change_nothing(desk: Desk) -> None:
    first = desk.placed("h", amount=1250, currency="EUR")
    before = desk.everything()
    answer = desk.place("h", amount=1250, currency="EUR")
    assert isinstance(answer, Done)
    assert answer.repeated
    assert answer.hold.expires_at == first.expires_at
    assert desk.everything() == before


def test_one_instant_written_in_two_zones_makes_the_same_terms(desk: Desk) -> None:
    desk.placed("h", Until(datetime.fromisoformat("2030-12-01T10:00:00+01:00")))
    answer = desk.place("h", Until(datetime.fromisoformat("2030-12-01T09:00:00Z")))
    assert isinstance(answer, Done)
    assert answer.repeated


@pytest.mark.parametrize(
    "other",
    [
        {"resource": "seat 15"},
        {"customer": "globex"},
        {"lasting": For(timedelta(hours=3))},
        {"lasting": Until(datetime(2031, 1, 1, tzinfo=UTC))},
        {"timezone": "Europe/Berlin"},
        {"amount": 1251, "currency": "EUR"},
        {"amount": 1250, "currency": "USD"},
        {"amount": None, "currency": None},
        {"exclusive": True},
    ],
)
def test_the_same_id_with_other_terms_is_refused_and_nothing_changes(desk: Desk, other: dict[str, Any]) -> None:
    first = desk.placed("h", amount=1250, currency="EUR")
    before = desk.everything()
    asked: dict[str, Any] = {"amount": 1250, "currency": "EUR"}
    answer = desk.place("h", **asked | other)
    assert isinstance(answer, Refused)
    assert answer.reason is Reason.TERMS_DIFFER
    assert answer.hold is not None
    assert answer.hold.id == first.id
    assert desk.everything() == before


def test_a_repeat_after_the_end_returns_the_hold_with_its_present_status(desk: Desk) -> None:
    desk.placed("confirmed")
    desk.confirm("confirmed")
    desk.placed("cancelled")
    desk.cancel("cancelled")
    desk.expire(desk.overdue("expired").reference)
    desk.overdue("lapsed")
    before = desk.everything()
    for name in ("confirmed", "cancelled", "expired", "lapsed"):
        answer = desk.place(name)
        assert isinstance(answer, Done)
        assert answer.repeated
        assert answer.hold.standing == name
    assert desk.everything() == before


def test_the_id_of_a_hold_that_is_gone_but_stands_in_the_ledger_is_not_used_again(desk: Desk) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    desk.cancel("h")
    desk.sql("DELETE FROM holds")
    desk.sql("DELETE FROM effects")
    desk.sql("DELETE FROM events")
    before = desk.everything()
    assert refusal(desk.place("h", amount=1250, currency="EUR")) is Reason.ID_RETIRED
    assert desk.everything() == before


def test_a_deadline_at_or_before_now_is_refused(desk: Desk, database: Database) -> None:
    with database.transaction() as tx:
        now = whole_second(tx)
    with pytest.raises(BadInput, match=r"^until: .* is not after now \("):
        desk.place("h", Until(now))
    assert desk.count("holds") == 0


def test_a_deadline_a_fraction_of_a_second_ahead_is_rounded_up_never_down(desk: Desk) -> None:
    hold = desk.placed("h", For(timedelta(milliseconds=1)))
    assert hold.expires_at.microsecond == 0
    assert timedelta(milliseconds=1) <= hold.expires_at - hold.placed_at < SECOND + timedelta(milliseconds=1)


def test_two_holds_may_share_a_label_that_is_not_exclusive(desk: Desk) -> None:
    desk.placed("a", exclusive=False)
    desk.placed("b", exclusive=False)
    desk.placed("c", exclusive=True)
    assert desk.count("holds") == 3


def test_an_exclusive_hold_is_refused_while_another_counts(desk: Desk) -> None:
    desk.placed("a", exclusive=True)
    before = desk.everything()
    answer = desk.place("b", exclusive=True)
    assert isinstance(answer, Refused)
    assert answer.reason is Reason.RESOURCE_TAKEN
    assert answer.hold is not None
    assert answer.hold.id == "a"
    assert desk.everything() == before


@pytest.mark.parametrize("close", ["confirm", "cancel"])
def test_a_closed_hold_frees_its_resource(desk: Desk, close: str) -> None:
    desk.placed("a", exclusive=True)
    getattr(desk, close)("a")
    assert desk.placed("b", exclusive=True).id == "b"


def test_a_lapsed_hold_in_the_way_is_expired_in_the_same_transaction_and_its_money_closed(desk: Desk) -> None:
    lapsed = desk.overdue("a", exclusive=True, amount=1250, currency="EUR")
    desk.placed("b", exclusive=True)
    a = desk.read("a")
    assert (a.status, a.close_reason) == (Status.EXPIRED, "deadline passed")
    assert a.closed_at is not None
    assert a.closed_at <= desk.read("b").placed_at
    assert desk.sql("SELECT side, amount FROM ledger WHERE hold_id = 'a' ORDER BY side") == [
        ("close", -1250),
        ("open", 1250),
    ]
    assert desk.sql("SELECT e.key, r.message_id, r.tally FROM effects e JOIN receipts r ON r.id = e.receipt") == [
        (lapsed.reference.job_id, "place", {"expired": {str(a.cohort): 1}})
    ]
    with_xmin = "SELECT count(DISTINCT xmin::text) FROM (SELECT xmin FROM holds UNION ALL SELECT xmin FROM receipts) x"
    assert desk.sql(with_xmin) == [(1,)]


def test_a_refused_newcomer_leaves_the_lapsed_hold_in_the_way_as_it_was(desk: Desk) -> None:
    desk.overdue("a", exclusive=True)
    before = desk.everything()
    with pytest.raises(BadInput, match="is not after now"):
        desk.place("b", Until(datetime(2020, 1, 1, tzinfo=UTC)), exclusive=True)
    assert desk.everything() == before


def test_a_repeat_that_runs_beside_the_first_returns_its_hold(desk: Desk, database: Database) -> None:
    """Whatever the second has not seen yet when the first commits: its money in the ledger, or its seat."""
    committed: list[str] = []

    def place_meanwhile(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        looks_at = "ledger" if "FROM ledger" in statement else "seat" if "FOR UPDATE" in statement else None
        if looks_at is not None and looks_at == wanted and not committed:
            committed.append(looks_at)
            desk.placed(wanted, resource=wanted, exclusive=wanted == "seat", amount=1250, currency="EUR")

    event.listen(database.engine, "before_cursor_execute", place_meanwhile)
    for wanted in ("ledger", "seat"):
        committed.clear()
        answer = desk.place(wanted, resource=wanted, exclusive=wanted == "seat", amount=1250, currency="EUR")
        assert committed == [wanted]
        assert isinstance(answer, Done)
        assert answer.repeated
    assert desk.count("ledger") == 2


def test_one_id_placed_by_two_at_once_is_one_hold_and_both_are_told(desk: Desk) -> None:
    for number in range(20):
        together = Barrier(2)

        def place(_: int, name: str = f"h{number}", start: Barrier = together) -> Answer:
            start.wait()
            return desk.place(name, amount=5, currency="EUR", exclusive=True, resource=name)

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(place, range(2)))
        assert sorted(isinstance(a, Done) and a.repeated for a in answers) == [False, True]
    assert desk.count("ledger") == desk.count("effects") == desk.count("events") == desk.count("holds") == 20


def test_of_sixteen_exclusive_places_at_once_one_wins_and_the_lapsed_one_is_expired_once(desk: Desk) -> None:
    desk.overdue("old", exclusive=True, amount=1250, currency="EUR")
    together = Barrier(16)

    def place(number: int) -> Answer:
        together.wait()
        return desk.place(f"h{number}", exclusive=True)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(place, range(16)))
    winners = [answer.hold.id for answer in answers if isinstance(answer, Done)]
    assert len(winners) == 1
    assert [a.hold.id for a in answers if isinstance(a, Refused) and a.hold] == winners * 15
    assert desk.sql("SELECT id FROM holds ORDER BY id") == [(name,) for name in sorted([*winners, "old"])]
    assert desk.count("ledger", "side = 'close'") == 1
    assert desk.count("receipts") == 1


def test_a_place_that_waited_for_the_seat_counts_from_the_moment_it_got_it(desk: Desk, database: Database) -> None:
    desk.placed("a", exclusive=True)
    with database.transaction() as other, ThreadPoolExecutor(1) as pool:
        holds.cancel(other, HoldId("a"), 1, "not wanted")
        waiting = pool.submit(desk.place, "b", For(SECOND), exclusive=True)
        wait_for_lock(other)
        released = holds.clock(other)
        other.commit()
        answer = waiting.result()
    assert isinstance(answer, Done)
    assert answer.hold.placed_at >= released
    assert answer.hold.counts


def test_a_place_that_waited_past_its_own_deadline_is_refused(desk: Desk, database: Database) -> None:
    """It waits for another's uncommitted hold on the same seat, which then goes away."""
    with database.transaction() as other, ThreadPoolExecutor(1) as pool:
        deadline = whole_second(other, ahead=2 * SECOND)
        holds.place(other, HoldId("a"), terms(TWO_HOURS, exclusive=True), carrier())
        waiting = pool.submit(desk.place, "b", Until(deadline), exclusive=True)
        wait_for_lock(other)
        wait_until(other, deadline)
        other.rollback()
        with pytest.raises(BadInput, match="is not after now"):
            waiting.result()
    assert desk.count("holds") == 0
