"""Quiet hours in the customer's zone: boundaries to the second, days with a gap or an hour twice, and a skipped day."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.quiet_hours import (
    SPREAD,
    Candidate,
    DelayUntil,
    DowngradeToEmail,
    Policy,
    QuietHours,
    Rules,
    SendNow,
    Suppress,
    Verdict,
    decide,
    parse_quiet_hours,
)
from domain.reminding import Channel

NIGHT = QuietHours()
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)
NEW_YORK = "America/New_York"
ZONES = ["UTC", "Europe/Berlin", NEW_YORK, "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "America/St_Johns"]


class Always(Random):
    """A source that always gives the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def at(zone: str, reading: str, *, fold: int = 0) -> datetime:
    """The instant of a reading of the clock there."""
    return datetime.fromisoformat(reading).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("reading", "quiet"),
    [
        ("2026-07-01T07:59:59", True), ("2026-07-01T07:59:59.999999", True), ("2026-07-01T08:00:00", False),
        ("2026-07-01T12:00:00", False), ("2026-07-01T20:59:59.999999", False), ("2026-07-01T21:00:00", True),
        ("2026-07-01T23:59:59", True), ("2026-07-02T00:00:00", True),
    ],
)  # fmt: skip
def test_eight_is_allowed_and_nine_is_not_wherever_the_customer_is(zone: str, reading: str, quiet: bool) -> None:  # noqa: FBT001 - a column
    morning = "2026-07-01T08:00:00" if reading < "2026-07-01T08" else "2026-07-02T08:00:00"
    assert NIGHT.until(at(zone, reading), zone) == (at(zone, morning) if quiet else None)


def test_a_window_within_a_day_does_not_wrap() -> None:
    siesta = QuietHours(time(13), time(15, 30))
    madrid = "Europe/Madrid"
    ends = at(madrid, "2026-07-01T15:30:00")
    readings = ("12:59:59", "13:00:00", "15:29:59", "15:30:00", "23:00:00", "03:00:00")
    found = [siesta.until(at(madrid, f"2026-07-01T{reading}"), madrid) for reading in readings]
    assert found == [None, ends, ends, None, None, None]


def test_a_window_may_begin_or_end_at_midnight() -> None:
    early, late = QuietHours(time(0), time(6)), QuietHours(time(22), time(0))
    midnight = at("UTC", "2026-07-02T00:00:00")
    assert [early.until(midnight - TICK, "UTC"), early.until(midnight, "UTC")] == [None, midnight + timedelta(hours=6)]
    assert [late.until(midnight - TICK, None), late.until(midnight, None)] == [midnight, None]


def test_seconds_of_a_window_count() -> None:
    odd = QuietHours(time(21, 0, 1), time(7, 59, 59))
    assert odd.until(at("UTC", "2026-07-01T21:00:00"), "UTC") is None
    assert odd.until(at("UTC", "2026-07-01T21:00:01"), "UTC") == at("UTC", "2026-07-02T07:59:59")


def test_a_night_in_spring_is_an_hour_shorter_and_one_in_autumn_an_hour_longer() -> None:
    for evening, hours in (("2026-03-07", 10), ("2026-03-08", 11), ("2026-10-31", 12), ("2026-11-01", 11)):
        begins = at(NEW_YORK, f"{evening}T21:00:00")
        assert NIGHT.until(begins, NEW_YORK) == begins + timedelta(hours=hours)


def test_an_end_that_does_not_exist_moves_forward_by_the_gap() -> None:
    hours = QuietHours(time(21), time(2, 30))
    ends = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)  # 02:30 EST, which the clock there shows as 03:30 EDT
    assert at(NEW_YORK, "2026-03-08T03:30:00") == ends
    assert hours.until(at(NEW_YORK, "2026-03-08T01:59:59"), NEW_YORK) == ends
    assert hours.until(at(NEW_YORK, "2026-03-08T03:29:59"), NEW_YORK) == ends
    assert hours.until(ends, NEW_YORK) is None


def test_a_beginning_that_does_not_exist_moves_forward_by_the_gap() -> None:
    hours = QuietHours(time(2, 30), time(6))
    assert hours.until(at(NEW_YORK, "2026-03-08T03:29:59"), NEW_YORK) is None
    assert hours.until(at(NEW_YORK, "2026-03-08T03:30:00"), NEW_YORK) == at(NEW_YORK, "2026-03-08T06:00:00")


def test_an_end_that_comes_twice_ends_the_window_once() -> None:
    hours = QuietHours(time(21), time(1, 30))
    first, second = (at(NEW_YORK, "2026-11-01T01:30:00", fold=fold) for fold in (0, 1))
    assert second - first == timedelta(hours=1)
    assert hours.until(first - SECOND, NEW_YORK) == first
    assert [hours.until(first + n * timedelta(minutes=5), NEW_YORK) for n in range(24)] == [None] * 24


