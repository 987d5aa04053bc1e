"""What a line may say of a hold, and what is said of a line that cannot be taken."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.changes import Change, Kind
from domain.errors import BadInput
from domain.holds import Status
from domain.identity import HoldId
from domain.importing import (
    FIELDS,
    LONGEST_LINE,
    BadLine,
    Incoming,
    Reader,
    changes_of,
    csv_reader,
    read_hold,
    read_json,
)
from domain.terms import Terms, Until

NOW = datetime(2026, 12, 1, 9, 0, 0, 500_000, tzinfo=UTC)
PLAIN = {"id": "seat-1", "resource": "seat", "customer": "acme", "expires_at": "2026-12-02T10:00:00+01:00"}
THERE_ARE = f"there are {', '.join(FIELDS)}"


def hold_of(**fields: object) -> Incoming:
    return read_hold(7, {**PLAIN, **fields}, NOW)


def without(name: str, **fields: object) -> dict[str, object]:
    return {other: value for other, value in {**PLAIN, **fields}.items() if other != name}


def told(line: bytes) -> str:
    """What is said of a bad line of JSON."""
    with pytest.raises(BadInput) as refused:
        read_hold(17, read_json(line), NOW)
    return str(BadLine(17, refused.value))


def test_a_plain_line_is_a_held_hold_of_version_one_placed_now() -> None:
    assert hold_of() == Incoming(
        line=7,
        id=HoldId("seat-1"),
        terms=Terms(resource="seat", customer="acme", lasting=Until(datetime(2026, 12, 2, 9, tzinfo=UTC))),
        status=Status.HELD,
        version=1,
        expires_at=datetime(2026, 12, 2, 9, tzinfo=UTC),
        placed_at=NOW,
        closed_at=None,
        close_reason=None,
        relative=False,
    )


def test_a_full_line_is_taken_as_it_says() -> None:
    full = hold_of(
        status="cancelled", version=3, timezone="Asia/Tokyo", amount=1250, currency="JPY", exclusive=True,
        placed_at="2026-11-01T00:00:00Z", closed_at="2026-11-30T12:00:00+09:00", close_reason="rain",
    )  # fmt: skip
    deadline = datetime(2026, 12, 2, 9, tzinfo=UTC)
    assert full.terms == Terms(
        resource="seat", customer="acme", lasting=Until(deadline), timezone="Asia/Tokyo", amount=1250, currency="JPY",
        exclusive=True,
    )  # fmt: skip
    assert (full.status, full.version, full.close_reason) == (Status.CANCELLED, 3, "rain")
    assert full.placed_at == datetime(2026, 11, 1, tzinfo=UTC)
    assert full.closed_at == datetime(2026, 11, 30, 3, tzinfo=UTC)


def test_null_is_absent() -> None:
    assert hold_of(**dict.fromkeys(set(FIELDS) - PLAIN.keys())) == hold_of()


def test_a_deadline_is_rounded_up_to_whole_seconds() -> None:
    assert hold_of(expires_at="2026-12-02T10:00:00.000001Z").expires_at == datetime(2026, 12, 2, 10, 0, 1, tzinfo=UTC)


def test_a_relative_deadline_is_counted_from_now() -> None:
    ahead = read_hold(1, without("expires_at", expires_in="8s"), NOW)
    overdue = read_hold(1, without("expires_at", expires_in="-2h"), NOW)
    assert (ahead.expires_at, ahead.placed_at) == (datetime(2026, 12, 1, 9, 0, 9, tzinfo=UTC), NOW)
    assert ahead.relative
    assert overdue.expires_at == datetime(2026, 12, 1, 7, 0, 1, tzinfo=UTC)
    assert overdue.placed_at == overdue.expires_at


@pytest.mark.parametrize(
    ("fields", "closed_at"),
    [
        ({"status": "confirmed"}, NOW),
        ({"status": "confirmed", "expires_at": "2026-11-30T00:00:00Z"}, datetime(2026, 11, 30, tzinfo=UTC)),
        ({"status": "expired", "expires_at": "2026-11-30T00:00:00Z"}, datetime(2026, 11, 30, tzinfo=UTC)),
    ],
)
def test_a_closed_hold_ended_at_the_earlier_of_now_and_its_deadline(
    fields: dict[str, Any], closed_at: datetime
) -> None:
    hold = hold_of(**fields)
    assert hold.closed_at == closed_at
    assert hold.placed_at == closed_at


def test_a_held_hold_was_placed() -> None:
    hold = hold_of(version=4, amount=9, currency="EUR")
    assert changes_of(hold) == [Change(Kind.PLACED, HoldId("seat-1"), 4, hold.expires_at, "seat", 9, "EUR", NOW)]


def test_a_closed_hold_was_placed_and_left_held() -> None:
    hold = hold_of(status="confirmed", placed_at="2026-11-01T00:00:00Z", closed_at="2026-11-02T00:00:00Z")
    assert [(change.kind, change.at) for change in changes_of(hold)] == [
        (Kind.PLACED, datetime(2026, 11, 1, tzinfo=UTC)),
        (Kind.CONFIRMED, datetime(2026, 11, 2, tzinfo=UTC)),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (without("id"), "id: is missing"),
        (without("resource"), "resource: is missing"),
        (without("customer"), "customer: is missing"),
        (without("expires_at"), "expires_at: is missing"),
        ({"id": "a b"}, "id: 'a b' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"),
        ({"id": 7}, "id: must be a text"),
        ({"colour": 1}, f"colour: is no field of a hold; {THERE_ARE}"),
        ({"a\nb\ud800": None}, f"a\\nb\\ud800: is no field of a hold; {THERE_ARE}"),
        ({"resource": ["seat"]}, "resource: must be a text"),
        ({"resource": ""}, "resource: is empty; give it a text"),
        ({"resource": "x" * 201}, "resource: has 201 characters; 200 at most"),
        ({"customer": "a\x00b"}, "customer: holds U+0000, a character that is no text; remove it"),
        ({"customer": "\ud800"}, "customer: holds U+D800, a character that is no text; remove it"),
        ({"expires_at": 1790000000}, "expires_at: must be a text like 2026-12-01T10:00:00+01:00"),
        ({"expires_at": "soon"}, "expires_at: 'soon' is no time; write it like 2026-12-01T10:00:00+01:00"),
        (
            {"expires_at": "2026-12-02T10:00:00"},
            "expires_at: '2026-12-02T10:00:00' has no zone; add an offset like +01:00 or Z",
        ),
        ({"expires_at": "1969-12-31T23:59:59Z"}, "expires_at: 1969-12-31T23:59:59Z lies before 1970"),
        (
            {"expires_at": "9999-12-31T23:59:59.5Z"},
            "expires_at: 9999-12-31T23:59:59.500000Z is more than 3660 days ahead",
        ),
        ({"expires_in": "8s"}, "expires_in: stands beside expires_at; give one of them"),
        (without("expires_at", expires_in=8), "expires_in: must be a text like 8s or -2h"),
        (
            without("expires_at", expires_in="--8s"),
            "expires_in: '-8s' is no duration; write it like 90s, 30m, 1h30m or 2d",
        ),
        (without("expires_at", expires_in="-9999w"), "expires_in: is longer than 3660d"),
        ({"status": "open"}, "status: must be one of held, confirmed, cancelled, expired"),
        ({"status": ["held"]}, "status: must be one of held, confirmed, cancelled, expired"),
        ({"status": "expired"}, "status: is expired, but the hold would end before its deadline 2026-12-02T09:00:00Z"),
        ({"version": 0}, "version: must be a whole number from 1 to 1000000000"),
        ({"version": True}, "version: must be a whole number from 1 to 1000000000"),
        ({"version": 2.0}, "version: must be a whole number from 1 to 1000000000"),
        ({"version": 10**9 + 1}, "version: must be a whole number from 1 to 1000000000"),
        ({"timezone": "+01:00"}, "timezone: '+01:00': an offset is no zone; use an IANA name like Europe/Berlin"),
        ({"timezone": "Mars/Base"}, "timezone: 'Mars/Base': no such zone; use an IANA name like Europe/Berlin"),
        (
            {"amount": 12.5, "currency": "EUR"},
            "amount: must be a whole number of minor units (cents), in digits",
        ),
        ({"amount": "12", "currency": "EUR"}, "amount: must be a whole number of minor units (cents), in digits"),
        ({"amount": True, "currency": "EUR"}, "amount: must be a whole number of minor units (cents), in digits"),
        ({"amount": 0, "currency": "EUR"}, "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
        ({"amount": 5}, "currency: is missing beside an amount; give both or neither"),
        ({"currency": "EUR"}, "amount: is missing beside a currency; give both or neither"),
        ({"amount": 5, "currency": "XYZ"}, "currency: 'XYZ' is no ISO 4217 code; write it like EUR"),
        ({"exclusive": "true"}, "exclusive: must be true or false"),
        ({"exclusive": 1}, "exclusive: must be true or false"),
        ({"placed_at": "2026-12-01T09:00:01Z"}, "placed_at: 2026-12-01T09:00:01Z lies ahead of the database's clock"),
        (
            {"expires_at": "2026-11-30T00:00:00Z", "placed_at": "2026-11-30T00:00:01Z"},
            "placed_at: is after the hold's end, 2026-11-30T00:00:00Z",
        ),
        ({"closed_at": "2026-11-30T00:00:00Z"}, "closed_at: is given for a hold that is held; give its status too"),
        ({"close_reason": "rain"}, "close_reason: is given for a hold that is held; give its status too"),
        ({"status": "cancelled", "close_reason": "a\nb"},
         "close_reason: holds U+000A, a character that is no text; remove it"),
        (
            {"status": "confirmed", "closed_at": "2026-12-01T09:00:01Z"},
            "closed_at: 2026-12-01T09:00:01Z lies ahead of the database's clock",
        ),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_with_its_cause(fields: dict[str, Any], said: str) -> None:
    lacks_one = len(fields.keys() & PLAIN.keys()) == len(PLAIN) - 1
    assert told(json.dumps(fields if lacks_one else {**PLAIN, **fields}).encode()) == f"line 17: {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "JSON: Expecting property name enclosed in double quotes at character 2; write one object a line"),
        (b'{"id":"a"} x', "JSON: Extra data at character 12; write one object a line"),
        (b"[1]", "JSON: must be an object, one hold a line"),
        (b'"seat"', "JSON: must be an object, one hold a line"),
        (b'{"id":"a","id":"b"}', "id: is given twice"),
        (b'{"id":' + b"9" * 5000 + b"}", "JSON: holds a number too long or a nesting too deep"),
        (b"[" * 60_000, "JSON: holds a number too long or a nesting too deep"),
        (b'{"id":"\xff"}', "text: is not UTF-8 at byte 8"),
        (b'"' + b"x" * LONGEST_LINE + b'"', "text: is longer than 65536 bytes"),
        (b'{"id":NaN}', "id: must be a text"),
    ],
)
def test_a_line_that_is_no_json_object_is_named_with_its_cause(line: bytes, said: str) -> None:
    assert told(line) == f"line 17: {said}"


def test_a_csv_line_reads_as_the_json_line_does() -> None:
    read = csv_reader(b"id,customer,resource,expires_at,amount,currency,exclusive,version,close_reason")
    assert read(b'seat-1,"a ""b"", c",seat,2026-12-02T10:00:00Z,1250,EUR,true,2,') == read_json(
        b'{"id":"seat-1","customer":"a \\"b\\", c","resource":"seat","expires_at":"2026-12-02T10:00:00Z",'
        b'"amount":1250,"currency":"EUR","exclusive":true,"version":2}'
    )


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"id;resource", f"id;resource: is no column of a hold; {THERE_ARE}"),
        (b"id,resource,customer,expires_at,id", "id: is a column twice"),
        (b"id,customer,expires_at", "resource: is no column of the header; every hold needs it"),
        (b"id,resource,customer", "expires_at: is no column of the header; every hold needs it"),
    ],
)
def test_a_csv_header_that_cannot_be_used_is_named(header: bytes, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        csv_reader(header)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"a,b,c", "cells: are 3 where the header has 6"),
        (b'a,"b,c,2026-12-02T10:00:00Z,5,true',
         "CSV: unexpected end of data; quote a cell on one line, a quote in it doubled"),
        (b"a,b,c,2026-12-02T10:00:00Z,12.50,true", "amount: must be a whole number of minor units (cents), in digits"),
        (b"a,b,c,2026-12-02T10:00:00Z,-5,true", "amount: must be a whole number of minor units (cents), in digits"),
        ("a,b,c,2026-12-02T10:00:00Z,٣,true".encode(),
         "amount: must be a whole number of minor units (cents), in digits"),
        (b"a,b,c,2026-12-02T10:00:00Z,,TRUE", "exclusive: must be true or false"),
        (b",,,,,", "id: is missing"),
        (b"a,b,c\x00,2026-12-02T10:00:00Z,,", "customer: holds U+0000, a character that is no text; remove it"),
    ],
)  # fmt: skip
def test_a_bad_csv_line_is_named_with_its_cause(line: bytes, said: str) -> None:
    read = csv_reader(b"id,resource,customer,expires_at,amount,exclusive")
    with pytest.raises(BadInput) as refused:
        read_hold(3, read(line), NOW)
    assert str(refused.value) == said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def said_of(read: Reader, raw: bytes) -> str:
    """What is said of a line, or an empty text where it is a hold."""
    try:
        read_hold(1, read(raw), NOW)
    except BadInput as problem:
        return str(problem)
    return ""


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{}")
def test_any_bytes_are_a_hold_or_a_bad_line_of_one_line(raw: bytes) -> None:
    for read in (read_json, csv_reader(b"id,resource,customer,expires_in")):
        said = said_of(read, raw)
        assert said.splitlines() == [said.encode().decode()]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_any_fields_are_a_hold_or_a_bad_line_of_one_line(fields: dict[str, object]) -> None:
    said = said_of(lambda _: {**PLAIN, **fields}, b"")
    assert len(said.encode().decode().splitlines()) <= 1


instants = st.datetimes(
    min_value=datetime(2026, 11, 1),  # noqa: DTZ001 - its zone is the next argument
    max_value=datetime(2026, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
).map(lambda instant: instant.isoformat())


@given(
    st.fixed_dictionaries(
        {"expires_at": instants},
        optional={"status": st.sampled_from(Status), "placed_at": instants, "closed_at": instants},
    )
)
def test_what_is_taken_was_placed_before_it_ended_and_ended_before_now(fields: dict[str, object]) -> None:
    try:
        hold = read_hold(1, {**PLAIN, **fields}, NOW)
    except BadInput:
        return
    assert hold.placed_at <= min(NOW, hold.expires_at, hold.closed_at or NOW)
    assert (hold.status is Status.HELD) == (hold.closed_at is None)
    assert hold.closed_at is None or hold.closed_at <= NOW
    assert hold.status is not Status.EXPIRED or hold.expires_at <= (hold.closed_at or hold.expires_at)


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2036, 1, 1)),  # noqa: DTZ001 - its zone follows
    st.integers(min_value=-23 * 60, max_value=23 * 60),
)
def test_a_deadline_is_never_earlier_than_asked_nor_a_second_later(wall: datetime, minutes: int) -> None:
    sign, (hours, rest) = "+" if minutes >= 0 else "-", divmod(abs(minutes), 60)
    asked = wall.replace(tzinfo=UTC) - timedelta(minutes=minutes)
    hold = hold_of(expires_at=f"{wall.isoformat()}{sign}{hours:02}:{rest:02}")
    assert timedelta(0) <= hold.expires_at - asked < timedelta(seconds=1)
    assert hold.expires_at.microsecond == 0


def test_the_examples_are_all_good_and_of_many_kinds() -> None:
    lines = (Path(__file__).parents[2] / "examples/holds.jsonl").read_bytes().splitlines()
    holds = [read_hold(n, read_json(line), NOW) for n, line in enumerate(lines, start=1)]
    assert len({hold.id for hold in holds}) == len(holds) == 40
    assert all(hold.relative for hold in holds)
    overdue = {NOW - hold.expires_at for hold in holds if hold.expires_at < NOW}
    assert {round(late / timedelta(minutes=1)) for late in overdue} == {120, 24 * 60 - 1, 49 * 60}
    soon = [hold for hold in holds if timedelta(0) < hold.expires_at - NOW <= timedelta(seconds=21)]
    assert len(soon) == 18
    assert {hold.status for hold in holds} == {Status.HELD, Status.CONFIRMED, Status.CANCELLED}
    assert [hold.version for hold in holds if hold.version > 1] == [2]
    assert {hold.terms.currency for hold in holds} >= {"EUR", "USD", "JPY", "GBP", "KWD", "INR", "BRL", None}
    taken = [hold.terms.resource for hold in holds if hold.terms.exclusive]
    assert len(set(taken)) == len(taken) == 11
