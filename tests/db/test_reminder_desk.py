"""What an operator sees and decides; what is traced, checked, counted, erased and pruned of reminders."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import text

from db import dead_letters, erasing, pruning, reconcile, reminder_desk, reminding, trace
from db import status as operating_status
from db.engine import Database
from db.invariants_reminders import REMINDER_INVARIANTS
from db.reminder_desk import Decided, Selection
from db.reminding import Taken
from domain.due_reminders import LeaveUnknown, Wait
from domain.holds import Done
from domain.identity import HoldId
from domain.reminding import Deferred, Rejected, Unknown
from tests.helpers import Desk
from tests.reminded import BOTH, DAY, EMAIL, KEYED, OK, SMS, Reminded, contacts, keys

MINUTE = timedelta(minutes=1)


@pytest.fixture
def desk(database: Database) -> Reminded:
    return Reminded(database)


def call(desk: Desk, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with desk.database.transaction() as tx:
        return function(tx, *args, **options)


def unknown(desk: Reminded, name: str = "h") -> str:
    """A reminder of which nobody knows; its key."""
    hold = desk.reminded(name)
    desk.make_due(name)
    desk.settle(desk.taken(), Unknown("the deadline came"))
    return keys(hold)[0]


def test_a_resend_makes_exactly_one_more_attempt_with_the_same_text(desk: Reminded) -> None:
    key = unknown(desk)
    before = desk.rows("message")
    assert call(desk, reminder_desk.resend, key, "ada") is Decided.DONE
    taken = desk.taken()
    assert (taken.number, taken.asked, [(taken.message.as_data(),)]) == (2, True, before)
    desk.settle(taken)
    assert desk.rows("state", "decision", "decided_by") == [("sent", "resend", "ada")]
    assert desk.take() is None
    assert call(desk, reconcile.violations) == []


def test_a_resend_that_ends_unknown_waits_for_an_operator_again(desk: Reminded) -> None:
    key = unknown(desk)
    call(desk, reminder_desk.resend, key, "ada")
    desk.settle(desk.taken(), Unknown("reset"))
    waiting = call(desk, reminder_desk.listing, Selection(waiting=True), limit=10)
    assert [reminder.key for reminder in waiting] == [key]
    desk.sql("UPDATE reminders SET next_at = now()")
    assert desk.take() is None


def test_of_two_resends_at_once_one_counts(desk: Reminded) -> None:
    key = unknown(desk)
    barrier = Barrier(2)

    def resend(name: str) -> Decided:
        barrier.wait()
        decided: Decided = call(desk, reminder_desk.resend, key, name)
        return decided

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(resend, ["ada", "eve"])) == [Decided.DONE, Decided.NOT_OPEN]
    assert isinstance(desk.take(), Taken)
    assert desk.take() is None


def test_what_was_sent_or_whose_hold_is_over_is_not_sent_again(desk: Reminded) -> None:
    closed = unknown(desk, "closed")
    desk.cancel("closed")
    sent = keys(desk.reminded("sent"))[0]
    desk.make_due("sent")
    desk.settle(desk.taken())
    before = desk.everything()
    assert call(desk, reminder_desk.resend, closed, "ada") is Decided.HOLD_OVER
    assert call(desk, reminder_desk.resend, sent, "ada") is Decided.NOT_OPEN
    assert call(desk, reminder_desk.leave, sent, "ada") is Decided.NOT_OPEN
    assert call(desk, reminder_desk.resend, "hold-reminder:x:email:1:1", "ada") is Decided.MISSING
    assert desk.everything() == before


def test_a_reminder_that_was_left_stays_unknown_and_nobody_is_asked_again(desk: Reminded) -> None:
    key = unknown(desk)
    assert call(desk, reminder_desk.leave, key, "ada") is Decided.DONE
    assert call(desk, reminder_desk.leave, key, "eve") is Decided.NOT_OPEN
    assert desk.rows("state", "decision", "decided_by") == [("unknown", "leave", "ada")]
    assert call(desk, reminder_desk.listing, Selection(waiting=True), limit=10) == []


def test_a_text_that_cannot_be_made_is_a_dead_letter_and_a_resend_closes_it(desk: Reminded) -> None:
    key = keys(desk.reminded())[0]
    desk.make_due()
    with desk.database.transaction() as tx:
        due = reminding.next_due(tx, EMAIL)
        assert due is not None
        reminding.bury(tx, due, "email.en.txt.j2, line 3: 'x' is undefined")
    [letter] = call(desk, dead_letters.listing, replayed=False, limit=10)
    assert (letter.kind, letter.hold_id, letter.reference) == ("reminder", "h", {"reminder": key})
    assert desk.states() == ["failed"]
    call(desk, reminder_desk.resend, key, "ada")
    assert call(desk, dead_letters.listing, replayed=False, limit=10) == []
    assert isinstance(desk.take(), Taken)


def test_discarding_a_reminders_letter_leaves_a_hold_that_is_set_aside(desk: Reminded) -> None:
    desk.reminded()
    desk.sql("UPDATE holds SET set_aside = true")
    number = call(desk, dead_letters.bury, "reminder:x", "reminder", {}, "bad", hold="h")
    letter = call(desk, dead_letters.get, number)
    call(desk, dead_letters.settle, letter, dead_letters.DISCARDED, "ada")
    assert desk.read().set_aside


def test_a_trace_tells_each_step_of_a_reminder_and_masks_the_address(desk: Reminded) -> None:
    key = unknown(desk)
    call(desk, reminder_desk.resend, key, "ada")
    desk.settle(desk.taken())
    told = call(desk, trace.trace, HoldId("h"))
    steps = [step for step in told.steps if step.what.startswith("reminder")]
    assert [step.what for step in steps] == [
        "reminder", "reminder attempt", "reminder resend", "reminder attempt", "reminder sent",
    ]  # fmt: skip
    assert [step.facts.get("to") for step in steps] == [None, "a***@e***.com", None, "a***@e***.com", None]
    assert "ada@example.com" not in str(told.as_data())
    whole = call(desk, trace.trace, HoldId("h"), show_contacts=True)
    assert "ada@example.com" in str(whole.as_data(show_contacts=True))


def test_reconcile_finds_what_must_not_be_and_nothing_else(desk: Reminded) -> None:
    desk.reminded("h", who=BOTH)
    desk.make_due("h")
    desk.settle(desk.taken(EMAIL))
    desk.reminded("moved", who=BOTH)
    desk.extend("moved", 1, DAY)
    desk.reminded("closed")
    desk.cancel("closed")
    assert call(desk, reconcile.violations) == []
    email, sms = keys(desk.read("h"), (EMAIL, SMS))
    breaking = {
        "reminder-once": f"INSERT INTO reminder_attempts VALUES ('{email}', 2, now(), 'w', 'smtp', 'accepted')",
        "reminder-attempts": "UPDATE reminders SET attempts = 7, first_attempt_at = now() WHERE state = 'scheduled'",
        "reminder-key": f"UPDATE reminders SET lead = lead * 2 WHERE key = '{sms}'",
        "reminder-hold": "UPDATE reminders SET state = 'scheduled', settled_at = NULL WHERE hold_id = 'closed'",
        "reminder-owed": f"DELETE FROM reminders WHERE key = '{sms}'",
        "reminder-lease": "UPDATE reminders SET state = 'claimed', next_at = now() - interval '1 hour' "
        "WHERE state = 'scheduled'",
    }
    assert breaking.keys() == REMINDER_INVARIANTS.keys()
    for check, statement in breaking.items():
        with desk.database.engine.connect() as connection, connection.begin() as broken:
            connection.exec_driver_sql(statement)
            found = {
                name
                for name in reconcile.CHECKS
                if name.startswith("reminder-") and reconcile._run(connection, name, {"kept": MINUTE}, limit=9)
            }
            broken.rollback()
        assert check in found, found


def test_status_counts_reminders_and_turns_red_for_what_waits_is_late_or_lacks_a_gateway(desk: Reminded) -> None:
    unknown(desk, "h")
    desk.reminded("late", who=BOTH)
    desk.sql("UPDATE reminders SET next_at = now() - interval '6 minutes' WHERE hold_id = 'late'")
    assert desk.take(SMS, None) is not None
    found = call(desk, operating_status.status, grace=5 * MINUTE, silence=MINUTE)
    by_channel = {one.channel: one for one in found.reminders.channels}
    assert (by_channel["email"].scheduled, by_channel["email"].waiting, by_channel["sms"].suppressed) == (1, 1, 1)
    assert [line.partition(":")[0] for line in found.red if "reminder" in line] == [
        "reminders has never ticked",
        "no gateway is set for sms, and a reminder was dropped",
        "a reminder is late by 6m, more than 5m",
        "nobody knows whether some reminders were accepted (1)",
    ]


def test_contacts_of_holds_closed_long_ago_are_erased_with_the_texts_and_the_record_stays(desk: Reminded) -> None:
    for name in ("old", "young", "held"):
        desk.reminded(name)
        desk.make_due(name)
        desk.settle(desk.taken(EMAIL, KEYED), OK)
    desk.cancel("old")
    desk.cancel("young")
    desk.sql("UPDATE holds SET closed_at = closed_at - interval '91 days' WHERE id = 'old'")
    assert erasing.erase(desk.database, older_than=timedelta(days=90), batch=2) == 1
    assert erasing.erase(desk.database, older_than=timedelta(days=90)) == 0
    told = {name: repr(rows) for name, rows in desk.everything().items()}
    assert [(one.id, one.email) for one in (desk.read("old"), desk.read("young"), desk.read("held"))] == [
        ("old", None), ("young", "ada@example.com"), ("held", "ada@example.com"),
    ]  # fmt: skip
    assert told["holds"].count("ada@example.com") == 4
    assert told["reminders"].count("ada@example.com") == 2
    assert desk.rows("state", "provider_id", "message", hold="old") == [("sent", "id-1", None)]
    assert call(desk, reconcile.violations) == []


def test_the_same_terms_again_still_find_a_hold_whose_contacts_are_erased(desk: Reminded) -> None:
    desk.reminded("h")
    desk.cancel("h")
    erasing.erase(desk.database, older_than=timedelta(0))
    again = desk.place("h", DAY, contacts=contacts(), timezone="UTC")
    assert isinstance(again, Done)
    assert again.repeated
    assert not isinstance(desk.place("h", DAY, timezone="UTC"), Done)


def test_a_pruned_hold_takes_its_reminders_along_but_what_waits_for_an_operator_stays_without_its_text(
    desk: Reminded,
) -> None:
    desk.reminded("sent", who=BOTH)
    desk.make_due("sent")
    desk.settle(desk.taken())
    key = unknown(desk, "open")
    desk.cancel("sent")
    desk.cancel("open")
    elsewhere = unknown(desk, "held")
    pruned = pruning.prune(desk.database, older_than=timedelta(0))
    assert (pruned.holds, pruned.reminders) == (2, 2)
    left = desk.sql("SELECT key, state, message IS NULL AS erased FROM reminders ORDER BY hold_id")
    assert [tuple(row) for row in left] == [(elsewhere, "unknown", False), (key, "unknown", True)]
    assert desk.count("reminder_attempts") == 2


def test_nothing_follows_an_attempt_that_an_operator_asked_for(desk: Reminded) -> None:
    desk.reminded()
    desk.make_due()
    desk.settle(desk.taken(EMAIL, KEYED), Rejected("no such mailbox"))
    call(desk, reminder_desk.resend, keys(desk.read())[0], "ada")
    desk.settle(desk.taken(EMAIL, KEYED), Deferred("nobody answered"))
    assert desk.rows("state", "attempts") == [("failed", 2)]
    call(desk, reminder_desk.resend, keys(desk.read())[0], "ada")
    desk.settle(desk.taken(EMAIL, KEYED), Unknown("reset"))
    assert desk.rows("state", "attempts") == [("unknown", 3)]


def test_an_attempt_that_was_asked_for_is_used_up_when_it_is_taken_whatever_happens_then(desk: Reminded) -> None:
    key = unknown(desk)
    call(desk, reminder_desk.resend, key, "ada")
    assert desk.taken().asked
    desk.end_leases()
    with desk.database.transaction() as changing:
        changing.execute(text("SELECT FROM holds WHERE id = 'h' FOR UPDATE"))
        assert isinstance(desk.take(), Wait)
    desk.make_due()
    assert isinstance(desk.take(), LeaveUnknown)
    assert desk.rows("state", "attempts") == [("unknown", 2)]
