"""Holds from elsewhere: taken once, with what their history entails; refused without a trace."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from db import holds
from db.importing import Answer, prepare, take
from domain.holds import Done, Reason, Refused
from domain.identity import HoldId
from domain.importing import read_hold
from domain.outcomes import Outcome
from domain.terms import Until
from tests.helpers import Desk, carrier, terms, wait_for_lock, whole_second

OLD = {"placed_at": "2025-01-01T00:00:00Z", "expires_at": "2025-01-02T00:00:00Z"}
AHEAD = "2030-01-01T00:00:00Z"


def imported(desk: Desk, *lines: dict[str, Any], emit: bool = False) -> tuple[int, int, list[str]]:
    """Counts of what was taken and was there already, and what is said of the bad lines."""
    with desk.database.transaction() as tx:
        now = whole_second(tx)
        batch = [
            read_hold(number, {"resource": "seat", "customer": "acme", "expires_at": AHEAD, **line}, now)
            for number, line in enumerate(lines, start=1)
        ]
        answer = take(tx, prepare(batch, emit=emit))
    return answer.taken, answer.already_there, [str(line) for line in answer.bad]


def test_an_empty_batch_takes_nothing(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        assert take(tx, prepare([], emit=True)) == Answer(0, 0, [])


def test_a_held_hold_is_taken_with_its_effect_and_its_opening_entry_and_no_event(desk: Desk) -> None:
    line = {"id": "a", "version": 3, "amount": 1250, "currency": "EUR", "placed_at": "2025-01-01T00:00:00Z"}
    assert imported(desk, line) == (1, 0, [])
    hold = desk.read("a")
    assert (hold.standing, hold.version, hold.amount, hold.closed_at) == ("held", 3, 1250, None)
    assert [
        tuple(row) for row in desk.sql("SELECT key, kind, version, at = :at, receipt, imported FROM effects",
                                       at=datetime.fromisoformat("2025-01-01T00:00:00Z"))
    ] == [("hold-placed:a", "placed", 3, True, None, True)]  # fmt: skip
    entries = desk.sql("SELECT hold_id, side, amount, currency, reason FROM ledger")
    assert [tuple(row) for row in entries] == [("a", "open", 1250, "EUR", "placed")]
    assert desk.count("events") == 0


@pytest.mark.parametrize(
    ("status", "key"),
    [
        ("confirmed", "hold-confirmed:a"),
        ("cancelled", "hold-cancelled:a"),
        ("expired", "hold-expiry:a:v2:1735776000"),
    ],
)
def test_a_closed_hold_is_taken_with_both_entries_which_cancel_out(desk: Desk, status: str, key: str) -> None:
    line = {"id": "a", "status": status, "version": 2, "amount": 5, "currency": "JPY", **OLD}
    assert imported(desk, line) == (1, 0, [])
    assert [tuple(row) for row in desk.sql("SELECT key, imported FROM effects ORDER BY kind = 'placed' DESC")] == [
        ("hold-placed:a", True),
        (key, True),
    ]
    entries = desk.sql("SELECT side, amount, reason, at FROM ledger ORDER BY side DESC")
    assert [tuple(row) for row in entries] == [
        ("open", 5, "placed", datetime.fromisoformat("2025-01-01T00:00:00Z")),
        ("close", -5, status, datetime.fromisoformat("2025-01-02T00:00:00Z")),
    ]


def test_a_hold_without_an_amount_has_no_ledger_entry(desk: Desk) -> None:
    assert imported(desk, {"id": "a"}, {"id": "b", "status": "confirmed"}) == (2, 0, [])
    assert desk.count("ledger") == 0


def test_history_makes_events_only_when_asked(desk: Desk) -> None:
    assert imported(desk, {"id": "a", "version": 2}, {"id": "b", "status": "cancelled", **OLD}, emit=True) == (2, 0, [])
    rows = desk.sql("SELECT event_id, type, occurred_at, convert_from(body, 'UTF8') FROM events ORDER BY event_id")
    assert [row[0] for row in rows] == ["reservation-cancelled:b:1", "reservation-placed:a:2", "reservation-placed:b:1"]
    body = (
        '{"type":"reservation.cancelled","timestamp":"2025-01-02T00:00:00Z","data":{"reservation_id":"b",'
        '"hold_version":1,"resource":"seat","expires_at":"2025-01-02T00:00:00Z"}}'
    )
    assert tuple(rows[0][1:]) == (
        "reservation.cancelled",
        datetime.fromisoformat("2025-01-02T00:00:00Z"),
        body,
    )


def test_an_imported_overdue_hold_is_expired_by_the_next_sweep_once(desk: Desk) -> None:
    imported(desk, {"id": "a", "version": 4, "amount": 700, "currency": "USD", **OLD})
    reference = desk.read("a").reference
    assert desk.expire(reference) == [Outcome.EXPIRED]
    assert desk.expire(reference) == [Outcome.DUPLICATE]
    assert [tuple(row) for row in desk.sql("SELECT side, amount FROM ledger ORDER BY side DESC")] == [
        ("open", 700),
        ("close", -700),
    ]
    assert desk.count("effects", "kind = 'expired' AND NOT imported") == 1
    assert desk.count("events") == 1


def test_the_same_lines_again_are_already_there_and_change_nothing(desk: Desk) -> None:
    lines: list[dict[str, Any]] = [
        {"id": "a", "amount": 5, "currency": "EUR"},
        {"id": "b", "status": "confirmed", **OLD},
    ]
    assert imported(desk, *lines, emit=True) == (2, 0, [])
    before = desk.everything()
    assert imported(desk, *lines, emit=True) == (0, 2, [])
    assert desk.everything() == before


def test_a_known_id_with_other_terms_is_a_bad_line_and_changes_nothing(desk: Desk) -> None:
    imported(desk, {"id": "a"})
    before = desk.everything()
    assert imported(desk, {"id": "a", "customer": "globex"}, {"id": "a", "expires_at": "2030-01-01T00:00:01Z"}) == (
        0,
        0,
        [
            "line 1: id: 'a' is a hold with other terms already; use another",
            "line 2: id: 'a' is a hold with other terms already; use another",
        ],
    )
    assert desk.everything() == before


def test_of_one_id_in_a_batch_the_first_line_counts(desk: Desk) -> None:
    assert imported(desk, {"id": "a", "customer": "first"}, {"id": "a", "customer": "first"}, {"id": "a"}) == (
        1,
        1,
        ["line 3: id: 'a' is a hold with other terms already; use another"],
    )
    assert desk.read("a").customer == "first"
    assert desk.count("effects") == 1


def test_a_relative_deadline_is_no_term_to_compare(desk: Desk) -> None:
    line = {"id": "a", "expires_at": None, "expires_in": "2h"}
    assert imported(desk, line) == (1, 0, [])
    desk.age("a", timedelta(hours=1))
    before = desk.everything()
    assert imported(desk, line) == (0, 1, [])
    assert imported(desk, line | {"customer": "globex"}) == (
        0,
        0,
        ["line 1: id: 'a' is a hold with other terms already; use another"],
    )
    assert desk.everything() == before


def test_place_with_the_terms_of_an_imported_hold_finds_it(desk: Desk) -> None:
    imported(desk, {"id": "a", "timezone": "Asia/Tokyo", "amount": 9, "currency": "JPY"})
    until = Until(datetime.fromisoformat(AHEAD))
    asked = {"resource": "seat", "customer": "acme", "timezone": "Asia/Tokyo", "currency": "JPY"}
    found = desk.place("a", until, amount=9, **asked)
    assert isinstance(found, Done)
    assert (found.hold.id, found.repeated) == ("a", True)
    refused = desk.place("a", until, amount=8, **asked)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.TERMS_DIFFER


def test_an_exclusive_hold_whose_resource_is_taken_is_a_bad_line(desk: Desk) -> None:
    desk.placed("z", resource="berth 1", exclusive=True)
    before = desk.everything()
    assert imported(desk, {"id": "a", "resource": "berth 1", "exclusive": True}) == (
        0,
        0,
        ["line 1: resource: 'berth 1' is taken by the exclusive hold 'z'"],
    )
    assert desk.everything() == before


def test_of_two_exclusive_holds_in_a_batch_one_has_the_resource(desk: Desk) -> None:
    berth = {"resource": "berth 1", "exclusive": True}
    closed = {"id": "c", "status": "confirmed", **OLD}
    assert imported(desk, {"id": "a", **berth}, {"id": "b", **berth}, {**closed, **berth}) == (
        2,
        0,
        ["line 2: resource: 'berth 1' is taken by the exclusive hold 'a'"],
    )
    assert [row.id for row in desk.sql("SELECT id FROM holds ORDER BY id")] == ["a", "c"]
    assert desk.count("effects", "hold_id = 'b'") == 0


def test_a_repeat_of_a_refused_line_is_refused_too(desk: Desk) -> None:
    desk.placed("z", resource="berth 1", exclusive=True)
    berth = {"id": "a", "resource": "berth 1"}
    assert imported(desk, {**berth, "exclusive": True}, berth) == (
        0,
        0,
        [
            "line 1: resource: 'berth 1' is taken by the exclusive hold 'z'",
            "line 2: id: 'a' is on a refused line above, or was just given up by another; import it again",
        ],
    )
    assert desk.count("holds") == 1


def test_an_id_that_the_ledger_knows_from_a_pruned_hold_is_a_bad_line(desk: Desk) -> None:
    imported(desk, {"id": "a", "status": "confirmed", "amount": 5, "currency": "EUR", **OLD})
    desk.sql("DELETE FROM effects")
    desk.sql("DELETE FROM holds")
    before = desk.everything()
    assert imported(desk, {"id": "a"}) == (
        0,
        0,
        ["line 1: id: 'a' belonged to a hold that was pruned; use another"],
    )
    assert desk.everything() == before


def test_an_import_that_waits_for_a_place_of_the_same_id_finds_it_there(desk: Desk) -> None:
    answers: list[tuple[int, int, list[str]]] = []
    with desk.database.transaction() as tx:
        placed = holds.place(tx, HoldId("b"), terms(Until(datetime.fromisoformat(AHEAD)), resource="seat"), carrier())
        assert isinstance(placed, Done)
        waiting = threading.Thread(target=lambda: answers.append(imported(desk, {"id": "a"}, {"id": "b"})))
        waiting.start()
        with desk.database.transaction() as watcher:
            wait_for_lock(watcher)
    waiting.join(20)
    assert answers == [(1, 1, [])]
    assert desk.count("effects", "kind = 'placed'") == 2


def test_two_imports_of_one_batch_in_opposite_orders_take_each_hold_once(desk: Desk) -> None:
    lines = [{"id": f"h-{n}", "amount": 1, "currency": "EUR"} for n in range(2000)]
    together = threading.Barrier(2)
    answers: list[tuple[int, int, list[str]]] = []

    def run(batch: list[dict[str, Any]]) -> None:
        together.wait(10)
        answers.append(imported(desk, *batch))

    threads = [threading.Thread(target=run, args=(batch,)) for batch in (lines, lines[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == [(0, 2000, []), (2000, 0, [])]
    assert (desk.count("holds"), desk.count("effects"), desk.count("ledger")) == (2000, 2000, 2000)
