"""Claiming: each due hold by one sweeper, oldest first, for one lease; what is not published is given back."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from sqlalchemy import text

from db import sweeps
from db.engine import Database
from db.sweeps import Idle
from domain.identity import HoldId, cohort
from domain.outcomes import Outcome
from domain.paths import Path
from domain.terms import For
from tests.helpers import GRACE, POLICY, Desk, Sweeper, carrier, fill, whole_second

SECOND = timedelta(seconds=1)


@pytest.fixture
def due(desk: Desk) -> None:
    """Six overdue holds, h0 to h5, the oldest deadline first."""
    for n in range(6):
        desk.overdue(f"h{n}", by=timedelta(seconds=60 - n))


@pytest.mark.usefixtures("due")
def test_a_claim_takes_the_oldest_first_up_to_its_limit_and_says_so_on_the_row(desk: Desk, sweeper: Sweeper) -> None:
    run = sweeper.run()
    claimed = sweeper.claim(run, limit=4)
    assert sorted(claimed.ids) == ["h0", "h1", "h2", "h3"]
    assert claimed.rescued == []
    assert sorted(claimed.own) == sorted(desk.read(name).reference for name in claimed.ids)
    assert desk.sql("SELECT id, claimed_run, claims FROM holds WHERE claimed_until IS NOT NULL ORDER BY id") == [
        (name, run.id, 1) for name in sorted(claimed.ids)
    ]
    assert desk.count("holds", "claimed_until <= now() OR claimed_until > now() + interval '60 s'") == 0
    assert desk.sql("SELECT observed, published FROM sweep_runs") == [(4, 0)]


@pytest.mark.usefixtures("due")
def test_what_is_claimed_is_left_alone_until_the_lease_runs_out(desk: Desk, sweeper: Sweeper) -> None:
    run = sweeper.run()
    assert len(sweeper.claim(run).ids) == 6
    assert sweeper.claim(run).ids == []
    assert sweeper.begin(-SECOND) == Idle()
    desk.sql("UPDATE holds SET claimed_until = now() WHERE id IN ('h1', 'h4')")
    second = sweeper.run()
    assert sorted(sweeper.claim(second).ids) == ["h1", "h4"]
    assert desk.sql("SELECT id, claims, claimed_run FROM holds WHERE claims = 2 ORDER BY id") == [
        ("h1", 2, second.id), ("h4", 2, second.id),
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["confirmed", "cancelled", "expired"])
@pytest.mark.usefixtures("due")
def test_what_is_closed_early_or_set_aside_is_not_claimed(desk: Desk, sweeper: Sweeper, status: str) -> None:
    desk.placed("early", For(timedelta(minutes=1)))
    desk.sql("UPDATE holds SET status = :status, closed_at = now() WHERE id = 'h0'", status=status)
    desk.sql("UPDATE holds SET set_aside = true WHERE id = 'h1'")
    assert sorted(sweeper.claim(sweeper.run()).ids) == ["h2", "h3", "h4", "h5"]


@pytest.mark.usefixtures("due")
def test_two_sweepers_at_once_take_disjoint_sets_without_waiting(database: Database, sweeper: Sweeper) -> None:
    first_run, second_run = sweeper.run(), sweeper.run()
    with database.transaction() as one, database.transaction() as other:
        other.execute(text("SET LOCAL lock_timeout = '100ms'"))
        first = sweeps.claim(one, first_run, Path.SWEEP, POLICY, limit=3)
        second = sweeps.claim(other, second_run, Path.SWEEP, POLICY, limit=100)
    assert sorted(first.ids) == ["h0", "h1", "h2"]
    assert sorted(second.ids) == ["h3", "h4", "h5"]


def test_eight_sweepers_at_once_claim_each_hold_once(desk: Desk, database: Database) -> None:
    with database.transaction() as tx:
        fill(tx, [f"h{n}" for n in range(400)], deadline=whole_second(tx, ahead=-SECOND))
    together = Barrier(8)

    def sweep(_: int) -> list[HoldId]:
        mine = Sweeper(database)
        run = mine.run()
        together.wait()
        taken: list[HoldId] = []
        while batch := mine.claim(run, limit=7).ids:
            taken += batch
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [name for names in pool.map(sweep, range(8)) for name in names]
    assert sorted(taken) == sorted(f"h{n}" for n in range(400))
    assert desk.sql("SELECT DISTINCT claims FROM holds") == [(1,)]
    assert desk.sql("SELECT sum(observed) FROM sweep_runs") == [(400,)]


@pytest.mark.usefixtures("due")
def test_a_stopped_run_claims_nothing_more(desk: Desk, sweeper: Sweeper) -> None:
    run = sweeper.run()
    desk.sql("UPDATE sweep_runs SET error = 'stopped: it would set aside more than 100 holds'")
    assert sweeper.claim(run).ids == []
    assert desk.count("holds", "claims > 0") == 0


@pytest.mark.usefixtures("due")
def test_a_run_that_the_broker_failed_may_still_claim(desk: Desk, sweeper: Sweeper) -> None:
    run = sweeper.run()
    desk.sql("UPDATE sweep_runs SET error = 'the broker is not available'")
    assert len(sweeper.claim(run).ids) == 6


@pytest.mark.usefixtures("due")
def test_a_first_batch_that_cannot_be_applied_does_not_hide_what_is_behind_it(sweeper: Sweeper) -> None:
    run = sweeper.run()
    seen = [sorted(sweeper.claim(run, limit=2).ids) for _ in range(4)]
    assert seen == [["h0", "h1"], ["h2", "h3"], ["h4", "h5"], []]


@pytest.mark.usefixtures("due")
def test_a_claim_changes_no_effect_and_an_unswept_claim_costs_no_hold(desk: Desk, sweeper: Sweeper) -> None:
    """Died between claim and publish: the references still work, from whoever brings them."""
    before = {name: rows for name, rows in desk.everything().items() if name in {"effects", "events", "ledger"}}
    claimed = sweeper.claim(sweeper.run())
    assert before.items() <= desk.everything().items()
    assert desk.expire(*claimed.own, by=carrier(path=Path.SWEEP)) == [Outcome.EXPIRED] * 6


def test_another_paths_cohort_is_left_until_the_grace_time_and_then_rescued(
    desk: Desk, database: Database, sweeper: Sweeper
) -> None:
    hold = desk.overdue("h", by=GRACE - 20 * SECOND)
    desk.sql("UPDATE cohort_paths SET path = 'infrai' WHERE cohort = :cohort", cohort=hold.cohort)
    assert sweeper.begin() == Idle()
    desk.age("h", 22 * SECOND)
    assert Sweeper(database, Path.SCANNER).begin() == Idle()
    claimed = sweeper.claim(sweeper.run())
    assert claimed.own == []
    assert claimed.rescued == [desk.read("h").reference]
    assert desk.sql("SELECT observed FROM sweep_runs") == [(1,)]


def test_a_path_claims_only_its_own_cohorts(desk: Desk, database: Database) -> None:
    names = [HoldId(f"h{n}") for n in range(20)]
    for name in names:
        desk.overdue(name, by=timedelta(hours=1))
    desk.sql("UPDATE cohort_paths SET path = 'scanner' WHERE cohort % 2 = 0")
    scanner = Sweeper(database, Path.SCANNER)
    claimed = scanner.claim(scanner.run())
    assert sorted(claimed.ids) == sorted(name for name in names if cohort(name) % 2 == 0)
    assert claimed.rescued == []


def test_a_claim_is_respected_by_every_path(desk: Desk, database: Database, sweeper: Sweeper) -> None:
    """Moving a cohort costs at most one lease."""
    desk.overdue("h")
    sweeper.claim(sweeper.run())
    desk.sql("UPDATE cohort_paths SET path = 'scanner'")
    scanner = Sweeper(database, Path.SCANNER)
    assert scanner.begin() == Idle()
    desk.sql("UPDATE holds SET claimed_until = now()")
    assert scanner.claim(scanner.run()).ids == ["h"]


@pytest.mark.usefixtures("due")
def test_release_gives_back_what_the_broker_did_not_take(desk: Desk, database: Database, sweeper: Sweeper) -> None:
    run = sweeper.run()
    claimed = sweeper.claim(run)
    with database.transaction() as tx:
        sweeps.release(tx, run, [HoldId("h5"), HoldId("h0")])
    assert desk.sql("SELECT id, claims FROM holds WHERE claimed_until IS NULL ORDER BY id") == [
        ("h0", 0),
        ("h5", 0),
    ]
    assert sorted(sweeper.claim(sweeper.run()).ids) == ["h0", "h5"]
    assert len(claimed.ids) == 6


@pytest.mark.usefixtures("due")
def test_release_leaves_what_another_run_has_claimed_since(desk: Desk, database: Database, sweeper: Sweeper) -> None:
    late = sweeper.run()
    claimed = sweeper.claim(late)
    desk.sql("UPDATE holds SET claimed_until = now() WHERE id = 'h0'")
    sweeper.claim(sweeper.run())
    with database.transaction() as tx:
        sweeps.release(tx, late, claimed.ids)
    assert desk.sql("SELECT id, claims FROM holds WHERE claimed_until IS NOT NULL") == [("h0", 2)]


@pytest.mark.usefixtures("due")
def test_in_flight_counts_claims_that_have_not_run_out_and_never_beyond_the_window(
    desk: Desk, database: Database, sweeper: Sweeper
) -> None:
    sweeper.claim(sweeper.run(), limit=5)
    desk.sql("UPDATE holds SET claimed_until = now() WHERE id = 'h1'")
    desk.sql("UPDATE holds SET set_aside = true WHERE id = 'h2'")
    with database.transaction() as tx:
        assert sweeps.in_flight(tx, 10_000) == 3
        assert sweeps.in_flight(tx, 2) == 1
        assert sweeps.in_flight(tx, 3) == 2


@pytest.mark.usefixtures("due")
def test_a_run_adds_up_what_it_published_and_keeps_its_first_error(
    desk: Desk, database: Database, sweeper: Sweeper
) -> None:
    run = sweeper.run()
    with database.transaction() as tx:
        sweeps.published(tx, run, 500)
        sweeps.published(tx, run, 17)
    with database.transaction() as tx:
        sweeps.finish(tx, run, "the broker did not answer")
    with database.transaction() as tx:
        sweeps.finish(tx, run)
    assert desk.sql("SELECT published, error, finished_at >= started_at FROM sweep_runs") == [
        (517, "the broker did not answer", True)
    ]
