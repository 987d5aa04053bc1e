"""Moving cohorts between paths: nothing lacks its message, nothing in flight is lost, two moves never mix."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from db import cohorts, holds, pruning, reconcile
from db.cohorts import Moved, RoutingUnderWay, SomebodyWritesStill
from db.engine import Database
from db.importing import prepare, take
from domain.cohorts import format_cohorts, parse_cohorts
from domain.errors import BadInput
from domain.identity import HoldId
from domain.importing import read_hold
from domain.outcomes import Outcome
from domain.paths import Path
from domain.terms import For, Until
from tests.helpers import TWO_HOURS, Desk, Sweeper, carrier, terms, whole_second

ALL = range(100)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)


def messages(desk: Desk) -> list[tuple[Any, ...]]:
    rows = desk.sql("""SELECT hold_id, version, try, CAST(extract(epoch FROM expires_at - publish_at) AS integer)
                       FROM bridge_messages ORDER BY hold_id, version, try""")
    return [tuple(row) for row in rows]


def violations(database: Database) -> list[str]:
    with database.transaction() as tx:
        return [violation.check for violation in reconcile.violations(tx)]


class TestWriting:
    """A message is written with the change, for cohorts on the bridge only."""

    @pytest.fixture
    def bridged(self, desk: Desk) -> Desk:
        desk.sql("UPDATE cohort_paths SET path = 'infrai', routed_at = now(), bridged_at = now()")
        return desk

    def test_a_hold_of_another_path_has_no_message(self, desk: Desk) -> None:
        desk.placed("h")
        desk.extend("h", 1, For(DAY))
        assert messages(desk) == []

    def test_a_hold_is_to_be_published_seven_days_before_its_deadline_or_at_once(
        self, bridged: Desk, database: Database
    ) -> None:
        with database.transaction() as tx:
            now = whole_second(tx)
        bridged.placed("far", Until(now + 30 * DAY))
        bridged.placed("near", Until(now + DAY))
        assert messages(bridged)[0] == ("far", 1, 1, 604_800)
        [(_, _, _, ahead)] = messages(bridged)[1:]
        assert 86_390 <= ahead <= 86_400
        assert violations(database) == []

    def test_each_version_has_its_own_and_closing_writes_none(self, bridged: Desk, database: Database) -> None:
        bridged.placed("h", For(30 * DAY))
        bridged.extend("h", 1, For(DAY))
        bridged.confirm("h", 2)
        assert messages(bridged) == [("h", 1, 1, 604_800), ("h", 2, 1, 604_800)]
        assert violations(database) == []

    def test_what_is_rolled_back_leaves_none(self, bridged: Desk, database: Database) -> None:
        with database.engine.connect() as tx:
            holds.place(tx, HoldId("h"), terms(), carrier())
            tx.rollback()
        assert messages(bridged) == []

    def test_imported_holds_have_theirs_and_closed_ones_none(self, bridged: Desk, database: Database) -> None:
        lines: list[dict[str, Any]] = [
            {"id": "far", "expires_at": "2030-01-01T00:00:00Z", "version": 3},
            {"id": "overdue", "placed_at": "2025-01-01T00:00:00Z", "expires_at": "2025-01-02T00:00:00Z"},
            {"id": "gone", "placed_at": "2025-01-01T00:00:00Z", "expires_at": "2025-01-02T00:00:00Z",
             "status": "cancelled", "closed_at": "2025-01-01T12:00:00Z"},
        ]  # fmt: skip
        with database.transaction() as tx:
            now = whole_second(tx)
            read = [
                read_hold(number, {"resource": "s", "customer": "c", **line}, now) for number, line in enumerate(lines)
            ]
            take(tx, prepare(read, emit=False))
        assert messages(bridged)[0] == ("far", 3, 1, 604_800)
        assert [row[:3] for row in messages(bridged)] == [("far", 3, 1), ("overdue", 1, 1)]
        assert violations(database) == []

    def test_a_pruned_hold_takes_its_messages_with_it(self, bridged: Desk, database: Database) -> None:
        bridged.placed("gone")
        bridged.cancel("gone")
        bridged.placed("stays")
        bridged.sql("UPDATE holds SET closed_at = now() - interval '2 days' WHERE id = 'gone'")
        assert pruning.prune(database, older_than=DAY).holds == 1
        assert [row[0] for row in messages(bridged)] == ["stays"]

    def test_reconcile_names_a_hold_without_its_message_and_a_message_with_a_wrong_deadline(
        self, bridged: Desk, database: Database
    ) -> None:
        bridged.placed("a")
        bridged.placed("b")
        bridged.sql("DELETE FROM bridge_messages WHERE hold_id = 'a'")
        bridged.sql("UPDATE bridge_messages SET expires_at = expires_at + interval '1 s' WHERE hold_id = 'b'")
        assert violations(database) == ["bridge-message", "bridge-deadline"]


class TestRouting:
    """One command moves, the same again finishes, and the other way takes back."""

    def test_holds_there_already_get_their_messages_and_the_same_again_writes_none(
        self, desk: Desk, database: Database
    ) -> None:
        hold = desk.placed("h", For(30 * DAY))
        desk.placed("gone")
        desk.cancel("gone")
        other = (hold.cohort + 1) % 100
        assert cohorts.route(database, [other], Path.INFRAI) == Moved({other: Path.SWEEP}, written=0)
        assert cohorts.route(database, [hold.cohort], Path.INFRAI) == Moved({hold.cohort: Path.SWEEP}, written=1)
        assert messages(desk) == [("h", 1, 1, 604_800)]
        assert cohorts.route(database, [hold.cohort], Path.INFRAI) == Moved({}, written=0)
        with database.transaction() as tx:
            [routing] = [one for one in cohorts.routings(tx) if one.cohort == hold.cohort]
        assert (routing.path, routing.came_from, routing.bridged) == (Path.INFRAI, Path.SWEEP, True)
        assert violations(database) == []

    def test_many_holds_are_written_in_bounded_batches(
        self, desk: Desk, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cohorts, "BATCH", 3)
        for number in range(10):
            desk.placed(f"h{number}")
        assert cohorts.route(database, ALL, Path.INFRAI).written == 10
        assert desk.count("bridge_messages") == 10

    def test_routing_back_drops_what_nobody_needs_and_the_sweep_expires_the_hold(
        self, desk: Desk, database: Database
    ) -> None:
        hold = desk.overdue("h")
        cohorts.route(database, ALL, Path.INFRAI)
        sweeper = Sweeper(database)
        assert type(sweeper.begin()).__name__ == "Idle"
        assert cohorts.route(database, ALL, Path.SWEEP) == Moved(dict.fromkeys(ALL, Path.INFRAI), dropped=1)
        assert messages(desk) == []
        assert sweeper.claim(sweeper.run()).own == [hold.reference]

    def test_a_message_of_the_path_that_was_is_elsewhere_and_the_claim_runs_out(
        self, desk: Desk, database: Database
    ) -> None:
        hold = desk.overdue("h")
        sweeper = Sweeper(database)
        run = sweeper.run()
        assert sweeper.claim(run).ids == ["h"]
        cohorts.route(database, ALL, Path.SCANNER)
        assert desk.expire(hold.reference, by=carrier(path=Path.SWEEP, run=run.id)) == [Outcome.ELSEWHERE]
        scanner = Sweeper(database, Path.SCANNER)
        assert type(scanner.begin()).__name__ == "Idle"  # the claim is respected
        desk.sql("UPDATE holds SET claimed_until = now()")
        assert scanner.claim(scanner.run()).own == [hold.reference]
        assert desk.expire(hold.reference, by=carrier(path=Path.SCANNER)) == [Outcome.EXPIRED]

    def test_what_was_published_before_the_cohort_came_back_is_published_once_more(
        self, desk: Desk, database: Database
    ) -> None:
        desk.placed("h", For(30 * DAY))
        cohorts.route(database, ALL, Path.INFRAI)
        desk.sql(
            "UPDATE bridge_messages SET batch = 'b', batch_at = now(), claimed_until = now(), published_at = now()"
        )
        cohorts.route(database, ALL, Path.SWEEP)
        assert cohorts.route(database, ALL, Path.INFRAI).written == 1
        assert [row[:3] for row in messages(desk)] == [("h", 1, 1), ("h", 1, 2)]
        assert cohorts.route(database, ALL, Path.INFRAI).written == 0
        assert violations(database) == []

    def test_two_at_once_are_refused_and_change_nothing(self, desk: Desk, database: Database) -> None:
        with database.session() as session, cohorts._alone(session):
            before = desk.everything()
            with pytest.raises(RoutingUnderWay):
                cohorts.route(database, ALL, Path.INFRAI)
            assert desk.everything() == before
        assert cohorts.route(database, [1], Path.INFRAI).cohorts == {1: Path.SWEEP}


class TestBesideWriters:
    """A hold that is being placed while its cohort is routed."""

    @contextmanager
    def placing(self, database: Database) -> Iterator[None]:
        """A hold placed by a transaction that still saw the old path, and that commits at the end."""
        with database.transaction() as tx:
            holds.place(tx, HoldId("h"), terms(), carrier())
            yield

    def test_it_has_its_message_whichever_comes_first(self, desk: Desk, database: Database) -> None:
        with ThreadPoolExecutor(1) as pool:
            with self.placing(database):
                routing = pool.submit(cohorts.route, database, ALL, Path.INFRAI)
                with database.transaction() as watcher:
                    moved = text("SELECT count(*) FROM cohort_paths WHERE path = 'infrai'")
                    for _ in range(1000):
                        if watcher.execute(moved).scalar_one() == 100:
                            break
                        watcher.execute(text("SELECT pg_sleep(0.005)"))
                assert not routing.done()
                assert messages(desk) == []
            assert routing.result().written == 1
        assert [row[:3] for row in messages(desk)] == [("h", 1, 1)]
        assert violations(database) == []

    def test_one_that_stays_open_is_named_and_the_same_command_finishes(self, desk: Desk, database: Database) -> None:
        with self.placing(database), pytest.raises(SomebodyWritesStill, match="the same command again"):
            cohorts.route(database, ALL, Path.INFRAI, patience=timedelta(milliseconds=100))
        with database.transaction() as tx:
            assert cohorts.unbridged(tx) == list(ALL)
        assert violations(database) == []  # a cohort that is being routed raises no false alarm
        assert cohorts.route(database, ALL, Path.INFRAI) == Moved({}, written=1)
        with database.transaction() as tx:
            assert cohorts.unbridged(tx) == []

    def test_many_placing_while_cohorts_move_to_and_fro(self, desk: Desk, database: Database) -> None:
        """Four writers and a router, 20 moves: each held hold has its message in the end."""

        def write(writer: int) -> None:
            for number in range(40):
                desk.place(f"w{writer}-{number}", TWO_HOURS)
                if number % 3 == 0:
                    desk.extend(f"w{writer}-{number}", 1, For(DAY))

        with ThreadPoolExecutor(4) as pool:
            writing = [pool.submit(write, writer) for writer in range(4)]
            for move in range(20):
                cohorts.route(database, ALL, Path.SWEEP if move % 2 else Path.INFRAI)
            for one in writing:
                one.result()
        cohorts.route(database, ALL, Path.INFRAI)
        assert desk.count("holds") == 160
        assert violations(database) == []


@pytest.mark.parametrize(
    ("raw", "found"),
    [("7", [7]), ("0-2", [0, 1, 2]), ("5,0-1,5", [0, 1, 5]), ("all", list(ALL)), (" 3 , 4", [3, 4]), ("99", [99])],
)
def test_cohorts_are_named_alone_in_ranges_or_all(raw: str, found: list[int]) -> None:
    assert parse_cohorts(raw) == found
    assert parse_cohorts(format_cohorts(found)) == found


@pytest.mark.parametrize("raw", ["", "100", "9-0", "-1", "1-", "a", "0--9", "0-9-10", "1;2", "٣"])
def test_anything_else_names_none(raw: str) -> None:
    with pytest.raises(BadInput):
        parse_cohorts(raw)


def test_cohorts_are_told_as_short_as_they_can() -> None:
    assert format_cohorts([3, 1, 2, 9, 50, 51]) == "1-3,9,50-51"
