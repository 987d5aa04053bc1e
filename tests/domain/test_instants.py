"""Instants: with a zone or refused, kept in UTC, deadlines in whole seconds rounded up."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.instants import ceil_second, in_zone, parse_instant, rfc3339, unix, zone_name


@pytest.mark.parametrize(
    ("raw", "instant"),
    [
        ("2026-12-01T10:00:00+01:00", datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ("2026-12-01T09:00:00Z", datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ("2026-12-01T09:00:00-00:00", datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ("2026-12-01t09:00:00z", datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ("2026-12-01 09:00:00Z", datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ("2028-02-29T23:59:59Z", datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("2028-03-01T05:00:00+14:00", datetime(2028, 2, 29, 15, tzinfo=UTC)),
        ("2026-01-01T00:30:00+05:45", datetime(2025, 12, 31, 18, 45, tzinfo=UTC)),
        ("2026-12-01T09:00:00.5Z", datetime(2026, 12, 1, 9, microsecond=500_000, tzinfo=UTC)),
        ("2026-12-01T09:00:00.000001Z", datetime(2026, 12, 1, 9, microsecond=1, tzinfo=UTC)),
        ("2026-12-01T09:00:00.123456789Z", datetime(2026, 12, 1, 9, microsecond=123_456, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_is_read_with_its_offset_and_kept_in_utc(raw: str, instant: datetime) -> None:
    read = parse_instant(raw, "until")
    assert read == instant
    assert read.tzinfo is UTC


@pytest.mark.parametrize("raw", ["2026-12-01T10:00:00", "2026-12-01", "2026-12-01T10:00:00.25"])
def test_a_naive_time_is_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_instant(raw, "until")
    assert str(refused.value) == f"until: {raw!r} has no zone; add an offset like +01:00 or Z"


@pytest.mark.parametrize(
    "raw",
    [
        "", "tomorrow", "1764576000", "2027-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-12-01T24:00:01Z",
        "2026-12-01T10:00:00+24:00", "2026-12-01T23:59:60Z", "2026-12-01T10:00:00Z\x00", "\ud800",
        "10000-01-01T00:00:00Z", "20261201T100000Z", "2026-W49-2T10:00:00Z", "2026-12-01T10Z", "2026-12-01T10:00Z",
        "2026-12-01T10:00:00,5Z", "2026-12-01T10:00:00 +01:00", "2026-12-01T10:00:00+01:00:30", "２026-12-01T10:00:00Z",
        "2026-12-01T10:00:00Z\n",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_the_form_to_use(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_instant(raw, "until")
    assert str(refused.value) == f"until: {raw!r} is no time; write it like 2026-12-01T10:00:00+01:00"


@pytest.mark.parametrize("raw", [None, 1_764_576_000, 1.5, True, ["2026-12-01T10:00:00Z"], datetime(2026, 12, 1)])  # noqa: DTZ001
def test_a_time_that_is_no_text_is_refused(raw: object) -> None:
    with pytest.raises(BadInput, match=r"^until: must be a text like 2026-12-01T10:00:00\+01:00$"):
        parse_instant(raw, "until")


@pytest.mark.parametrize("raw", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-00:01"])
def test_an_instant_outside_the_calendar_is_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_instant(raw, "until")
    assert str(refused.value) == f"until: {raw!r} lies outside the calendar"


def test_a_fraction_of_a_second_is_rounded_up_and_a_whole_second_stays() -> None:
    whole = datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert ceil_second(whole) == whole
    assert ceil_second(whole + timedelta(microseconds=1)) == whole + timedelta(seconds=1)
    assert ceil_second(whole - timedelta(microseconds=1)) == whole


@given(st.datetimes(max_value=datetime(9999, 12, 31, 23, 59, 58), timezones=st.just(UTC)))  # noqa: DTZ001 - the zone is beside it
def test_rounding_up_adds_less_than_a_second_and_nothing_twice(instant: datetime) -> None:
    rounded = ceil_second(instant)
    assert timedelta(0) <= rounded - instant < timedelta(seconds=1)
    assert ceil_second(rounded) == rounded


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_can_be_read_back(instant: datetime) -> None:
    assert parse_instant(rfc3339(instant), "at") == instant


def test_an_instant_is_written_in_utc_with_a_fraction_only_where_there_is_one() -> None:
    paris = timezone(timedelta(hours=1))
    assert rfc3339(datetime(2026, 12, 1, 10, tzinfo=paris)) == "2026-12-01T09:00:00Z"
    assert rfc3339(datetime(2026, 12, 1, 10, 0, 0, 250_000, tzinfo=paris)) == "2026-12-01T09:00:00.250000Z"
    assert rfc3339(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) == "9999-12-31T23:59:59Z"


def test_the_hour_that_comes_twice_is_written_as_the_two_instants_it_is() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    assert [rfc3339(instant) for instant in twice] == ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]


def test_whole_seconds_since_1970_do_not_depend_on_the_zone() -> None:
    assert unix(datetime(2026, 12, 1, 10, tzinfo=timezone(timedelta(hours=1)))) == 1_796_115_600
    assert unix(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1
    assert unix(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) == 253_402_300_799


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kathmandu", "UTC"])
def test_an_iana_zone_is_taken(name: str) -> None:
    assert zone_name(name) == name


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("+01:00", "an offset is no zone"), ("-05", "an offset is no zone"), ("Mars/Olympus", "no such zone"),
        ("europe/berlin", "no such zone"), ("", "no such zone"), ("localtime", "no such zone"),
        ("Factory", "no such zone"), ("../etc/passwd", "no such zone"), ("-05:00", "an offset is no zone"),
        ("Etc/GMT+5", "an offset is no zone"), ("Etc/GMT-14", "an offset is no zone"),
    ],
)  # fmt: skip
def test_another_zone_is_refused(name: str, advice: str) -> None:
    with pytest.raises(BadInput) as refused:
        zone_name(name)
    assert str(refused.value) == f"timezone: {name!r}: {advice}; use an IANA name like Europe/Berlin"


def test_a_wall_clock_follows_daylight_saving_while_the_instant_does_not_move() -> None:
    before = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    after = before + timedelta(hours=1)
    shown = [in_zone(instant, "Europe/Berlin").isoformat() for instant in (before, after)]
    assert shown == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]
    assert in_zone(before, None).isoformat() == "2026-10-25T00:30:00+00:00"


_SHOW = """
from datetime import UTC, datetime, timedelta
from domain.identity import expiry_key, HoldId
from domain.instants import in_zone, parse_instant, rfc3339, zone_name
from domain.terms import Until
at = parse_instant("2026-03-29T02:30:00+01:00", "until")
print(at.isoformat(), rfc3339(at), expiry_key(HoldId("h"), 3, at), Until(at).as_data(), in_zone(at, None))
"""


@pytest.mark.parametrize("host", ["UTC", "Pacific/Kiritimati", "America/St_Johns", "Asia/Kolkata"])
def test_the_hosts_own_zone_changes_nothing(host: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW], env={"TZ": host}, capture_output=True, text=True, check=True
    ).stdout
    assert shown == (
        "2026-03-29T01:30:00+00:00 2026-03-29T01:30:00Z hold-expiry:h:v3:1774747800 "
        "{'until': '2026-03-29T01:30:00Z'} 2026-03-29 01:30:00+00:00\n"
    )
