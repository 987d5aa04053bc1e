"""Holds that fail alone: postponed, then set aside; a run that would set aside too many stops."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from db import dead_letters
from db.dead_letters import DISCARDED, FailedAlone, Postponed, RunStopped, SetAside
from db.engine import Database
from domain.holds import Hold
from domain.outcomes import Outcome
from domain.references import Reference
from domain.terms import For
from tests.helpers import POLICY, Desk

LIMITED = replace(POLICY, set_aside_limit=2)


@pytest.fixture
def run(desk: Desk) -> int:
    """A sweep run on record."""
    return int(desk.sql("INSERT INTO sweep_runs (sweep, started_at) VALUES ('expiry:sweep', now()) RETURNING id")[0][0])


def claimed(desk: Desk, hold: str, claims: int) -> Hold:
    """An overdue hold that sweeps have claimed this often."""
    desk.overdue(hold, amount=1250, currency="EUR")
    desk.sql("UPDATE holds SET claims = :claims WHERE id = :id", claims=claims, id=hold)
    return desk.read(hold)


def fail(
    database: Database, hold: Hold | Reference, run: int | None, error: str = "numeric field overflow"
) -> FailedAlone:
    reference = hold.reference if isinstance(hold, Hold) else hold
    with database.transaction() as tx:
        return dead_letters.fail_alone(tx, reference, error, LIMITED, run=run)


@pytest.mark.parametrize(("claims", "lease"), [(1, 120), (2, 240), (3, 480), (10, 61_440), (11, 86_400), (40, 86_400)])
def test_a_hold_that_fails_alone_is_postponed_longer_each_time_and_a_day_at_most(
    desk: Desk, database: Database, run: int, claims: int, lease: int
) -> None:
    hold = claimed(desk, "h", claims)
    before = desk.sql("SELECT clock_timestamp() AS at")[0].at
    fail(database, hold, run)
    [(until,)] = desk.sql("SELECT claimed_until FROM holds")
    assert timedelta(0) <= until - before - timedelta(seconds=lease) < timedelta(seconds=5)


def test_before_its_third_claim_it_is_not_set_aside(desk: Desk, database: Database, run: int) -> None:
    for claims in (1, 2):
        hold = claimed(desk, f"h{claims}", claims)
        assert fail(database, hold, run) == Postponed()
    assert desk.count("holds", "set_aside") == 0
    assert desk.count("dead_letters") == 0


def test_on_its_third_claim_it_is_set_aside_with_its_dead_letter(desk: Desk, database: Database, run: int) -> None:
    hold = claimed(desk, "h", 3)
    answer = fail(database, hold, run, error="x" * 600)
    assert isinstance(answer, SetAside)
    assert desk.read("h").set_aside
    with database.transaction() as tx:
        letter = dead_letters.get(tx, answer.dead_letter)
    assert letter is not None
    assert letter == dead_letters.DeadLetter(
        id=answer.dead_letter,
        key=f"expiry:{hold.reference.job_id}",
        kind="expiry",
        reference=hold.reference.as_data(),
        hold_id="h",
        sweep_run=run,
        error="x" * 500,
        attempts=3,
        created_at=letter.created_at,
        replayed_at=None,
        replayed_by=None,
        outcome=None,
    )


def test_what_is_set_aside_counts_no_more_than_before_and_is_not_failed_again(
    desk: Desk, database: Database, run: int
) -> None:
    hold = claimed(desk, "h", 3)
    fail(database, hold, run)
    before = desk.everything()
    assert fail(database, hold, run) == Postponed()
    assert desk.everything() == before


def test_a_hold_that_has_moved_on_is_neither_postponed_nor_set_aside(desk: Desk, database: Database, run: int) -> None:
    expired = claimed(desk, "expired", 3)
    desk.expire(expired.reference)
    desk.placed("extended")
    desk.sql("UPDATE holds SET claims = 3 WHERE id = 'extended'")
    old = desk.read("extended")
    desk.extend("extended", 1, For(timedelta(hours=1)))
    before = desk.everything()
    assert fail(database, expired, run) == Postponed()
    assert fail(database, old, run) == Postponed()
    assert desk.everything() == before


def test_a_run_sets_aside_up_to_its_limit_and_then_stops(desk: Desk, database: Database, run: int) -> None:
    holds = [claimed(desk, f"h{n}", 3) for n in range(3)]
    assert [type(fail(database, hold, run)) for hold in holds] == [SetAside, SetAside, RunStopped]
    assert desk.sql("SELECT id FROM holds WHERE set_aside ORDER BY id") == [("h0",), ("h1",)]
    assert desk.sql("SELECT error FROM sweep_runs") == [("stopped: it would set aside more than 2 holds",)]
    assert desk.count("dead_letters") == 2
    with database.transaction() as tx:
        assert dead_letters.is_stopped(tx, run)


def test_a_stopped_runs_hold_is_left_to_a_later_run(desk: Desk, database: Database, run: int) -> None:
    holds = [claimed(desk, f"h{n}", 3) for n in range(3)]
    for hold in holds:
        fail(database, hold, run)
    [(later,)] = desk.sql("INSERT INTO sweep_runs (sweep, started_at) VALUES ('expiry:sweep', now()) RETURNING id")
    assert isinstance(fail(database, holds[2], later), SetAside)
    with database.transaction() as tx:
        assert not dead_letters.is_stopped(tx, later)


def test_many_at_once_do_not_pass_the_limit_of_a_run(desk: Desk, database: Database, run: int) -> None:
    holds = [claimed(desk, f"h{n}", 3) for n in range(8)]
    together = Barrier(8)

    def failing(hold: Hold) -> FailedAlone:
        together.wait()
        return fail(database, hold, run)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(failing, holds))
    assert sum(isinstance(answer, SetAside) for answer in answers) == 2
    assert answers.count(RunStopped()) == 6
    assert desk.count("holds", "set_aside") == desk.count("dead_letters") == 2


def test_one_hold_failing_in_two_places_at_once_has_one_dead_letter(desk: Desk, database: Database, run: int) -> None:
    hold = claimed(desk, "h", 3)
    together = Barrier(2)

    def failing(_: int) -> FailedAlone:
        together.wait()
        return fail(database, hold, run)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(failing, range(2)))
    assert sorted(type(answer).__name__ for answer in answers) == ["Postponed", "SetAside"]
    assert desk.count("dead_letters") == 1


def test_one_bad_row_among_a_hundred_leaves_ninety_nine_done(desk: Desk, database: Database, run: int) -> None:
    bad = claimed(desk, "bad", 3)
    good = [desk.overdue(f"h{n}").reference for n in range(99)]
    assert isinstance(fail(database, bad, run), SetAside)
    assert desk.expire(*good) == [Outcome.EXPIRED] * 99
    assert desk.count("holds", "status = 'held'") == 1


def test_an_operators_hand_has_no_limit(desk: Desk, database: Database) -> None:
    holds = [claimed(desk, f"h{n}", 3) for n in range(3)]
    assert [type(fail(database, hold, None)) for hold in holds] == [SetAside] * 3


def test_the_same_command_again_counts_an_attempt_and_opens_its_dead_letter_anew(
    desk: Desk, database: Database, run: int
) -> None:
    with database.transaction() as tx:
        first = dead_letters.bury(tx, "apply:7", "reference", {"job_id": 7}, "job_id: must be a text")
        letter = dead_letters.get(tx, first, lock=True)
        assert letter is not None
        dead_letters.settle(tx, letter, Outcome.MISSING, "ada")
    assert desk.sql("SELECT replayed_by, outcome, replayed_at IS NOT NULL FROM dead_letters") == [
        ("ada", "missing", True)
    ]
    with database.transaction() as tx:
        assert dead_letters.bury(tx, "apply:7", "reference", {"job_id": 7}, "again", run=run) == first
    assert desk.sql("SELECT attempts, error, sweep_run, replayed_at, replayed_by, outcome FROM dead_letters") == [
        (2, "again", run, None, None, None)
    ]


def test_a_settled_hold_comes_back_to_the_sweep(desk: Desk, database: Database, run: int) -> None:
    answer = fail(database, claimed(desk, "h", 3), run)
    assert isinstance(answer, SetAside)
    with database.transaction() as tx:
        letter = dead_letters.get(tx, answer.dead_letter)
        assert letter is not None
        dead_letters.settle(tx, letter, DISCARDED, "ada")
    assert desk.sql("SELECT set_aside, claims, claimed_until FROM holds") == [(False, 0, None)]
    assert desk.sql("SELECT outcome, replayed_by FROM dead_letters") == [("discarded", "ada")]


def test_a_replay_that_fails_leaves_the_dead_letter_open(desk: Desk, database: Database, run: int) -> None:
    answer = fail(database, claimed(desk, "h", 3), run)
    assert isinstance(answer, SetAside)
    with database.transaction() as tx:
        dead_letters.still_failing(tx, answer.dead_letter, "still " * 200)
    assert desk.sql("SELECT attempts, length(error), replayed_at FROM dead_letters") == [(4, 500, None)]
    assert desk.read("h").set_aside


def test_the_newest_open_dead_letters_are_listed_first(desk: Desk, database: Database) -> None:
    with database.transaction() as tx:
        ids = [dead_letters.bury(tx, f"k{n}", "reference", {}, "bad") for n in range(4)]
        settled = dead_letters.get(tx, ids[2])
        assert settled is not None
        dead_letters.settle(tx, settled, Outcome.STALE, "ada")
    with database.transaction() as tx:
        assert [d.id for d in dead_letters.listing(tx, replayed=False, limit=10)] == [ids[3], ids[1], ids[0]]
        assert [d.id for d in dead_letters.listing(tx, replayed=True, limit=2)] == [ids[3], ids[2]]
        assert dead_letters.get(tx, ids[3] + 1) is None
