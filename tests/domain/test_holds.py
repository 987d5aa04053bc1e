"""A hold as it is read: what counts, how it is called, why a command about it is refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from domain.holds import Hold, Reason, Refused, Status, why_refused
from domain.identity import HoldId
from domain.references import Reference

DEADLINE = datetime(2026, 12, 1, 9, tzinfo=UTC)
TICK = timedelta.resolution
HELD = Hold(
    id=HoldId("seat-1"),
    resource="seat 14",
    customer="acme",
    status=Status.HELD,
    version=3,
    expires_at=DEADLINE,
    timezone=None,
    amount=1250,
    currency="EUR",
    exclusive=False,
    cohort=62,
    placed_at=DEADLINE - timedelta(hours=2),
    closed_at=None,
    close_reason=None,
    set_aside=False,
    read_at=DEADLINE - TICK,
)


@pytest.mark.parametrize(
    ("read_at", "counts", "standing"),
    [(DEADLINE - TICK, True, "held"), (DEADLINE, False, "lapsed"), (DEADLINE + TICK, False, "lapsed")],
)
def test_from_its_deadline_on_a_held_hold_no_longer_counts(read_at: datetime, counts: bool, standing: str) -> None:  # noqa: FBT001
    hold = replace(HELD, read_at=read_at)
    assert (hold.counts, hold.standing) == (counts, standing)


@pytest.mark.parametrize("age", [timedelta(hours=2, minutes=1), timedelta(hours=23, minutes=59),
    timedelta(hours=24, minutes=10), timedelta(hours=25, minutes=30), timedelta(hours=49)])  # fmt: skip
def test_a_hold_of_two_hours_has_lapsed_at_every_age_beyond(age: timedelta) -> None:
    hold = replace(HELD, read_at=HELD.placed_at + age)
    assert not hold.counts
    assert hold.standing == "lapsed"


@pytest.mark.parametrize("status", [Status.CONFIRMED, Status.CANCELLED, Status.EXPIRED])
def test_a_closed_hold_never_counts_and_keeps_its_name(status: Status) -> None:
    closed = replace(HELD, status=status, closed_at=DEADLINE - TICK)
    assert not closed.counts
    assert closed.standing == status
    assert replace(closed, read_at=DEADLINE + TICK).standing == status


@pytest.mark.parametrize(
    ("hold", "version", "reason"),
    [
        (None, 3, Reason.MISSING),
        (replace(HELD, status=Status.EXPIRED, read_at=DEADLINE), 2, Reason.CLOSED),
        (replace(HELD, status=Status.CONFIRMED), 3, Reason.CLOSED),
        (replace(HELD, status=Status.CANCELLED), 3, Reason.CLOSED),
        (replace(HELD, read_at=DEADLINE), 2, Reason.LAPSED),
        (replace(HELD, read_at=DEADLINE), 3, Reason.LAPSED),
        (HELD, 2, Reason.WRONG_VERSION),
        (HELD, 4, Reason.WRONG_VERSION),
        (HELD, 3, Reason.LAPSED),  # it had lapsed when it was judged: the clock was set back since
    ],
)
def test_the_first_reason_that_fits_is_given(hold: Hold | None, version: int, reason: Reason) -> None:
    assert why_refused(hold, version) == Refused(reason, hold)


def test_a_holds_reference_points_at_this_version_and_deadline() -> None:
    assert HELD.reference == Reference.to(HoldId("seat-1"), 3, DEADLINE)


def test_a_hold_as_json_carries_it() -> None:
    assert replace(HELD, read_at=DEADLINE).as_data() == {
        "id": "seat-1", "resource": "seat 14", "customer": "acme", "status": "lapsed", "version": 3,
        "expires_at": "2026-12-01T09:00:00Z", "timezone": None, "amount": 1250, "currency": "EUR",
        "exclusive": False, "cohort": 62, "placed_at": "2026-12-01T07:00:00Z", "closed_at": None,
        "close_reason": None, "set_aside": False, "email": None, "phone": None, "locale": None, "leads": None,
    }  # fmt: skip


def test_a_hold_as_json_masks_its_contacts_unless_they_are_asked_for() -> None:
    hold = replace(HELD, email="ada@example.com", phone="+4915112345678", locale="de", leads=(timedelta(days=1),))
    shown = hold.as_data()
    assert (shown["email"], shown["phone"]) == ("a***@e***.com", "+49***78")
    assert (shown["locale"], shown["leads"]) == ("de", ["1d"])
    whole = hold.as_data(show_contacts=True)
    assert (whole["email"], whole["phone"]) == ("ada@example.com", "+4915112345678")
    assert "ada@example.com" not in repr(hold)
    assert "+4915112345678" not in repr(hold)
