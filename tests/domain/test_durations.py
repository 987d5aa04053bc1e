"""Durations as people write them, in elapsed time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.durations import format_duration, parse_duration
from domain.errors import BadInput


@pytest.mark.parametrize(
    ("raw", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(hours=48)),
        ("1w", timedelta(days=7)),
        ("1w2d3h4m5s", timedelta(days=9, hours=3, minutes=4, seconds=5)),
        ("0h1s", timedelta(seconds=1)),
        ("0.5s", timedelta(milliseconds=500)),
        ("0.000001s", timedelta(microseconds=1)),
        ("1m0.25s", timedelta(seconds=60.25)),
        (" 5m\n", timedelta(minutes=5)),
    ],
)
def test_a_duration_means_elapsed_time(raw: str, length: timedelta) -> None:
    assert parse_duration(raw) == length


@pytest.mark.parametrize(
    "raw",
    ["", " ", "none", "5", "5 m", "-5m", "+5m", "5M", "30m1h", "1h1h", "1.5h", "1,5s", "٣s", "5m\x00", "1e3s", "s"],
)
def test_what_is_no_duration_is_refused_with_the_form_to_use(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_duration(raw, "for")
    assert str(refused.value) == f"for: {raw!r} is no duration; write it like 90s, 30m, 1h30m or 2d"


@pytest.mark.parametrize("raw", ["0s", "0m", "0w0d0h0m0s", "0.0s"])
def test_zero_is_refused_and_never_means_at_once(raw: str) -> None:
    with pytest.raises(BadInput, match=r"^duration: is zero; it must be longer than that$"):
        parse_duration(raw)


def test_a_duration_beyond_what_can_be_counted_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^duration: '999999999w' is too long$"):
        parse_duration("999999999w")


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(hours=25, minutes=30), "1d1h30m"),
        (timedelta(days=7), "7d"),
        (timedelta(seconds=-61), "-1m1s"),
        (timedelta(seconds=59.6), "1m"),
    ],
)
def test_a_duration_is_shown_in_whole_seconds(length: timedelta, shown: str) -> None:
    assert format_duration(length) == shown


@given(st.integers(min_value=1, max_value=10**9))
def test_what_is_shown_can_be_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)
