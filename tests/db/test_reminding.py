"""A reminder is taken once, in a commit of its own; what nobody knows is never sent again by itself."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from threading import Barrier

import pytest
from sqlalchemy import text

from db import reminding
from db.engine import Database
from db.reminder_outcomes import Settled
from db.reminding import Taken
from domain.due_reminders import BecomeEmail, CallOff, Drop, LeaveUnknown, Wait
from domain.holds import Done
from domain.quiet_hours import Policy, QuietHours, Rules
from domain.reminding import Channel, Deferred, Rejected, Unknown
from tests.reminded import BOTH, DAY, EMAIL, HOUR, KEYED, LEASE, PLAIN, SMS, Reminded, contacts, keys


@pytest.fixture
def desk(database: Database) -> Reminded:
    return Reminded(database)


def night_now(desk: Reminded, **policies: Policy) -> Rules:
    """Rules whose quiet hours lie around this instant by the database's clock, in UTC."""
    now = desk.sql("SELECT clock_timestamp() AS now")[0].now.astimezone(UTC)
    start, end = (now - HOUR).time(), (now + HOUR).time()
    return Rules(hours=QuietHours(start.replace(microsecond=0), end.replace(microsecond=0)), **policies)


def test_nothing_is_taken_before_its_time(desk: Reminded) -> None:
    desk.reminded()
    before = desk.everything()
    assert desk.take() is None
    assert desk.everything() == before


def test_what_is_taken_is_counted_on_record_and_frozen_and_is_not_taken_again(desk: Reminded) -> None:
    hold = desk.reminded()
    desk.make_due()
    taken = desk.taken()
    assert (taken.message.key, taken.message.to, taken.number) == (keys(hold)[0], "ada@example.com", 1)
    assert desk.rows("state", "attempts", "provider", "message") == [("claimed", 1, "smtp", taken.message.as_data())]
    assert desk.attempts() == [(1, "smtp", None)]
    assert desk.take() is None


