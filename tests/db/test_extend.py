"""Extending: only a counting hold, only the version named, judged after the lock by the database's clock."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from db import holds
from db.engine import Database
from domain.errors import BadInput
from domain.holds import Answer, Done, Reason, Refused, Status
from domain.identity import HoldId
from domain.outcomes import Outcome
from domain.references import Reference
from domain.terms import For, Until
from tests.helpers import Desk, wait_for_lock, wait_until, whole_second

HOUR = timedelta(hours=1)


def refusal(answer: Answer) -> Reason:
    assert isinstance(answer, Refused)
    return answer.reason


def test_a_duration_counts_from_the_present_deadline(desk: Desk) -> None:
    placed = desk.placed("h", amount=1250, currency="EUR")
    answer = desk.extend("h", 1, For(HOUR))
    assert isinstance(answer, Done)
    assert not answer.repeated
    assert (answer.hold.version, answer.hold.expires_at) == (2, placed.expires_at + HOUR)
    assert desk.read("h").expires_at == placed.expires_at + HOUR


def test_extending_writes_one_effect_and_one_event_and_touches_no_money(desk: Desk) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    desk.extend("h", 1, For(HOUR))
    hold = desk.read("h")
    assert desk.sql("SELECT key, kind, version, expires_at FROM effects WHERE kind <> 'placed'") == [
        ("hold-extended:h:v2", "extended", 2, hold.expires_at)
    ]
    assert desk.sql("SELECT event_id, type FROM events WHERE type <> 'reservation.placed'") == [
        ("reservation-extended:h:2", "reservation.extended")
    ]
    assert desk.sql("SELECT side, amount FROM ledger") == [("open", 1250)]


def test_a_deadline_may_be_set_earlier_and_is_rounded_up(desk: Desk) -> None:
    placed = desk.placed("h")
    earlier = placed.expires_at - HOUR
    answer = desk.extend("h", 1, Until(earlier - timedelta(microseconds=1)))
    assert isinstance(answer, Done)
    assert answer.hold.expires_at == earlier


def test_a_deadline_at_or_before_now_is_refused_and_nothing_changes(desk: Desk, database: Database) -> None:
    desk.placed("h")
    before = desk.everything()
    with database.transaction() as tx:
        now = whole_second(tx)
    for passed in (now, datetime(2020, 1, 1, tzinfo=UTC)):
        with pytest.raises(BadInput, match=r"^until: .* is not after now \("):
            desk.extend("h", 1, Until(passed))
    assert desk.everything() == before


def test_a_deadline_more_than_ten_years_ahead_is_refused_and_nothing_changes(desk: Desk) -> None:
    desk.placed("h")
    before = desk.everything()
    with pytest.raises(BadInput, match="more than 3660 days ahead"):
        desk.extend("h", 1, For(timedelta(days=3660)))
    assert desk.everything() == before


def test_a_stale_writer_is_refused(desk: Desk) -> None:
    """A reads version 1, B extends to version 2, A writes."""
    read_by_a = desk.placed("h").version
    desk.extend("h", 1, For(HOUR))
    before = desk.everything()
    assert refusal(desk.extend("h", read_by_a, For(2 * HOUR))) is Reason.WRONG_VERSION
    assert refusal(desk.confirm("h", read_by_a)) is Reason.WRONG_VERSION
    assert refusal(desk.cancel("h", read_by_a)) is Reason.WRONG_VERSION
    assert refusal(desk.extend("h", 3, For(HOUR))) is Reason.WRONG_VERSION
    assert desk.everything() == before


def test_a_repeat_until_the_same_instant_returns_the_hold_and_changes_nothing(desk: Desk) -> None:
    until = Until(desk.placed("h").expires_at + HOUR)
    desk.extend("h", 1, until)
    before = desk.everything()
    answer = desk.extend("h", 1, until)
    assert isinstance(answer, Done)
    assert answer.repeated
    assert answer.hold.version == 2
    assert desk.everything() == before


def test_a_repeat_by_the_same_duration_returns_the_hold_and_never_adds_it_twice(desk: Desk) -> None:
    placed = desk.placed("h")
    for version in (1, 2, 3):
        desk.extend("h", version, For(HOUR))
        before = desk.everything()
        answer = desk.extend("h", version, For(HOUR))
        assert isinstance(answer, Done)
        assert answer.repeated
        assert answer.hold.version == version + 1
        assert desk.everything() == before
    assert desk.read("h").expires_at == placed.expires_at + 3 * HOUR


def test_a_repeat_of_an_older_extension_is_refused(desk: Desk) -> None:
    desk.placed("h")
    desk.extend("h", 1, For(HOUR))
    desk.extend("h", 2, For(HOUR))
    before = desk.everything()
    assert refusal(desk.extend("h", 1, For(HOUR))) is Reason.WRONG_VERSION
    assert desk.everything() == before


def test_a_repeat_by_duration_is_known_of_a_hold_imported_at_a_later_version(desk: Desk) -> None:
    desk.placed("h")
    desk.sql("UPDATE holds SET version = 3")
    desk.sql("UPDATE effects SET version = 3, imported = true")
    desk.extend("h", 3, For(HOUR))
    answer = desk.extend("h", 3, For(HOUR))
    assert isinstance(answer, Done)
    assert answer.repeated


def test_a_lapsed_hold_is_not_extended_whether_or_not_a_sweep_has_seen_it(desk: Desk) -> None:
    lapsed = desk.overdue("h", by=timedelta(seconds=1))
    before = desk.everything()
    assert refusal(desk.extend("h", 1, For(HOUR))) is Reason.LAPSED
    assert desk.everything() == before
    desk.expire(lapsed.reference)
    before = desk.everything()
    assert refusal(desk.extend("h", 1, For(HOUR))) is Reason.CLOSED
    assert desk.everything() == before
    assert desk.read("h").status is Status.EXPIRED


@pytest.mark.parametrize("close", ["confirm", "cancel"])
def test_a_closed_hold_is_not_extended(desk: Desk, close: str) -> None:
    desk.placed("h")
    getattr(desk, close)("h")
    before = desk.everything()
    assert refusal(desk.extend("h", 1, For(HOUR))) is Reason.CLOSED
    assert desk.everything() == before


def test_a_hold_that_does_not_exist_is_missing(desk: Desk) -> None:
    before = desk.everything()
    assert refusal(desk.extend("nobody", 1, For(HOUR))) is Reason.MISSING
    assert refusal(desk.confirm("nobody")) is Reason.MISSING
    assert refusal(desk.cancel("nobody")) is Reason.MISSING
    assert desk.everything() == before


def test_extending_gives_a_claimed_or_set_aside_hold_back_to_the_sweep(desk: Desk) -> None:
    desk.placed("h")
    desk.sql(
        "UPDATE holds SET claimed_run = 7, claimed_until = now() + interval '1 minute', claims = 2, set_aside = true"
    )
    desk.extend("h", 1, For(HOUR))
    assert desk.sql("SELECT claimed_run, claimed_until, claims, set_aside FROM holds") == [(None, None, 0, False)]


def test_extended_and_set_back_only_the_newest_versions_message_works(desk: Desk) -> None:
    """Version 3 at T1, extended to T2 as version 4, set back to T1 as version 5."""
    desk.placed("h", amount=1250, currency="EUR")
    desk.extend("h", 1, For(HOUR))
    t1 = desk.read("h").expires_at + HOUR
    desk.extend("h", 2, Until(t1))
    third = desk.read("h").reference
    desk.extend("h", 3, Until(t1 + HOUR))
    desk.extend("h", 4, Until(t1))
    fifth = desk.read("h").reference
    assert third.expires_at == fifth.expires_at == t1
    before = desk.everything()
    assert desk.expire(third, now=t1) == [Outcome.STALE]
    assert desk.everything() | {"receipts": []} == before
    assert desk.expire(third, fifth, now=t1) == [Outcome.STALE, Outcome.EXPIRED]
    assert desk.expire(third, now=t1) == [Outcome.STALE]
    assert desk.count("ledger", "side = 'close'") == 1
    assert desk.sql("SELECT key FROM effects WHERE kind = 'expired'") == [(fifth.job_id,)]


def test_an_older_versions_message_stays_stale_after_its_deadline(desk: Desk) -> None:
    first = desk.placed("h").reference
    desk.extend("h", 1, For(HOUR))
    assert desk.expire(first, now=first.expires_at) == [Outcome.STALE]
    second = desk.read("h").reference
    other_deadline = Reference.to(second.hold_id, second.version, first.expires_at)
    assert desk.expire(other_deadline, now=second.expires_at) == [Outcome.STALE]
    assert desk.read("h").status is Status.HELD


def test_an_extension_that_waited_past_the_deadline_for_its_lock_is_refused(desk: Desk, database: Database) -> None:
    desk.placed("h")
    with database.transaction() as other, ThreadPoolExecutor(1) as pool:
        deadline = whole_second(other, ahead=timedelta(seconds=2))
        desk.sql("UPDATE holds SET expires_at = :deadline", deadline=deadline)
        before = desk.everything()
        holds.lock(other, HoldId("h"))
        waiting = pool.submit(desk.extend, "h", 1, For(HOUR))
        wait_for_lock(other)
        assert holds.clock(other) < deadline
        wait_until(other, deadline)
        other.rollback()
        answer = waiting.result()
    assert refusal(answer) is Reason.LAPSED
    assert desk.everything() == before


def test_two_extensions_at_once_make_one_version(desk: Desk) -> None:
    placed = desk.placed("h")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda hours: desk.extend("h", 1, For(hours * HOUR)), range(1, 9)))
    done = [answer.hold for answer in answers if isinstance(answer, Done)]
    assert len(done) == 1
    assert [answer.reason for answer in answers if isinstance(answer, Refused)] == [Reason.WRONG_VERSION] * 7
    assert desk.read("h").expires_at == done[0].expires_at > placed.expires_at
    assert desk.count("effects", "kind = 'extended'") == 1
