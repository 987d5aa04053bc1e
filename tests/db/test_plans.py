"""Plans on a hundred thousand live holds: what runs each second reads a handful of pages, by its own index.

Every statement of the real functions is explained just before it runs, twice: as it is, and as the generic plan that a
prepared statement ends up with.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url, text

from cli.local.engines import Postgres
from db import sweeps
from db.engine import Database
from db.sweeps import Idle, Run
from domain.identity import HoldId
from domain.outcomes import Outcome
from domain.paths import Path
from domain.terms import For
from tests.helpers import HALF_A_SECOND, POLICY, TWO_HOURS, Desk, Sweeper

Node = dict[str, Any]
BOTH_PLANS = [("EXPLAIN (FORMAT JSON) ", False), ("EXPLAIN (GENERIC_PLAN, FORMAT JSON) ", True)]

_HUNDRED_THOUSAND = text("""
WITH new AS (
    SELECT 'live-' || n AS id, date_trunc('second', now()) + n * interval '1 second' + interval '1 hour' AS deadline,
           n % 100 AS cohort, false AS set_aside
    FROM generate_series(1, 100000) AS n
    UNION ALL
    SELECT 'aside-' || n, date_trunc('second', now()) - n * interval '1 second', n % 100, true
    FROM generate_series(1, 10000) AS n
), hold AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, amount, currency, exclusive, cohort,
                       placed_at, set_aside)
    SELECT id, 'seat ' || id, 'acme', 'held', 1, deadline, '{}', 250, 'EUR', true, cohort, now(), set_aside FROM new
), effect AS (
    INSERT INTO effects (key, hold_id, kind, version, expires_at, at)
    SELECT 'hold-placed:' || id, id, 'placed', 1, deadline, now() FROM new
), entry AS (
    INSERT INTO ledger (hold_id, side, amount, currency, reason, at)
    SELECT id, 'open', 250, 'EUR', 'placed', now() FROM new
)
INSERT INTO events (event_id, hold_id, type, occurred_at, body)
SELECT concat('reservation-placed:', id, chr(58), 1), id, 'reservation.placed', now(), '{}' FROM new
""")


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Database]:
    """100,000 live holds, and 10,000 overdue ones that are set aside."""
    admin_url = make_url(postgres.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE holdfast_plans TEMPLATE {template} STRATEGY file_copy")
        database = Database(postgres.database("holdfast_plans"))
        with database.transaction() as tx:
            tx.execute(_HUNDRED_THOUSAND)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield database
        database.close()
        admin.execute("DROP DATABASE holdfast_plans WITH (FORCE)")


@pytest.fixture
def big(full: Database) -> Desk:
    """Commands on the full database."""
    return Desk(full)


@contextmanager
def explained(database: Database, *, analyze: bool = False, of: tuple[str, ...] = ("SELECT",)) -> Iterator[list[Node]]:
    """The nodes of both plans of each statement that runs meanwhile; or of queries alone, as they really ran.

    To analyze is to run once more: `of` names other statements, where that is no harm.
    """
    seen: list[Node] = []
    explains = [("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ", False)] if analyze else BOTH_PLANS

    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        kinds = of if analyze else ("SELECT", "UPDATE", "INSERT", "WITH", "DELETE")
        if not statement.lstrip().startswith(kinds):
            return
        with cursor.connection.cursor() as own:
            for prefix, generic in explains:
                asked = [prefix + numbered(statement)] if generic else [prefix + statement, parameters]
                [[plan]] = own.execute(*asked).fetchone()
                seen.extend(nodes(plan["Plan"]))

    event.listen(database.engine, "before_cursor_execute", explain)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", explain)


def numbered(statement: str) -> str:
    """The statement with $1, $2 … for its named parameters."""
    numbers: dict[str, int] = {}
    return re.sub(r"%\((\w+)\)s", lambda m: f"${numbers.setdefault(m[1], len(numbers) + 1)}", statement)


def nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def indexes(seen: list[Node]) -> set[str]:
    return {node["Index Name"] for node in seen if "Index Name" in node}


def whole_tables(seen: list[Node]) -> set[str]:
    """Tables that grow with the holds and are read from end to end."""
    scanned = {node["Relation Name"] for node in seen if node["Node Type"] == "Seq Scan"}
    return scanned & {"holds", "effects", "ledger", "events"}


def begin(database: Database) -> Idle | Run:
    with database.transaction() as tx:
        tx.execute(text("DELETE FROM sweeps"))
        begun = sweeps.begin(tx, Path.SWEEP, POLICY, apart=HALF_A_SECOND)
    assert not isinstance(begun, sweeps.TooSoon)
    return begun


def test_an_idle_tick_uses_the_due_index_also_beside_ten_thousand_set_aside_holds(full: Database) -> None:
    with explained(full) as seen:
        assert begin(full) == Idle()
    assert "holds_due" in indexes(seen)
    assert whole_tables(seen) == set()


def test_an_idle_tick_reads_a_handful_of_pages(full: Database) -> None:
    with explained(full, analyze=True) as seen:
        begin(full)
    [scan] = [node for node in seen if node.get("Index Name") == "holds_due"]
    assert scan["Actual Rows"] == 0
    assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 5


def test_a_claim_uses_the_due_index_and_reads_what_it_takes(big: Desk, full: Database) -> None:
    with full.transaction() as tx:
        tx.execute(
            text("UPDATE holds SET expires_at = date_trunc('second', now()) - interval '1 s' WHERE id = 'live-7'")
        )
        run = Run(
            tx.execute(text("INSERT INTO sweep_runs (sweep, started_at) VALUES ('x', now()) RETURNING id")).scalar_one()
        )
    with explained(full) as seen:
        assert Sweeper(full).claim(run).ids == ["live-7"]
    assert "holds_due" in indexes(seen)
    assert whole_tables(seen) == set()
    with explained(full) as seen, full.transaction() as tx:
        sweeps.release(tx, run, [HoldId("live-7")])
    assert indexes(seen) == {"holds_pkey"}
    assert big.expire(big.read("live-7").reference) == [Outcome.EXPIRED]


def test_expiring_a_chunk_reads_holds_and_effects_by_their_keys(big: Desk, full: Database) -> None:
    ids = [f"live-{n}" for n in range(20_000, 20_500)]
    big.sql("UPDATE holds SET expires_at = date_trunc('second', now()) WHERE id = ANY(CAST(:ids AS text[]))", ids=ids)
    references = [big.read(name).reference for name in ids]
    with explained(full) as seen:
        assert big.expire(*references) == [Outcome.EXPIRED] * 500
        assert big.expire(*references) == [Outcome.DUPLICATE] * 500
    assert {"holds_pkey", "effects_pkey"} <= indexes(seen)
    assert whole_tables(seen) == set()


def test_no_command_reads_a_whole_table(big: Desk, full: Database) -> None:
    with explained(full) as seen:
        big.placed("new", TWO_HOURS, resource="new seat", exclusive=True, amount=5, currency="EUR")
        big.place("newer", TWO_HOURS, resource="new seat", exclusive=True)
        big.extend("new", 1, For(HALF_A_SECOND * 2))
        big.extend("new", 1, For(HALF_A_SECOND * 2))
        big.confirm("new", 2)
        big.cancel("live-9", 1)
        big.read("live-9")
    assert {"holds_pkey", "holds_exclusive", "ledger_pkey", "effects_pkey"} <= indexes(seen)
    assert whole_tables(seen) == set()


@pytest.mark.parametrize("window", [1000, 10_000])
def test_counting_what_is_in_flight_reads_one_window_however_much_is_overdue(full: Database, window: int) -> None:
    with full.engine.connect() as connection, connection.begin() as rolled_back:
        connection.execute(
            text("""UPDATE holds SET expires_at = expires_at - interval '30 hours',
                                          claimed_until = now() + interval '1 minute', claimed_run = 1
                                   WHERE id LIKE 'live-%'""")
        )
        with explained(full, analyze=True) as seen:
            assert sweeps.in_flight(connection, window) == window
        rolled_back.rollback()
    [scan] = [node for node in seen if "Relation Name" in node]
    assert (scan["Index Name"], scan["Actual Rows"]) == ("holds_due", window)