def test_a_beginning_that_comes_twice_begins_the_window_once() -> None:
    hours = QuietHours(time(1, 30), time(6))
    first = at(NEW_YORK, "2026-11-01T01:30:00")
    six = at(NEW_YORK, "2026-11-01T06:00:00")
    assert hours.until(first - SECOND, NEW_YORK) is None
    assert {hours.until(first + n * timedelta(minutes=5), NEW_YORK) for n in range(66)} == {six}


def test_lord_howe_moves_its_clock_by_half_an_hour() -> None:
    zone, hours = "Australia/Lord_Howe", QuietHours(time(21), time(2, 15))
    ends = hours.until(at(zone, "2026-10-04T01:00:00"), zone)
    assert ends == at(zone, "2026-10-04T02:45:00")  # 02:15 does not exist there that night
    assert NIGHT.until(at(zone, "2026-04-04T21:00:00"), zone) == at(zone, "2026-04-04T21:00:00") + timedelta(hours=11.5)


def test_apia_had_no_thirtieth_of_december() -> None:
    zone = "Pacific/Apia"
    begins = at(zone, "2011-12-29T21:00:00")
    assert NIGHT.until(begins, zone) == begins + timedelta(hours=11) == at(zone, "2011-12-31T08:00:00")
    noon = at(zone, "2011-12-31T12:00:00")
    assert [NIGHT.until(noon + n * timedelta(minutes=30), zone) for n in range(18)] == [None] * 18
    assert NIGHT.until(at(zone, "2011-12-31T21:00:00"), zone) == at(zone, "2012-01-01T08:00:00")


def test_kathmandu_is_three_quarters_of_an_hour_off() -> None:
    assert NIGHT.until(datetime(2026, 7, 1, 2, 14, 59, tzinfo=UTC), "Asia/Kathmandu") == datetime(
        2026, 7, 1, 2, 15, tzinfo=UTC
    )
    assert NIGHT.until(datetime(2026, 7, 1, 15, 15, tzinfo=UTC), "Asia/Kathmandu") == datetime(
        2026, 7, 2, 2, 15, tzinfo=UTC
    )


