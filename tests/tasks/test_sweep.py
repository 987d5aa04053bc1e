"""What one tick of the sweep does: claims, publishes, minds its bounds, gives back what the broker did not take."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from db.engine import Database
from domain.identity import cohort
from domain.outcomes import Outcome
from domain.paths import Path
from domain.references import Reference
from domain.sweeping import ClaimPolicy
from tasks.lane import BrokerUnavailable, HereAndNow
from tasks.sweep import sweep
from tests.helpers import POLICY, Desk, fill, whole_second

NO_WAIT = timedelta(0)


class Kept:
    """A lane that keeps what it is handed, and may fail from some message on."""

    def __init__(self, *, fail_from: int | None = None, full_after: int | None = None) -> None:
        self.messages: list[tuple[int | None, Path, list[Reference]]] = []
        self._fail_from, self._full_after = fail_from, full_after

    def depth(self) -> int:
        return 10**6 if len(self.messages) == self._full_after else 0

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:
        if self._fail_from is not None and len(self.messages) >= self._fail_from:
            raise BrokerUnavailable("the broker is not available (test)")
        self.messages.append((run, path, list(references)))


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def overdue(database: Database, count: int, by: timedelta = timedelta(minutes=1)) -> list[Reference]:
    with database.transaction() as tx:
        return fill(tx, [f"h-{n:05}" for n in range(count)], deadline=whole_second(tx, -by))


def spread_deadlines(desk: Desk) -> None:
    """Give each hold a deadline of its own, so that there is one oldest."""
    desk.sql("UPDATE holds SET expires_at = expires_at - interval '1 second' * right(id, 4)::int")
    desk.sql("ANALYZE holds")


def bounds(**changes: int) -> ClaimPolicy:
    known = {name: getattr(POLICY, name) for name in ClaimPolicy.__dataclass_fields__}
    return ClaimPolicy(**known | changes)


def test_all_that_is_due_is_published_in_chunks_and_the_run_says_so(database: Database, desk: Desk) -> None:
    references = overdue(database, 1200)
    lane = Kept()
    swept = sweep(database, Path.SWEEP, POLICY, lane, apart=NO_WAIT)
    assert [len(refs) for _, _, refs in lane.messages] == [500, 500, 200]
    assert sorted(r for _, _, refs in lane.messages for r in refs) == sorted(references)
    assert (swept.claimed, swept.published, swept.error) == (1200, 1200, None)
    assert desk.sql("SELECT id, observed, published, error, finished_at IS NULL FROM sweep_runs") == [
        (swept.run, 1200, 1200, None, False)
    ]


def test_an_idle_tick_leaves_no_run(database: Database, desk: Desk) -> None:
    assert sweep(database, Path.SWEEP, POLICY, Kept(), apart=NO_WAIT).as_data() == {
        "run": None, "claimed": 0, "published": 0, "too_soon": False, "error": None,
    }  # fmt: skip
    assert desk.count("sweep_runs") == 0


def test_a_second_tick_within_half_an_interval_does_nothing(database: Database) -> None:
    overdue(database, 3)
    lane = Kept()
    sweep(database, Path.SWEEP, POLICY, lane, apart=timedelta(seconds=30))
    again = sweep(database, Path.SWEEP, POLICY, lane, apart=timedelta(seconds=30))
    assert again.too_soon
    assert again.run is None
    assert len(lane.messages) == 1


def test_what_the_broker_does_not_take_is_given_back_at_once(database: Database, desk: Desk) -> None:
    overdue(database, 1000)
    swept = sweep(database, Path.SWEEP, POLICY, Kept(fail_from=1), apart=NO_WAIT)
    assert (swept.claimed, swept.published) == (1000, 500)
    assert swept.error == "the broker is not available (test)"
    assert desk.sql("SELECT claims, claimed_until IS NULL, count(*) FROM holds GROUP BY 1, 2 ORDER BY 1") == [
        (0, True, 500), (1, False, 500),
    ]  # fmt: skip
    lane = Kept()
    sweep(database, Path.SWEEP, POLICY, lane, apart=NO_WAIT)
    assert [len(refs) for _, _, refs in lane.messages] == [500]


def test_a_tick_that_raises_does_not_stop_the_next(database: Database, desk: Desk) -> None:
    overdue(database, 10)

    class Broken(Kept):
        def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sweep(database, Path.SWEEP, POLICY, Broken(), apart=NO_WAIT)
    assert desk.sql("SELECT error FROM sweep_runs") == [("the run was cut short",)]
    lane = Kept()
    assert sweep(database, Path.SWEEP, POLICY, lane, apart=NO_WAIT).published == 10


def test_a_full_window_and_a_full_lane_end_the_run(database: Database, desk: Desk) -> None:
    overdue(database, 3000)
    spread_deadlines(desk)
    lane = Kept(full_after=4)
    swept = sweep(database, Path.SWEEP, bounds(window=2000), lane, apart=NO_WAIT)
    assert swept.published == 2000
    assert desk.count("holds", "claimed_until > now()") == 2000


def test_a_run_goes_on_while_workers_empty_the_window(database: Database, desk: Desk) -> None:
    overdue(database, 3000)
    lane = HereAndNow(database, POLICY, "here")
    swept = sweep(database, Path.SWEEP, bounds(window=1000), lane, apart=NO_WAIT)
    assert swept.published == 3000
    assert desk.count("holds", "status = 'expired'") == 3000


def test_a_first_batch_that_cannot_be_applied_does_not_hide_the_rows_behind_it(database: Database, desk: Desk) -> None:
    with database.transaction() as tx:
        fill(tx, [f"bad-{n}" for n in range(5)], deadline=whole_second(tx, timedelta(hours=-2)))
    overdue(database, 20)
    desk.sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (hold_id NOT LIKE 'bad-%')")
    lane = HereAndNow(database, POLICY, "here")
    sweep(database, Path.SWEEP, bounds(batch=5, window=5), lane, apart=NO_WAIT)
    assert desk.count("holds", "status = 'expired' AND id LIKE 'h-%'") == 20
    assert desk.count("holds", "status = 'held' AND id LIKE 'bad-%'") == 5


def test_the_sweep_rescues_what_another_path_has_lost(database: Database, desk: Desk) -> None:
    lost, recent = overdue(database, 2)
    desk.sql("UPDATE cohort_paths SET path = 'infrai'")
    desk.sql("UPDATE cohort_paths SET path = 'sweep' WHERE cohort = :n", n=(cohort(lost.hold_id) + 50) % 100)
    desk.sql("UPDATE holds SET expires_at = expires_at - interval '10 minutes' WHERE id = :id", id=lost.hold_id)
    lane = HereAndNow(database, POLICY, "here")
    sweep(database, Path.SWEEP, POLICY, lane, apart=NO_WAIT)
    assert desk.read(lost.hold_id).status.value == "expired"
    assert desk.read(recent.hold_id).status.value == "held"
    assert desk.sql("SELECT path FROM receipts") == [("rescue",)]


def test_after_an_outage_three_sweepers_and_those_who_place_do_not_hinder_each_other(
    database: Database, desk: Desk
) -> None:
    overdue(database, 6000)
    start = Barrier(4)

    def sweep_all(name: str) -> int:
        lane = HereAndNow(database, POLICY, name)
        start.wait()
        while sweep(database, Path.SWEEP, bounds(batch=250), lane, apart=NO_WAIT).claimed:
            continue
        return lane.tally.counts.get(Outcome.EXPIRED, 0)

    with ThreadPoolExecutor(3) as pool:
        sweepers = [pool.submit(sweep_all, f"sweeper-{number}") for number in range(3)]
        start.wait()
        for number in range(50):
            desk.placed(f"new-{number}")
        assert sum(sweeper.result() for sweeper in sweepers) == 6000
    assert desk.count("holds", "status = 'expired' AND claims = 1") == 6000
    assert desk.count("holds", "id LIKE 'new-%' AND status = 'held'") == 50
    batches = desk.sql("SELECT count(*) AS holds FROM effects WHERE kind = 'expired' GROUP BY receipt")
    assert max(batch.holds for batch in batches) <= 250
