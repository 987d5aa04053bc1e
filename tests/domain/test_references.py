"""The reference: the same four fields on every transport, and one exact line for each way to get them wrong."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.identity import HoldId
from domain.references import MalformedReference, Reference, parse_reference

GOOD: dict[str, Any] = {
    "job_id": "hold-expiry:seat-1:v3:1796115600",
    "reservation_id": "seat-1",
    "hold_version": 3,
    "expected_expires_at": "2026-12-01T09:00:00Z",
}


def test_a_reference_is_read_as_it_was_written() -> None:
    reference = Reference.to(HoldId("seat-1"), 3, datetime(2026, 12, 1, 9, tzinfo=UTC))
    assert reference.as_data() == GOOD
    assert list(reference.as_data()) == ["job_id", "reservation_id", "hold_version", "expected_expires_at"]
    assert parse_reference(GOOD) == reference


def test_the_deadline_is_compared_as_an_instant_not_as_a_text() -> None:
    assert parse_reference(GOOD | {"expected_expires_at": "2026-12-01T10:00:00+01:00"}) == parse_reference(GOOD)
    assert parse_reference(GOOD | {"expected_expires_at": "2026-12-01T09:00:00.000+00:00"}) == parse_reference(GOOD)


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    st.integers(1, 2**31 - 1),
    st.integers(0, 253_402_300_799),
)
def test_every_reference_survives_its_transport(hold: str, version: int, seconds: int) -> None:
    reference = Reference.to(HoldId(hold), version, datetime.fromtimestamp(seconds, UTC))
    assert parse_reference(json.loads(json.dumps(reference.as_data()))) == reference


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != field}


LARGEST = "must be a whole number from 1 to 2147483647"
NO_TEXT = "must be a text like 2026-12-01T10:00:00+01:00"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "reference: must be a JSON object with the four fields of a reference"),
        ([GOOD], "reference: must be a JSON object with the four fields of a reference"),
        ("hold-expiry:seat-1:v3:1796115600", "reference: must be a JSON object with the four fields of a reference"),
        ({}, "expected_expires_at: is missing"),
        (without("job_id"), "job_id: is missing"),
        (without("reservation_id"), "reservation_id: is missing"),
        (without("hold_version"), "hold_version: is missing"),
        (without("expected_expires_at"), "expected_expires_at: is missing"),
        (GOOD | {"amount": 5, "zone": 1}, "amount: is no field of a reference"),
        (GOOD | {"Job_id": GOOD["job_id"]}, "Job_id: is no field of a reference"),
        (GOOD | {"x" * 100: 1}, "x" * 70 + ": is no field of a reference"),
        (GOOD | {"a\nb\ud800": 1}, r"a\nb\ud800: is no field of a reference"),
        (GOOD | {7: 1}, "7: is no field of a reference"),
        (GOOD | {"hold_version": "3"}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": 3.0}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": True}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": None}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": 0}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": -1}, f"hold_version: {LARGEST}"),
        (GOOD | {"hold_version": 2**31}, f"hold_version: {LARGEST}"),
        (GOOD | {"reservation_id": 7}, "reservation_id: must be a text"),
        (GOOD | {"reservation_id": None}, "reservation_id: must be a text"),
        (GOOD | {"job_id": 7}, "job_id: must be a text"),
        (
            GOOD | {"reservation_id": "seat.1"},
            "reservation_id: 'seat.1' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -",
        ),
        (GOOD | {"reservation_id": ""}, "reservation_id: '' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"),
        (GOOD | {"expected_expires_at": 1_796_115_600}, f"expected_expires_at: {NO_TEXT}"),
        (GOOD | {"expected_expires_at": None}, f"expected_expires_at: {NO_TEXT}"),
        (
            GOOD | {"expected_expires_at": "2026-12-01T09:00:00"},
            "expected_expires_at: '2026-12-01T09:00:00' has no zone; add an offset like +01:00 or Z",
        ),
        (
            GOOD | {"expected_expires_at": "soon"},
            "expected_expires_at: 'soon' is no time; write it like 2026-12-01T10:00:00+01:00",
        ),
        (GOOD | {"expected_expires_at": "2026-12-01T09:00:00.5Z"}, "expected_expires_at: must be in whole seconds"),
        (
            GOOD | {"job_id": "hold-expiry:seat-1:v3:1796115601"},
            "job_id: does not belong to the rest; it would be hold-expiry:seat-1:v3:1796115600",
        ),
        (
            GOOD | {"hold_version": 4},
            "job_id: does not belong to the rest; it would be hold-expiry:seat-1:v4:1796115600",
        ),
        (
            GOOD | {"reservation_id": "seat-2"},
            "job_id: does not belong to the rest; it would be hold-expiry:seat-2:v3:1796115600",
        ),
        (GOOD | {"job_id": ""}, "job_id: does not belong to the rest; it would be hold-expiry:seat-1:v3:1796115600"),
    ],
)
def test_a_malformed_reference_is_refused_in_one_exact_line(raw: object, message: str) -> None:
    with pytest.raises(MalformedReference) as refused:
        parse_reference(raw)
    assert str(refused.value) == message
    assert isinstance(refused.value, BadInput)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional={name: _JSON | st.just(value) for name, value in GOOD.items()}) | _JSON)
def test_whatever_a_transport_delivers_is_read_or_refused_in_one_printable_line(raw: object) -> None:
    try:
        read = parse_reference(raw)
    except MalformedReference as refused:
        message = str(refused)
    else:
        message = read.job_id
    assert message.isprintable()