def test_what_was_accepted_is_sent_for_ever(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    assert desk.settle(desk.taken()) is Settled.DONE
    assert desk.rows("state", "provider_id", "reason") == [("sent", "id-1", None)]
    assert desk.attempts() == [(1, "smtp", "accepted")]
    desk.sql("UPDATE reminders SET next_at = now()")
    assert desk.take() is None


def test_what_was_surely_not_accepted_is_tried_again_with_the_same_text(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    first = desk.taken()
    desk.settle(first, Deferred("nobody answered"))
    assert desk.rows("state", "attempts", "uncertain") == [("scheduled", 1, False)]
    desk.make_due()
    second = desk.taken()
    assert (second.message, second.number) == (first.message, 2)
    assert second.token != first.token


def test_five_attempts_are_all(desk: Reminded) -> None:
    desk.reminded()
    for _ in range(5):
        desk.make_due()
        desk.settle(desk.taken(), Deferred("nobody answered"))
    assert desk.rows("state", "attempts", "reason") == [("failed", 5, "nobody answered; 5 attempts were made")]


def test_what_is_rejected_is_not_tried_again(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.settle(desk.taken(), Rejected("no such mailbox"))
    assert desk.rows("state", "reason") == [("failed", "no such mailbox")]


def test_what_is_unknown_waits_for_an_operator_where_the_provider_takes_no_key(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.settle(desk.taken(), Unknown("the deadline came"))
    [(state, reason)] = desk.rows("state", "reason")
    assert (state, reason.partition(";")[0]) == ("unknown", "the deadline came")
    desk.sql("UPDATE reminders SET next_at = now()")
    assert desk.take() is None


def test_what_is_unknown_is_asked_again_with_key_and_text_where_the_provider_takes_a_key(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    first = desk.taken(EMAIL, KEYED)
    desk.settle(first, Unknown("reset"))
    assert desk.rows("state", "uncertain") == [("scheduled", True)]
    desk.make_due()
    again = desk.taken(EMAIL, KEYED)
    assert again.message == first.message
    desk.settle(again)
    assert desk.rows("state", "attempts") == [("sent", 2)]


def test_the_same_key_is_not_relied_on_at_another_provider_or_after_its_window(desk: Reminded) -> None:
    for name in ("h", "g"):
        desk.reminded(name)
        desk.make_due(name)
        desk.settle(desk.taken(EMAIL, KEYED), Unknown("reset"))
    desk.make_due("h")
    assert isinstance(desk.take(EMAIL, PLAIN), LeaveUnknown)
    desk.sql("UPDATE reminders SET first_attempt_at = now() - interval '24 hours'")
    desk.make_due("g")
    assert isinstance(desk.take(EMAIL, KEYED), LeaveUnknown)
    assert desk.states("h") + desk.states("g") == ["unknown", "unknown"]


def test_a_worker_that_ended_leaves_an_unknown_one(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.taken()
    assert desk.take() is None
    desk.end_leases()
    assert isinstance(desk.take(), LeaveUnknown)
    [(state, reason, attempts)] = desk.rows("state", "reason", "attempts")
    assert (state, reason.partition(";")[0], attempts) == (
        "unknown", "the worker ended before it recorded the outcome", 1,
    )  # fmt: skip
    assert desk.attempts() == [(1, "smtp", None)]


def test_a_worker_that_ended_is_followed_by_another_where_the_provider_knows_the_key(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    first = desk.taken(EMAIL, KEYED)
    desk.end_leases()
    second = desk.taken(EMAIL, KEYED)
    assert (second.message, second.number, second.uncertain) == (first.message, 2, True)
    assert desk.settle(first) is Settled.LOST
    assert desk.rows("state", "token") == [("claimed", second.token)]
    assert desk.attempts() == [(1, "resend", "accepted"), (2, "resend", None)]


def test_an_answer_that_comes_after_the_lease_still_says_that_it_was_accepted(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    late = desk.taken()
    desk.end_leases()
    desk.take()
    assert desk.states() == ["unknown"]
    assert desk.settle(late) is Settled.DONE
    assert desk.states() == ["sent"]


def test_a_lapsed_hold_is_not_reminded_of_although_no_sweep_has_seen_it(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.age("h", timedelta(days=2))
    desk.sql("UPDATE reminders SET expires_at = expires_at - interval '2 days'")
    assert desk.take() == CallOff("the hold has lapsed")
    assert desk.rows("state", "reason") == [("cancelled", "the hold has lapsed")]


def test_a_channel_without_a_gateway_is_suppressed_and_says_so(desk: Reminded) -> None:
    desk.reminded(who=BOTH)
    desk.make_due()
    assert desk.take(SMS, None) == Drop("no gateway is set for sms")
    assert desk.rows("channel", "state", "reason") == [
        ("email", "scheduled", None), ("sms", "suppressed", "no gateway is set for sms"),
    ]  # fmt: skip


def test_both_contacts_in_quiet_hours_get_one_email(desk: Reminded) -> None:
    hold = desk.reminded(who=BOTH)
    desk.make_due()
    rules = night_now(desk)
    assert desk.take(SMS, PLAIN, rules) == BecomeEmail()
    email = desk.take(EMAIL, PLAIN, rules)
    assert isinstance(email, Taken)
    desk.settle(email)
    assert desk.rows("channel", "state", "reason", "covered_by") == [
        ("email", "sent", None, None), ("sms", "suppressed", "covered by email", keys(hold)[0]),
    ]  # fmt: skip
    assert desk.take(EMAIL, PLAIN, rules) is None


def test_an_sms_in_quiet_hours_becomes_the_email_that_was_not_there(desk: Reminded) -> None:
    hold = desk.reminded(who=BOTH)
    desk.sql("DELETE FROM reminders WHERE channel = 'email'")
    desk.make_due()
    desk.take(SMS, PLAIN, night_now(desk))
    assert desk.rows("key", "channel", "state", "reason") == [
        (keys(hold)[0], "email", "scheduled", None),
        (keys(hold, [SMS])[0], "sms", "suppressed", "quiet hours: it became an email"),
    ]
    assert isinstance(desk.take(EMAIL, PLAIN, night_now(desk)), Taken)


def test_a_delayed_reminder_waits_for_the_end_of_quiet_hours(desk: Reminded) -> None:
    hold = desk.reminded(lasting=DAY, who=BOTH)
    desk.make_due()
    waits = desk.take(SMS, PLAIN, night_now(desk, sms=Policy.DELAY))
    assert isinstance(waits, Wait)
    assert hold.read_at + HOUR - timedelta(seconds=2) < waits.until < hold.read_at + 2 * HOUR
    assert desk.rows("state", "next_at")[1] == ("scheduled", waits.until)
    assert desk.take(SMS) is None


def test_a_tick_counts_what_is_due_by_channel_and_a_second_one_at_once_counts_nothing(desk: Reminded) -> None:
    for n in range(3):
        desk.reminded(f"h{n}", who=BOTH if n else contacts())
        desk.make_due(f"h{n}")
    with desk.database.transaction() as tx:
        assert reminding.dispatch(tx, apart=timedelta(seconds=5), most=2) == {Channel.EMAIL: 2, Channel.SMS: 2}
    with desk.database.transaction() as tx:
        assert reminding.dispatch(tx, apart=timedelta(seconds=5), most=2) == {}


def test_of_ten_workers_at_once_each_reminder_is_taken_by_one(desk: Reminded) -> None:
    for n in range(5):
        desk.reminded(f"h{n}")
        desk.make_due(f"h{n}")
    barrier = Barrier(10)

    def worker(_: int) -> str | None:
        barrier.wait()
        found = desk.take()
        return found.message.key if isinstance(found, Taken) else None

    with ThreadPoolExecutor(10) as pool:
        found = [key for key in pool.map(worker, range(10)) if key is not None]
    assert len(found) == len(set(found)) == 5
    assert desk.count("reminder_attempts") == 5


def test_in_a_hundred_races_nothing_is_sent_whose_take_committed_after_the_cancel(desk: Reminded) -> None:
    """Whoever cancels hears of the one that is under way; there is none that it does not hear of."""
    names = [f"h{n}" for n in range(100)]
    for name in names:
        desk.reminded(name)
        desk.make_due(name)
    barrier = Barrier(2)

    def cancel(name: str) -> Done:
        barrier.wait()
        answer = desk.cancel(name)
        assert isinstance(answer, Done)
        return answer

    with ThreadPoolExecutor(1) as pool:
        for n, name in enumerate(names):
            desk.sql("UPDATE reminders SET next_at = '2020-01-01Z' WHERE hold_id = :name", name=name)
            cancelling = pool.submit(cancel, name)
            barrier.wait()
            if n % 2:
                desk.sql("SELECT pg_sleep(0.001)")
            found = desk.take()
            answer = cancelling.result()
            mine = isinstance(found, Taken) and found.hold_id == name
            assert answer.under_way == ((EMAIL,) if mine else ())
            assert desk.states(name) == (["claimed"] if mine else ["cancelled"])
            desk.sql("UPDATE reminders SET state = 'sent', settled_at = now() WHERE state = 'claimed'")
            desk.sql("UPDATE reminders SET next_at = '2030-01-01Z' WHERE state = 'scheduled'")


def test_a_retry_of_a_hold_that_was_closed_meanwhile_is_called_off(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    taken = desk.taken()
    desk.confirm("h")
    desk.settle(taken, Deferred("nobody answered"))
    assert desk.rows("state", "reason") == [("cancelled", "the hold was closed or extended meanwhile")]


def test_a_retry_in_doubt_of_a_hold_that_was_closed_meanwhile_is_unknown(desk: Reminded) -> None:
    for name, late in (("h", True), ("g", False)):
        desk.reminded(name)
        desk.make_due(name)
        taken = desk.taken(EMAIL, KEYED)
        if late:
            desk.confirm(name)
        desk.settle(taken, Unknown("reset"))
        if not late:
            desk.confirm(name)
    assert desk.states("h") + desk.states("g") == ["unknown", "unknown"]


def test_a_retry_waits_while_its_hold_is_being_changed(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.settle(desk.taken(), Deferred("nobody answered"))
    desk.make_due()
    with desk.database.transaction() as changing:
        changing.execute(text("SELECT FROM holds WHERE id = 'h' FOR UPDATE"))
        waits = desk.take()
    assert isinstance(waits, Wait)
    assert desk.states() == ["scheduled"]
    desk.make_due()
    assert isinstance(desk.take(), Taken)


def test_a_lease_is_as_long_as_it_was_asked_for(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.taken()
    [(left,)] = desk.rows("next_at - clock_timestamp()")
    assert LEASE - timedelta(seconds=5) < left <= LEASE
