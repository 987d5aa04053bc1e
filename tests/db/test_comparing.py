"""Cohorts held against the rows: what was left undone, by which path, how late, and whether to move."""

from datetime import timedelta

import pytest

from db import comparing
from db.engine import Database
from domain.cohorts import Compared
from domain.holds import Hold
from domain.outcomes import Outcome
from domain.paths import Path
from tests.helpers import GRACE, Desk, carrier

DAY = timedelta(days=1)


def compare(database: Database, hold: Hold) -> Compared:
    with database.transaction() as tx:
        comparing.one_snapshot(tx)
        [found] = comparing.compare(tx, [hold.cohort], since=DAY)
    return found


def expired(desk: Desk, hold: str, path: Path | None = Path.SWEEP, *, late: int = 1) -> Hold:
    """A hold of two hours that this path expired so many seconds after its deadline."""
    placed = desk.overdue(hold, by=timedelta(seconds=late))
    now = placed.expires_at + timedelta(seconds=late)
    assert desk.expire(placed.reference, by=carrier(path=path), now=now) == [Outcome.EXPIRED]
    return placed


def test_a_cohort_whose_holds_expire_in_time_is_safe_to_move(desk: Desk, database: Database) -> None:
    hold = expired(desk, "h", late=3)
    found = compare(database, hold)
    assert found.unsafe(GRACE) == []
    [carried] = found.carried
    three = timedelta(seconds=3)
    assert (carried.path, carried.expired, carried.p50, carried.p99, carried.lost) == ("sweep", 1, three, three, 0)


def test_where_nothing_expired_nothing_is_known(desk: Desk, database: Database) -> None:
    found = compare(database, desk.placed("h"))
    assert (found.held, found.overdue, found.carried) == (1, 0, ())
    assert found.unsafe(GRACE) == ["nothing expired in this time, so nothing is known"]


@pytest.mark.parametrize(("by", "unsafe"), [(timedelta(seconds=60), False), (GRACE + timedelta(seconds=5), True)])
def test_overdue_holds_are_counted_and_are_a_reason_beyond_the_grace_time(
    desk: Desk, database: Database, by: timedelta, *, unsafe: bool
) -> None:
    hold = expired(desk, "h")
    desk.sql("UPDATE holds SET cohort = :cohort", cohort=hold.cohort)
    desk.overdue("late", by=by)
    desk.sql("UPDATE holds SET cohort = :cohort", cohort=hold.cohort)
    found = compare(database, hold)
    assert found.overdue == 1
    assert found.unsafe(GRACE) == (["1 overdue, the oldest by more than the grace time"] if unsafe else [])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DELETE FROM effects WHERE kind = 'expired'", "1 expired without an effect"),
        ("DELETE FROM events WHERE type = 'reservation.expired'", "1 effects without an event"),
    ],
)
def test_what_is_missing_is_counted_and_is_a_reason(desk: Desk, database: Database, damage: str, reason: str) -> None:
    hold = expired(desk, "h")
    desk.sql(damage)
    assert reason in compare(database, hold).unsafe(GRACE)


def test_a_rescue_counts_against_the_path_that_drove_the_cohort_then(desk: Desk, database: Database) -> None:
    hold = desk.overdue("h", by=GRACE * 2)
    desk.sql("UPDATE cohort_paths SET path = 'infrai', routed_at = now() - interval '1 hour', bridged_at = now()")
    assert desk.expire(hold.reference, by=carrier(path=Path.RESCUE, run=1)) == [Outcome.EXPIRED]
    [carried] = compare(database, hold).carried
    assert (carried.path, carried.expired, carried.lost) == ("infrai", 0, 1)
    assert "1 had to be rescued" in compare(database, hold).unsafe(GRACE)
    desk.sql("UPDATE cohort_paths SET path = 'sweep', came_from = 'infrai', routed_at = now()")
    assert [one.path for one in compare(database, hold).carried] == ["infrai"]


def test_what_references_came_to_is_told_by_path_and_cohort(desk: Desk, database: Database) -> None:
    hold = expired(desk, "h", Path.SWEEP)
    desk.sql("UPDATE cohort_paths SET path = 'infrai', bridged_at = now(), routed_at = now()")
    desk.expire(hold.reference, hold.reference, by=carrier(path=Path.INFRAI))
    found = {one.path: one.outcomes for one in compare(database, hold).carried}
    assert found == {"sweep": {}, "infrai": {Outcome.DUPLICATE: 2}}
    assert compare(database, hold).unsafe(GRACE) == []


def test_a_cohort_that_is_not_all_bridged_is_not_safe(desk: Desk, database: Database) -> None:
    hold = expired(desk, "h")
    desk.sql("UPDATE cohort_paths SET path = 'infrai', routed_at = now()")
    assert compare(database, hold).unsafe(GRACE) == ["not all messages are written: route it again"]


def test_what_was_imported_and_what_is_older_is_not_counted(desk: Desk, database: Database) -> None:
    hold = expired(desk, "h")
    desk.sql("UPDATE holds SET closed_at = now() - interval '2 days'")
    assert compare(database, hold).carried == ()
