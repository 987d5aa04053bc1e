"""Terms: what may be asked for, and the deadline that follows."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.terms import LONGEST_HOLD, For, Terms, Until, deadline_ahead

NOW = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "length", [timedelta(0), timedelta(microseconds=-1), -HOUR, LONGEST_HOLD + timedelta.resolution]
)
def test_no_hold_lasts_no_time_or_more_than_ten_years(length: timedelta) -> None:
    with pytest.raises(BadInput, match=r"^for: must be longer than zero and at most 3660d$"):
        For(length)


def test_terms_without_a_duration_do_not_exist() -> None:
    with pytest.raises(TypeError):
        Terms(resource="seat", customer="acme")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        For(None)  # type: ignore[arg-type]


def test_a_naive_deadline_is_refused_before_the_hosts_zone_can_read_it() -> None:
    with pytest.raises(BadInput) as refused:
        Until(datetime(2026, 12, 1, 9))  # noqa: DTZ001 - naive is the point
    assert str(refused.value) == "until: 2026-12-01T09:00:00 has no zone; add an offset like +01:00 or Z"


def test_a_deadline_is_rounded_up_to_the_second() -> None:
    assert deadline_ahead(For(HOUR), NOW, NOW) == datetime(2026, 12, 1, 10, 0, 1, tzinfo=UTC)
    assert deadline_ahead(Until(NOW + HOUR), NOW, NOW) == datetime(2026, 12, 1, 10, 0, 1, tzinfo=UTC)
    assert deadline_ahead(Until(datetime(2026, 12, 1, 10, tzinfo=UTC)), NOW, NOW) == datetime(
        2026, 12, 1, 10, tzinfo=UTC
    )


def test_a_duration_counts_from_its_start_and_must_still_lie_ahead_of_now() -> None:
    assert deadline_ahead(For(HOUR), NOW + HOUR, NOW) == datetime(2026, 12, 1, 11, 0, 1, tzinfo=UTC)
    with pytest.raises(BadInput) as refused:
        deadline_ahead(For(HOUR), NOW - 2 * HOUR, NOW)
    assert str(refused.value) == "until: 2026-12-01T08:00:01Z is not after now (2026-12-01T09:00:00Z)"


def test_a_deadline_that_is_now_is_refused() -> None:
    now = NOW.replace(microsecond=0)
    with pytest.raises(BadInput, match=r"^until: 2026-12-01T09:00:00Z is not after now \(2026-12-01T09:00:00Z\)$"):
        deadline_ahead(Until(now), now, now)
    assert deadline_ahead(Until(now + timedelta.resolution), now, now) == now + timedelta(seconds=1)


def test_a_deadline_more_than_ten_years_ahead_is_refused() -> None:
    assert deadline_ahead(For(LONGEST_HOLD), NOW, NOW) == datetime(2036, 12, 8, 9, 0, 1, tzinfo=UTC)
    with pytest.raises(BadInput, match=r"^until: 9999-01-01T00:00:00Z is more than 3660 days ahead$"):
        deadline_ahead(Until(datetime(9999, 1, 1, tzinfo=UTC)), NOW, NOW)
    with pytest.raises(BadInput, match=r"^until: lies outside the calendar$"):
        deadline_ahead(Until(datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC)), NOW, NOW)
    with pytest.raises(BadInput, match=r"^until: lies outside the calendar$"):
        deadline_ahead(For(HOUR), datetime(9999, 12, 31, 23, 30, tzinfo=UTC), NOW)


@given(
    st.timedeltas(min_value=timedelta.resolution, max_value=LONGEST_HOLD),
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_525)),
)
def test_no_hold_is_shorter_than_asked_or_a_second_longer(length: timedelta, since: timedelta) -> None:
    now = NOW + since
    lasts = deadline_ahead(For(length), now, now) - now
    assert length <= lasts < length + timedelta(seconds=1)


def asked(**others: Any) -> Terms:
    return Terms(**{"resource": "seat", "customer": "acme", "lasting": For(HOUR), **others})


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"resource": ""}, "resource: is empty; give it a text"),
        ({"customer": "a\x00"}, "customer: holds U+0000, a character that is no text; remove it"),
        ({"timezone": "CET+1"}, "timezone: 'CET+1': no such zone; use an IANA name like Europe/Berlin"),
        ({"amount": 5}, "currency: is missing beside an amount; give both or neither"),
        ({"currency": "EUR"}, "amount: is missing beside a currency; give both or neither"),
        ({"amount": 0, "currency": "EUR"}, "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
    ],
)
def test_terms_that_cannot_be_used_are_refused(others: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        asked(**others)
    assert str(refused.value) == message


def test_terms_are_kept_as_requested() -> None:
    paris = timezone(HOUR)
    until = Until(datetime(2026, 12, 1, 10, tzinfo=paris))
    assert asked(lasting=until, timezone="Europe/Paris", amount=5, currency="JPY", exclusive=True).as_data() == {
        "resource": "seat", "customer": "acme", "timezone": "Europe/Paris", "amount": 5, "currency": "JPY",
        "exclusive": True, "until": "2026-12-01T09:00:00Z",
    }  # fmt: skip
    assert asked().as_data()["for"] == 3600.0
    assert "until" not in asked().as_data()


def test_an_until_that_cannot_be_rounded_up_is_outside_the_calendar() -> None:
    with pytest.raises(BadInput) as refused:
        Until(datetime(9999, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC))
    assert str(refused.value) == "until: lies outside the calendar"
