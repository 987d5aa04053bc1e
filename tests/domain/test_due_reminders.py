"""What becomes of a due reminder: the hold goes first, then doubt, then the customer's hours."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from domain.due_reminders import (
    BecomeEmail,
    CallOff,
    Decision,
    Drop,
    DueReminder,
    HoldNow,
    LeaveUnknown,
    Provider,
    Send,
    Wait,
    decide,
)
from domain.holds import Status
from domain.identity import HoldId
from domain.quiet_hours import Policy, Rules
from domain.reminding import Channel

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
NIGHT = datetime(2026, 12, 1, 23, tzinfo=UTC)
DEADLINE = datetime(2026, 12, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TWILIO = Provider(name="twilio", key_window=None)
TELNYX = Provider(name="telnyx", key_window=timedelta(hours=24))
HOLD = HoldNow(
    resource="seat", customer="acme", status=Status.HELD, expires_at=DEADLINE, timezone="UTC",
    email="ada@example.com", phone="+4915112345678", locale=None,
)  # fmt: skip
DUE = DueReminder(
    key="k", hold_id=HoldId("h"), channel=Channel.SMS, expires_at=DEADLINE, lead=timedelta(days=1), now=NOON, hold=HOLD
)
TRIED = replace(DUE, attempts=1, age=MINUTE, provider="telnyx")


def judged(due: DueReminder, provider: Provider | None = TWILIO, rules: Rules = Rules()) -> Decision:  # noqa: B008 - frozen
    return decide(due, provider, rules, random=Random(1))


def test_by_day_it_is_sent_to_its_channels_contact() -> None:
    assert judged(DUE) == Send("+4915112345678")
    assert judged(replace(DUE, channel=Channel.EMAIL)) == Send("ada@example.com")


@pytest.mark.parametrize(
    ("hold", "reason"),
    [
        (None, "the hold is gone"),
        (replace(HOLD, status=Status.CONFIRMED), "the hold was confirmed"),
        (replace(HOLD, expires_at=DEADLINE + MINUTE), "the hold was extended"),
        (replace(HOLD, status=Status.EXPIRED), "the hold was expired"),
    ],
)
def test_a_hold_that_is_over_or_moved_goes_before_everything(hold: HoldNow | None, reason: str) -> None:
    for due in (DUE, replace(TRIED, uncertain=True), replace(DUE, now=NIGHT), replace(TRIED, asked=True)):
        assert judged(replace(due, hold=hold)) == CallOff(reason)


def test_at_its_deadline_a_hold_has_lapsed_and_a_second_before_it_has_not() -> None:
    assert judged(replace(DUE, now=DEADLINE)) == CallOff("the hold has lapsed")
    assert judged(replace(DUE, now=DEADLINE - timedelta(seconds=1))) == Send("+4915112345678")


def test_a_hold_that_is_being_changed_is_looked_at_again() -> None:
    assert judged(replace(TRIED, hold=None, busy=True)) == Wait(NOON + timedelta(seconds=1))


def test_without_contact_or_gateway_it_is_dropped() -> None:
    assert judged(replace(DUE, hold=replace(HOLD, phone=None))) == Drop("the hold has no contact for sms")
    assert judged(DUE, None) == Drop("no gateway is set for sms")


def test_by_night_an_sms_becomes_an_email_and_an_email_is_sent() -> None:
    assert judged(replace(DUE, now=NIGHT)) == BecomeEmail()
    assert judged(replace(DUE, now=NIGHT, channel=Channel.EMAIL)) == Send("ada@example.com")
    alone = replace(DUE, now=NIGHT, hold=replace(HOLD, email=None))
    assert judged(alone) == Drop("quiet hours, and no email address to use instead")
    assert isinstance(judged(alone, rules=Rules(sms=Policy.DELAY)), Wait)


def test_what_may_have_been_accepted_is_sent_again_only_under_a_key_its_own_provider_knows() -> None:
    doubt = replace(TRIED, uncertain=True)
    assert judged(doubt, TELNYX) == Send("+4915112345678")
    assert isinstance(judged(doubt, TWILIO), LeaveUnknown)
    assert isinstance(judged(replace(doubt, provider="resend"), TELNYX), LeaveUnknown)
    assert isinstance(judged(replace(doubt, age=timedelta(hours=24) - MINUTE), TELNYX), LeaveUnknown)
    assert judged(replace(doubt, age=timedelta(hours=24) - 2 * MINUTE), TELNYX) == Send("+4915112345678")


def test_what_was_abandoned_is_in_doubt() -> None:
    abandoned = replace(TRIED, abandoned=True)
    assert judged(abandoned, TELNYX) == Send("+4915112345678")
    left = judged(replace(abandoned, provider="twilio"), TWILIO)
    assert isinstance(left, LeaveUnknown)
    assert left.reason.startswith("the worker ended before it recorded the outcome")
    assert isinstance(judged(replace(abandoned, attempts=5), TELNYX), LeaveUnknown)


def test_in_doubt_nothing_is_sent_at_night_and_no_email_instead() -> None:
    doubt = replace(TRIED, uncertain=True, now=NIGHT)
    assert judged(doubt, TELNYX) == LeaveUnknown("an attempt may have been accepted, and quiet hours have begun")


def test_what_an_operator_asked_for_is_sent_in_doubt_and_at_night() -> None:
    asked = replace(TRIED, uncertain=True, asked=True, now=NIGHT)
    assert judged(asked, TWILIO) == Send("+4915112345678")
    assert asked.window(TELNYX) is None


def test_no_value_shows_a_contact() -> None:
    shown = repr(DUE) + repr(judged(DUE))
    assert "ada@example.com" not in shown
    assert "+4915112345678" not in shown
