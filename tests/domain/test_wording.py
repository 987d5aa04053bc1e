"""Instants and durations in words, on the customer's own clock."""

from datetime import UTC, datetime, timedelta

import pytest

from domain.wording import clock, moment, span

AT = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "language", "told"),
    [
        ("Europe/Berlin", "en", "Sunday, 1 March 2026, 10:00 CET"),
        ("Europe/Berlin", "de", "Sonntag, 1. März 2026, 10:00 CET"),
        ("Europe/Berlin", "fr", "2026-03-01 10:00 CET"),
        ("Asia/Kathmandu", "en", "Sunday, 1 March 2026, 14:45 UTC+05:45"),
        ("America/Sao_Paulo", "en", "Sunday, 1 March 2026, 06:00 UTC-03:00"),
        ("Pacific/Kiritimati", "de", "Sonntag, 1. März 2026, 23:00 UTC+14:00"),
        ("Pacific/Honolulu", "de", "Samstag, 28. Februar 2026, 23:00 HST"),
        (None, "en", "Sunday, 1 March 2026, 09:00 UTC"),
    ],
)
def test_a_moment_is_told_with_its_zone(zone: str | None, language: str, told: str) -> None:
    assert moment(AT, zone, language) == told


def test_an_hour_that_comes_twice_is_told_apart_by_its_abbreviation() -> None:
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert clock(first, "America/New_York") == "01:30 EDT"
    assert clock(first + timedelta(hours=1), "America/New_York") == "01:30 EST"


def test_seconds_are_told_where_there_are_some() -> None:
    assert clock(AT + timedelta(seconds=7), None) == "09:00:07 UTC"


@pytest.mark.parametrize(
    ("seconds", "language", "told"),
    [
        (86_400, "en", "24 hours"), (86_400, "de", "24 Stunden"), (300, "en", "5 minutes"), (60, "de", "1 Minute"),
        (3_600, "en", "1 hour"), (90_061, "en", "1 day 1 hour 1 minute 1 second"), (259_200, "de", "3 Tage"),
        (300, "fr", "5 minutes"), (1, "de", "1 Sekunde"),
    ],
)  # fmt: skip
def test_a_lead_is_told_in_words(seconds: int, language: str, told: str) -> None:
    assert span(timedelta(seconds=seconds), language) == told
