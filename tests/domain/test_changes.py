"""What follows from a change: effect key, ledger side, and the exact bytes of its event."""

import json
from datetime import UTC, datetime

import pytest

from domain.changes import Change, Kind, effect_key, event_of, ledger_side
from domain.identity import HoldId

DEADLINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
AT = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC)


def change(kind: Kind, resource: str = "seat 14") -> Change:
    return Change(kind, HoldId("seat-1"), 3, DEADLINE, resource, 1250, "EUR", AT)


@pytest.mark.parametrize(
    ("kind", "key", "side", "event"),
    [
        (Kind.PLACED, "hold-placed:seat-1", "open", "reservation-placed:seat-1:3"),
        (Kind.EXTENDED, "hold-extended:seat-1:v3", None, "reservation-extended:seat-1:3"),
        (Kind.CONFIRMED, "hold-confirmed:seat-1", "close", "reservation-confirmed:seat-1:3"),
        (Kind.CANCELLED, "hold-cancelled:seat-1", "close", "reservation-cancelled:seat-1:3"),
        (Kind.EXPIRED, "hold-expiry:seat-1:v3:1796115600", "close", "reservation-expired:seat-1:3"),
    ],
)
def test_each_kind_has_its_key_its_ledger_side_and_its_event(
    kind: Kind, key: str, side: str | None, event: str
) -> None:
    assert effect_key(change(kind)) == key
    assert ledger_side(kind) == side
    assert event_of(change(kind)).event_id == event
    assert event_of(change(kind)).type == f"reservation.{kind}"


def test_every_kind_is_argued_here() -> None:
    assert [kind.value for kind in Kind] == ["placed", "extended", "confirmed", "cancelled", "expired"]


def test_an_events_body_is_these_bytes() -> None:
    assert event_of(change(Kind.EXPIRED)).body == (
        b'{"type":"reservation.expired","timestamp":"2026-12-01T09:00:00.250000Z",'
        b'"data":{"reservation_id":"seat-1","hold_version":3,"resource":"seat 14",'
        b'"expires_at":"2026-12-01T09:00:00Z"}}'
    )


def test_an_events_body_is_utf8_on_one_line_and_the_same_bytes_each_time() -> None:
    made = change(Kind.PLACED, 'Zürich "A" \\ 料金 🎟')
    body = event_of(made).body
    assert body == event_of(made).body
    assert 'Zürich \\"A\\" \\\\ 料金 🎟'.encode() in body
    assert b"\n" not in body
    assert json.loads(body)["data"]["resource"] == 'Zürich "A" \\ 料金 🎟'


def test_an_event_tells_nothing_of_money_or_customer() -> None:
    body = json.loads(event_of(change(Kind.CONFIRMED)).body)
    assert sorted(body) == ["data", "timestamp", "type"]
    assert sorted(body["data"]) == ["expires_at", "hold_version", "reservation_id", "resource"]