INSTANTS = st.datetimes(datetime(2005, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
HOURS = st.tuples(st.times(), st.times()).filter(lambda two: two[0] != two[1]).map(lambda two: QuietHours(*two))
NIGHTS = st.sampled_from(
    [NIGHT, QuietHours(time(2, 30), time(2)), QuietHours(time(1), time(3)), QuietHours(time(0, 30), time(0))]
)


@given(instant=INSTANTS, hours=HOURS | NIGHTS, zone=st.sampled_from(ZONES))
@example(instant=datetime(2011, 12, 30, 9, tzinfo=UTC), hours=NIGHT, zone="Pacific/Apia")
@example(instant=datetime(2026, 3, 8, 7, tzinfo=UTC), hours=QuietHours(time(3), time(2, 30)), zone=NEW_YORK)
def test_quiet_hours_always_end_and_what_they_end_at_is_not_quiet(
    instant: datetime, hours: QuietHours, zone: str
) -> None:
    ends = hours.until(instant, zone)
    if ends is not None:
        assert instant < ends <= instant + timedelta(hours=50)
        assert hours.until(ends, zone) is None
        assert hours.until(ends - TICK, zone) == ends


@given(instant=INSTANTS, hours=HOURS, zone=st.sampled_from(ZONES))
def test_on_a_day_with_one_offset_the_clocks_reading_alone_decides(
    instant: datetime, hours: QuietHours, zone: str
) -> None:
    local = instant.astimezone(ZoneInfo(zone))
    if len({(local + n * DAY / 4).utcoffset() for n in range(-10, 11)}) == 1:
        now, inside = local.time(), hours.start <= local.time() < hours.end
        wraps = hours.end < hours.start
        quiet = (now >= hours.start or now < hours.end) if wraps else inside
        assert (hours.until(instant, zone) is not None) == quiet


@given(instant=INSTANTS, zone=st.sampled_from(ZONES))
def test_between_two_noons_there_is_one_night(instant: datetime, zone: str) -> None:
    noon = datetime.combine(instant.date(), time(12), ZoneInfo(zone)).astimezone(UTC)
    assert len(list(_changes(noon, zone))) == 2


def _changes(noon: datetime, zone: str) -> Iterator[datetime]:
    """Where quiet begins or ends in the 24 hours from a noon, looked at every ten minutes."""
    steps = [noon + n * timedelta(minutes=10) for n in range(145)]
    quiet = [NIGHT.until(step, zone) is not None for step in steps]
    yield from (step for step, (a, b) in zip(steps, pairwise(quiet), strict=False) if a != b)


NIGHTLY = datetime(2026, 7, 1, 22, tzinfo=UTC)
MORNING = datetime(2026, 7, 2, 8, tzinfo=UTC)


def decided(
    policy: Policy, *, channel: Channel = Channel.SMS, has_email: bool = True, expires_at: datetime = MORNING + DAY,
    now: datetime = NIGHTLY, half: float = 0.5,
) -> Verdict:  # fmt: skip
    rules = Rules(sms=policy) if channel is Channel.SMS else Rules(email=policy)
    candidate = Candidate(channel=channel, zone="UTC", has_email=has_email, expires_at=expires_at)
    return decide(now, candidate, rules, random=Always(half))


def test_by_default_an_sms_becomes_an_email_and_an_email_is_sent() -> None:
    rules = Rules()
    assert (rules.hours, rules.sms, rules.email) == (NIGHT, Policy.DOWNGRADE, Policy.SEND)
    assert decided(rules.sms) == DowngradeToEmail()
    assert decided(rules.email, channel=Channel.EMAIL) == SendNow()


def test_an_sms_without_an_address_to_downgrade_to_is_suppressed() -> None:
    assert decided(Policy.DOWNGRADE, has_email=False) == Suppress("quiet hours, and no email address to use instead")


def test_suppressed_and_sent_are_what_they_say() -> None:
    assert decided(Policy.SUPPRESS) == Suppress("quiet hours")
    assert decided(Policy.SEND) == SendNow()


def test_a_delayed_one_comes_within_a_quarter_of_an_hour_after_the_window() -> None:
    assert decided(Policy.DELAY, half=0.0) == DelayUntil(MORNING)
    assert decided(Policy.DELAY, half=0.5) == DelayUntil(MORNING + SPREAD / 2)


def test_a_delayed_one_comes_before_its_hold_lapses_or_not_at_all() -> None:
    assert decided(Policy.DELAY, expires_at=MORNING + SECOND, half=0.5) == DelayUntil(MORNING + SECOND / 2)
    lapses = Suppress("quiet hours last until 2026-07-02T08:00:00Z, and the hold lapses before")
    assert decided(Policy.DELAY, expires_at=MORNING) == lapses
    assert decided(Policy.DELAY, expires_at=NIGHTLY + SECOND) == lapses


def test_a_spread_does_not_reach_into_the_next_window() -> None:
    rules = Rules(hours=QuietHours(time(8, 5), time(8)), sms=Policy.DELAY)
    candidate = Candidate(channel=Channel.SMS, zone="UTC", has_email=False, expires_at=MORNING + DAY)
    assert decide(NIGHTLY, candidate, rules, random=Always(0.9)) == DelayUntil(MORNING)
    assert decide(NIGHTLY, candidate, rules, random=Always(0.1)) == DelayUntil(MORNING + SPREAD * 0.1)


@pytest.mark.parametrize("policy", Policy)
def test_outside_quiet_hours_everything_is_sent(policy: Policy) -> None:
    assert decided(policy, now=MORNING) == SendNow()


def test_without_quiet_hours_everything_is_sent_at_any_time() -> None:
    candidate = Candidate(channel=Channel.SMS, zone="UTC", has_email=False, expires_at=MORNING)
    assert decide(NIGHTLY, candidate, Rules(hours=None, sms=Policy.SUPPRESS), random=Random(1)) == SendNow()


@given(now=INSTANTS, left=st.timedeltas(SECOND, 3 * DAY), zone=st.sampled_from(ZONES), hours=HOURS, seed=st.integers())
def test_a_delayed_one_is_never_quiet_never_late_and_never_earlier(
    now: datetime, left: timedelta, zone: str, hours: QuietHours, seed: int
) -> None:
    candidate = Candidate(channel=Channel.SMS, zone=zone, has_email=True, expires_at=now + left)
    rules = Rules(hours=hours, sms=Policy.DELAY)
    verdict = decide(now, candidate, rules, random=Random(seed))
    if isinstance(verdict, DelayUntil):
        assert now < verdict.instant < candidate.expires_at
        assert decide(verdict.instant, candidate, rules, random=Random(seed)) == SendNow()


def test_an_email_cannot_be_downgraded() -> None:
    with pytest.raises(BadInput, match="quiet_email: cannot be downgrade; use send, delay or suppress"):
        Rules(email=Policy.DOWNGRADE)


@pytest.mark.parametrize(
    ("raw", "hours"),
    [("21:00-08:00", NIGHT), (" 22:30 - 06:15:30 ", QuietHours(time(22, 30), time(6, 15, 30))), ("off", None),
     ("OFF", None)],
)  # fmt: skip
def test_quiet_hours_are_written_as_two_readings_or_off(raw: str, hours: QuietHours | None) -> None:
    assert parse_quiet_hours(raw) == hours


@pytest.mark.parametrize(
    "raw", ["", "21-8", "21:00", "24:00-08:00", "21:00-08:00+01:00", "9pm-8am", "21:00–08:00", "٢١:00-08:00"]
)
def test_other_quiet_hours_are_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_quiet_hours(raw)
    assert str(refused.value) == f"quiet_hours: {raw!r} are no hours; write them like 21:00-08:00, or off"


def test_quiet_hours_without_length_or_with_a_zone_are_refused() -> None:
    with pytest.raises(BadInput, match="begin when they end; write them like 21:00-08:00, or off"):
        parse_quiet_hours("08:00-08:00")
    with pytest.raises(BadInput, match="carry a zone; leave it out, the customer's own counts"):
        QuietHours(time(21, tzinfo=UTC), time(8))
