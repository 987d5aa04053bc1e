"""Pruning: what ended long ago goes whole, what is still needed stays, the ledger stays for ever."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from db import pruning, reconcile
from db.engine import by_index
from db.pruning import Pruned, prune, steps
from domain.terms import For
from tests.helpers import Desk, whole_second
from tests.histories import EUR, set_aside, settle, sweep, take

YEAR = timedelta(days=365)
OLD: dict[str, Any] = {
    "placed_at": "2020-01-01T00:00:00Z", "expires_at": "2020-01-02T00:00:00Z", "status": "confirmed",
}  # fmt: skip


def now(desk: Desk) -> datetime:
    with desk.database.transaction() as tx:
        return whole_second(tx, timedelta(seconds=1))


def all_closed(desk: Desk) -> Pruned:
    """Prune whatever is closed, however lately."""
    total = Pruned()
    for step in steps(desk.database, now(desk)):
        total += step
    return total


def names(desk: Desk, query: str) -> list[Any]:
    return [row[0] for row in desk.sql(query)]


def violations(desk: Desk) -> list[object]:
    with desk.database.transaction() as tx:
        return list(reconcile.violations(tx))


def test_a_closed_hold_goes_with_all_its_effects_and_events_and_leaves_its_ledger(desk: Desk) -> None:
    desk.placed("a", amount=500, **EUR)
    desk.extend("a", 1, For(timedelta(hours=1)))
    desk.extend("a", 2, For(timedelta(hours=1)))
    desk.confirm("a", 3)
    ledger = desk.everything()["ledger"]
    assert all_closed(desk) == Pruned(looked_at=1, holds=1, effects=4, events=4)
    assert (desk.count("holds"), desk.count("effects"), desk.count("events")) == (0, 0, 0)
    assert desk.everything()["ledger"] == ledger
    assert desk.sql("SELECT sum(amount) FROM ledger")[0][0] == 0
    assert violations(desk) == []


def test_a_held_hold_stays_however_old(desk: Desk) -> None:
    desk.overdue("a", by=timedelta(days=4000))
    before = desk.everything()
    assert all_closed(desk) == Pruned(looked_at=1)
    assert desk.everything() == before


def test_a_hold_closed_within_the_time_kept_stays_whole(desk: Desk) -> None:
    desk.placed("young", amount=1, **EUR)
    desk.cancel("young")
    before = desk.everything()
    assert prune(desk.database, older_than=YEAR) == Pruned(looked_at=1)
    assert desk.everything() == before


def test_age_is_counted_from_the_closing_by_the_databases_clock(desk: Desk) -> None:
    take(desk, {"id": "a", **OLD})
    assert prune(desk.database, older_than=timedelta(days=100 * 365)).holds == 0
    assert prune(desk.database, older_than=YEAR) == Pruned(looked_at=1, holds=1, effects=2)


def test_an_imported_hold_of_a_high_version_is_pruned_as_fast_as_any(desk: Desk) -> None:
    take(desk, {"id": "a", **OLD, "version": 1_000_000_000}, emit=True)
    assert prune(desk.database, older_than=YEAR) == Pruned(looked_at=1, holds=1, effects=2, events=2)
    assert (desk.count("effects"), desk.count("events")) == (0, 0)


def test_receipts_and_runs_go_with_the_holds_they_expired(desk: Desk) -> None:
    desk.overdue("a", amount=100, **EUR)
    first = sweep(desk)
    desk.overdue("b")
    last = sweep(desk)
    assert all_closed(desk) == Pruned(looked_at=2, holds=2, effects=4, events=4, receipts=2, sweep_runs=1)
    assert first != last
    assert names(desk, "SELECT id FROM sweep_runs") == [last]
    assert violations(desk) == []


def test_a_run_stays_while_a_hold_a_receipt_or_a_dead_letter_names_it(desk: Desk) -> None:
    desk.overdue("claimed")
    claimed, received, buried, unneeded = (
        desk.sql("""INSERT INTO sweep_runs (sweep, started_at, finished_at)
                    VALUES ('expiry:sweep', '2020-01-01Z', '2020-01-01Z') RETURNING id""")[0][0]
        for _ in range(4)
    )
    set_aside(desk, "claimed")
    desk.sql("UPDATE holds SET claimed_run = :run", run=claimed)
    desk.sql(
        """INSERT INTO receipts (message_id, sweep_run, retries, redelivered, worker, tally, at)
           VALUES ('m', :run, 0, false, 'w', '{}', now())""",
        run=received,
    )
    desk.sql("UPDATE dead_letters SET sweep_run = :run", run=buried)
    letters = desk.everything()["dead_letters"]
    assert prune(desk.database, older_than=YEAR) == Pruned(looked_at=1, sweep_runs=1)
    assert names(desk, "SELECT id FROM sweep_runs ORDER BY id") == [claimed, received, buried]
    assert unneeded not in {claimed, received, buried}
    assert desk.everything()["dead_letters"] == letters


def test_a_dead_letter_outlives_its_hold(desk: Desk) -> None:
    hold = desk.overdue("a")
    letter = set_aside(desk, "a")
    desk.expire(hold.reference)
    settle(desk, letter, "expired")
    assert all_closed(desk).holds == 1
    assert names(desk, "SELECT hold_id FROM dead_letters") == ["a"]


def test_batches_are_bounded_and_the_whole_is_one_pass(desk: Desk) -> None:
    take(desk, *({"id": f"h-{n:02}", **({"expires_at": "2030-01-01T00:00:00Z"} if n % 3 else OLD)} for n in range(25)))
    heard: list[Pruned] = []
    total = prune(desk.database, older_than=YEAR, batch=4, tell=heard.append)
    assert [step.looked_at for step in heard if step.looked_at] == [4, 4, 4, 4, 4, 4, 1]
    assert max(step.holds for step in heard) <= 2
    assert total == Pruned(looked_at=25, holds=9, effects=18)
    assert desk.count("holds") == 16


def test_a_pass_that_dies_leaves_each_hold_whole_or_gone(desk: Desk) -> None:
    take(desk, *({"id": f"h-{n}", **OLD, "amount": 5, "currency": "EUR"} for n in range(9)), emit=True)
    desk.sql("""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN IF old.hold_id = 'h-5' THEN RAISE EXCEPTION 'died'; END IF; RETURN old; END $$""")
    desk.sql("CREATE TRIGGER dies BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION fail()")
    with pytest.raises(Exception, match="died"):
        prune(desk.database, older_than=YEAR, batch=2)
    left = [f"h-{n}" for n in range(4, 9)]
    for table, key in (("holds", "id"), ("effects", "hold_id"), ("events", "hold_id")):
        assert names(desk, f"SELECT DISTINCT {key} FROM {table} ORDER BY 1") == left
    desk.sql("DROP TRIGGER dies ON events")
    assert prune(desk.database, older_than=YEAR, batch=2) == Pruned(looked_at=5, holds=5, effects=10, events=10)
    assert violations(desk) == []


def test_two_prunings_at_once_delete_each_hold_once(desk: Desk) -> None:
    take(desk, *({"id": f"h-{n:03}", **OLD} for n in range(300)), emit=True)
    together = threading.Barrier(2)
    totals: list[Pruned] = []

    def run() -> None:
        together.wait(10)
        totals.append(prune(desk.database, older_than=YEAR, batch=50))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(totals) == 2
    both = totals[0] + totals[1]
    assert (both.holds, both.effects, both.events) == (300, 600, 600)


def test_no_batch_scans_a_table(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        tx.execute(
            text("""
            INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, cohort, placed_at, closed_at)
            SELECT 'h-' || n, 'seat', 'acme', 'confirmed', 1, '2020-01-02Z', '{}', 1, '2020-01-01Z', '2020-01-01Z'
            FROM generate_series(1, 20000) AS n""")
        )
        tx.execute(
            text("""INSERT INTO effects (key, hold_id, kind, version, expires_at, at)
            SELECT 'hold-' || kind || ':' || id, id, kind, 1, expires_at, placed_at
            FROM holds, (VALUES ('placed'), ('confirmed')) AS k(kind)""")
        )
        tx.execute(
            text("""INSERT INTO events SELECT 'reservation-placed:' || id || '\\:1', id, '', placed_at, ''
                           FROM holds""")
        )
        for table in ("holds", "effects", "events"):
            tx.execute(text(f"ANALYZE {table}"))
    ids = [f"h-{n}" for n in range(100)]
    before = datetime.fromisoformat("2021-01-01T00:00:00Z")
    for statement, values, index in (
        (pruning._NEXT_BY_KEY, {"after": "h-5", "limit": 100, "before": before, "newest_run": 0}, "holds_pkey"),
        (pruning._DELETE_IF_CLOSED_AND_OLD, {"ids": ids, "before": before}, "holds_pkey"),
        (pruning._VERSION_PLACED_AT, {"keys": [f"hold-placed:{n}" for n in ids]}, "effects_pkey"),
        (pruning._DELETE_EFFECTS, {"keys": [f"hold-placed:{n}" for n in ids]}, "effects_pkey"),
        (pruning._DELETE_EVENTS, {"ids": [f"reservation-placed:{n}:1" for n in ids]}, "events_pkey"),
    ):
        with desk.database.transaction() as tx:
            by_index(tx)
            plan = "\n".join(row[0] for row in tx.execute(text(f"EXPLAIN {statement.text}"), values))
        assert index in plan
        assert "Seq Scan" not in plan
