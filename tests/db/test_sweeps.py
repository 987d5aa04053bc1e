"""Beginning a tick: one at a time, never too soon after another, never silenced."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from db import sweeps
from db.engine import Database
from db.sweeps import Idle, Run, TooSoon
from domain.paths import Path
from tests.helpers import HALF_A_SECOND, POLICY, Desk, Sweeper, wait_for_lock


def test_an_idle_tick_updates_the_sweeps_row_and_writes_no_run(desk: Desk, sweeper: Sweeper) -> None:
    desk.placed("live")
    before = desk.everything()
    assert sweeper.begin() == Idle()
    after = desk.everything()
    [(name, _, ticks, last_run)] = after.pop("sweeps")
    assert (name, ticks, last_run) == ("expiry:sweep", 1, None)
    assert before.pop("sweeps") == []
    assert after == before
    assert after["sweep_runs"] == []


def test_a_tick_that_sees_something_due_opens_a_run(desk: Desk, sweeper: Sweeper) -> None:
    desk.overdue("h")
    run = sweeper.begin()
    assert isinstance(run, Run)
    assert desk.sql("SELECT id, sweep, finished_at, observed, published, error FROM sweep_runs") == [
        (run.id, "expiry:sweep", None, 0, 0, None)
    ]
    assert desk.sql("SELECT last_run FROM sweeps") == [(run.id,)]


def test_a_second_tick_within_half_an_interval_changes_nothing(desk: Desk, sweeper: Sweeper) -> None:
    desk.overdue("h")
    sweeper.begin(timedelta(hours=1))
    before = desk.everything()
    for _ in range(5):
        assert sweeper.begin(timedelta(hours=1)) == TooSoon()
    assert desk.everything() == before


def test_the_next_tick_runs_once_half_an_interval_has_passed(desk: Desk, sweeper: Sweeper) -> None:
    sweeper.begin(timedelta(hours=1))
    desk.sql("UPDATE sweeps SET began_at = began_at - interval '1 hour'")
    assert sweeper.begin(timedelta(hours=1)) == Idle()
    assert desk.sql("SELECT ticks FROM sweeps") == [(2,)]


def test_a_clock_set_back_does_not_silence_the_sweep(desk: Desk, sweeper: Sweeper) -> None:
    """A beginning that lies in the future counts as none."""
    sweeper.begin()
    desk.sql("UPDATE sweeps SET began_at = clock_timestamp() + interval '10 minutes'")
    assert sweeper.begin() == Idle()
    assert desk.sql("SELECT began_at <= clock_timestamp(), ticks FROM sweeps") == [(True, 2)]


@pytest.mark.parametrize("first_ever", [True, False])
def test_of_two_beats_at_once_exactly_one_tick_proceeds(desk: Desk, sweeper: Sweeper, *, first_ever: bool) -> None:
    desk.overdue("h")
    if not first_ever:
        sweeper.begin()
        desk.sql("UPDATE sweeps SET began_at = began_at - interval '2 hours'")
    runs = desk.count("sweep_runs")
    together = Barrier(8)

    def tick(_: int) -> TooSoon | Idle | Run:
        together.wait()
        return sweeper.begin(timedelta(hours=1))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(tick, range(8)))
    assert sum(isinstance(answer, Run) for answer in answers) == 1
    assert answers.count(TooSoon()) == 7
    assert desk.count("sweep_runs") == runs + 1


def test_a_tick_whose_beginner_died_before_its_commit_is_taken_by_the_next(
    desk: Desk, database: Database, sweeper: Sweeper
) -> None:
    desk.overdue("h")
    with database.transaction() as dying, ThreadPoolExecutor(1) as pool:
        assert isinstance(sweeps.begin(dying, Path.SWEEP, POLICY, apart=HALF_A_SECOND), Run)
        waiting = pool.submit(sweeper.begin)
        wait_for_lock(dying)
        dying.rollback()
        assert isinstance(waiting.result(), Run)
    assert desk.count("sweep_runs") == 1


def test_a_sweep_that_raised_begins_again_at_the_next_tick(desk: Desk, sweeper: Sweeper) -> None:
    """Nothing of a failed tick stands in the way of the next."""
    desk.overdue("h")
    with pytest.raises(RuntimeError), sweeper.database.transaction() as tx:  # noqa: PT012 - the tick dies inside
        sweeps.begin(tx, Path.SWEEP, POLICY, apart=HALF_A_SECOND)
        raise RuntimeError("tick 3")
    assert isinstance(sweeper.begin(), Run)


def test_each_path_has_its_own_sweep(desk: Desk, database: Database, sweeper: Sweeper) -> None:
    assert sweeper.begin(timedelta(hours=1)) == Idle()
    assert Sweeper(database, Path.SCANNER).begin(timedelta(hours=1)) == Idle()
    assert desk.sql("SELECT name FROM sweeps ORDER BY name") == [("expiry:scanner",), ("expiry:sweep",)]
