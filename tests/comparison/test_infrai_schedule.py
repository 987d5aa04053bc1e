"""Five-field expressions in a zone."""

from datetime import UTC, datetime

import pytest

from comparison.infrai_server.schedule import Schedule
from domain.errors import BadInput


def fires(expression: str, zone: str, after: str, count: int = 3) -> list[str]:
    schedule, instant = Schedule.parse(expression, zone), datetime.fromisoformat(after).replace(tzinfo=UTC)
    found: list[str] = []
    for _ in range(count):
        following = schedule.after(instant)
        assert following is not None
        instant = following
        found.append(f"{instant:%Y-%m-%dT%H:%M}")
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-12-01T10:31", "2026-12-01T10:32", "2026-12-01T10:33"]),
        ("*/20 * * * *", ["2026-12-01T10:40", "2026-12-01T11:00", "2026-12-01T11:20"]),
        ("0 9-17/4 * * 1-5", ["2026-12-01T13:00", "2026-12-01T17:00", "2026-12-02T09:00"]),
        ("0 0 * * 1", ["2026-12-07T00:00", "2026-12-14T00:00", "2026-12-21T00:00"]),
        ("0 0 * * sun", ["2026-12-06T00:00", "2026-12-13T00:00", "2026-12-20T00:00"]),
        ("0 0 * * 7", ["2026-12-06T00:00", "2026-12-13T00:00", "2026-12-20T00:00"]),
        ("5,35 0 1 jan,mar *", ["2027-01-01T00:05", "2027-01-01T00:35", "2027-03-01T00:05"]),
        ("0 0 13 * fri", ["2026-12-04T00:00", "2026-12-11T00:00", "2026-12-13T00:00"]),
        ("0 0 13 */2 *", ["2027-01-13T00:00", "2027-03-13T00:00", "2027-05-13T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
    ],
)
def test_an_expression_names_these_times(expression: str, expected: list[str]) -> None:
    assert fires(expression, "UTC", "2026-12-01T10:30:30") == expected


def test_a_local_time_that_does_not_exist_is_skipped() -> None:
    assert fires("30 2 * * *", "Europe/Berlin", "2027-03-27T00:00") == [
        "2027-03-27T01:30", "2027-03-29T00:30", "2027-03-30T00:30",
    ]  # fmt: skip


def test_a_local_time_that_comes_twice_is_used_once() -> None:
    assert fires("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00") == [
        "2027-10-31T00:30", "2027-11-01T01:30", "2027-11-02T01:30",
    ]  # fmt: skip


def test_a_zone_moves_the_times() -> None:
    assert fires("0 9 * * *", "America/New_York", "2026-12-01T00:00", 1) == ["2026-12-01T14:00"]


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
     "5-1 * * * *", "*/0 * * * *", "5/2 * * * *", "a * * * *", "-1 * * * *", "1,,2 * * * *", "0 0 30 2 *", "0 0 L * *",
     "0 0 31 feb,apr *", "٣ * * * *"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadInput, match=r"^cron_expr: "):
        Schedule.parse(expression, "UTC")


def test_an_offset_is_no_zone() -> None:
    with pytest.raises(BadInput, match=r"^timezone: "):
        Schedule.parse("* * * * *", "+01:00")
