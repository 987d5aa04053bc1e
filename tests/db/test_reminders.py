"""Reminders follow their hold: written when it is placed, moved when it is extended, called off when it is closed."""

from datetime import timedelta

import pytest

from db.engine import Database
from domain.holds import Done, Reason, Refused
from domain.references import Reference
from domain.terms import For, Until
from tests.helpers import TWO_HOURS
from tests.reminded import BOTH, DAY, EMAIL, HOUR, SMS, Reminded, contacts, keys


@pytest.fixture
def desk(database: Database) -> Reminded:
    return Reminded(database)


def test_a_hold_gets_one_reminder_a_channel_and_lead_due_that_long_before_its_deadline(desk: Reminded) -> None:
    hold = desk.reminded(who=contacts(phone="+4915112345678", leads=(HOUR, timedelta(minutes=5))))
    short, long = timedelta(minutes=5), HOUR
    assert desk.rows("key", "channel", "lead", "due_at", "next_at", "state") == sorted(
        (key, channel.value, lead, hold.expires_at - lead, hold.expires_at - lead, "scheduled")
        for channel in (EMAIL, SMS)
        for lead in (short, long)
        for key in keys(hold, [channel], lead)
    )


def test_a_hold_without_contacts_has_none(desk: Reminded) -> None:
    desk.placed("h", DAY)
    assert desk.count("reminders") == 0


def test_leads_that_were_not_given_are_the_deployments_and_stay_the_holds(desk: Reminded) -> None:
    hold = desk.reminded(lasting=For(timedelta(days=3)), who=contacts(leads=None))
    assert hold.leads == (timedelta(days=1),)
    assert desk.rows("due_at") == [(hold.expires_at - timedelta(days=1),)]


def test_less_time_left_than_the_lead_makes_no_instant_reminder(desk: Reminded) -> None:
    desk.reminded(lasting=For(timedelta(days=2)), who=contacts(leads=(timedelta(days=3),)))
    assert desk.count("reminders") == 0


def test_the_same_terms_again_find_the_hold_and_other_contacts_are_other_terms(desk: Reminded) -> None:
    desk.reminded()
    before = desk.everything()
    again = desk.place("h", DAY, contacts=contacts(), timezone="UTC")
    assert isinstance(again, Done)
    assert again.repeated
    others = desk.place("h", DAY, contacts=contacts("eve@example.com"), timezone="UTC")
    assert isinstance(others, Refused)
    assert others.reason is Reason.TERMS_DIFFER
    assert desk.everything() == before


def test_extending_calls_off_the_old_deadlines_and_writes_the_new_ones(desk: Reminded) -> None:
    first = desk.reminded(who=BOTH)
    answer = desk.extend("h", 1, DAY)
    assert isinstance(answer, Done)
    assert sorted(desk.rows("key", "state", "reason", "due_at")) == sorted(
        [(key, "cancelled", "the hold was extended", first.expires_at - HOUR) for key in keys(first, (EMAIL, SMS))]
        + [(key, "scheduled", None, answer.hold.expires_at - HOUR) for key in keys(answer.hold, (EMAIL, SMS))]
    )


def test_a_deadline_set_back_schedules_again_what_nobody_had_taken(desk: Reminded) -> None:
    first = desk.reminded()
    desk.extend("h", 1, DAY)
    desk.extend("h", 2, Until(first.expires_at))
    assert desk.rows("key", "state", "reason", "settled_at")[0] == (keys(first)[0], "scheduled", None, None)
    assert desk.states() == ["scheduled", "cancelled"]


def test_a_deadline_set_back_makes_no_second_reminder_of_one_that_was_sent(desk: Reminded) -> None:
    first = desk.reminded()
    desk.make_due()
    desk.settle(desk.taken())
    desk.extend("h", 1, DAY)
    desk.extend("h", 2, Until(first.expires_at))
    assert desk.states() == ["sent", "cancelled"]
    assert desk.attempts() == [(1, "smtp", "accepted")]


def test_a_deadline_set_back_leaves_one_that_is_under_way_or_unknown(desk: Reminded) -> None:
    first = desk.reminded(who=BOTH)
    desk.make_due()
    desk.taken(SMS)
    desk.taken(EMAIL)
    desk.end_leases()
    desk.take(EMAIL)
    desk.extend("h", 1, DAY)
    desk.extend("h", 2, Until(first.expires_at))
    assert desk.states() == ["unknown", "cancelled", "claimed", "cancelled"]


@pytest.mark.parametrize("act", ["confirmed", "cancelled", "expired"])
def test_closing_a_hold_calls_off_what_is_scheduled(desk: Reminded, act: str) -> None:
    hold = desk.reminded(who=BOTH)
    if act == "confirmed":
        desk.confirm("h")
    elif act == "cancelled":
        desk.cancel("h")
    else:
        desk.expire(Reference.to(hold.id, 1, hold.expires_at), now=hold.expires_at)
    assert desk.rows("state", "reason") == [("cancelled", f"the hold was {act}")] * 2


def test_closing_one_hold_leaves_the_reminders_of_one_whose_id_begins_alike(desk: Reminded) -> None:
    for name in ("h", "h-1", "h1"):
        desk.reminded(name)
    desk.cancel("h")
    assert [desk.states(name) for name in ("h", "h-1", "h1")] == [["cancelled"], ["scheduled"], ["scheduled"]]


def test_whoever_closes_or_extends_hears_what_is_just_being_sent(desk: Reminded) -> None:
    for name in ("h", "g"):
        desk.reminded(name, who=BOTH)
        desk.make_due(name)
        desk.taken(SMS)
    closed, extended = desk.cancel("h"), desk.extend("g", 1, DAY)
    assert isinstance(closed, Done)
    assert isinstance(extended, Done)
    assert (closed.under_way, extended.under_way) == ((SMS,), (SMS,))
    assert desk.states() == ["cancelled", "claimed"]


def test_a_refused_command_calls_nothing_off(desk: Reminded) -> None:
    desk.reminded()
    before = desk.everything()
    assert isinstance(desk.extend("h", 7, TWO_HOURS), Refused)
    assert isinstance(desk.cancel("h", 7), Refused)
    assert isinstance(desk.confirm("h", 7), Refused)
    assert desk.everything() == before
