"""Plans with a hundred thousand deliveries: what runs before each request reads a few pages, by its index."""

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import text

from cli.local.engines import Postgres
from db import deliveries, onward, replays
from db.deliveries import Taken
from db.engine import Database
from db.replays import Position, Selection
from domain.endpoints import EndpointId
from domain.webhooks import Delivered
from tests.conftest import libpq
from tests.db.test_plans import explained, indexes
from tests.hooks import BOUNDS, OK, TOOK, Hooks, fill_backlog

_CHUNKS = "split_part(split_part(event_id, chr(58), 2), '-', 2)\\:\\:int / 500 * interval '1 s'"
"""SQL: of each 500 deliveries by their number, one instant; as expiries in chunks make them."""

_GROWING = {"deliveries", "attempts", "events", "dead_letters", "holds"}


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Hooks]:
    """100,000 delivered and 100,000 due deliveries of one endpoint, 200 idle endpoints, ten due of another."""
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE holdfast_outbox TEMPLATE {template} STRATEGY file_copy")
        database = Database(postgres.database("holdfast_outbox"))
        hooks = Hooks(database)
        for n in range(200):
            hooks.endpoint(f"idle-{n}")
        hooks.endpoint("big")
        hooks.endpoint("small")
        fill_backlog(hooks, 100_000, "big", "old")
        hooks.sql(f"UPDATE deliveries SET state = 'delivered', settled_at = now(), created_at = created_at - {_CHUNKS}")
        fill_backlog(hooks, 100_000, "big", "new")
        fill_backlog(hooks, 10, "small", "few")
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield hooks
        database.close()
        admin.execute("DROP DATABASE holdfast_outbox WITH (FORCE)")


def whole_tables(seen: list[dict[str, object]]) -> set[object]:
    return {node["Relation Name"] for node in seen if node["Node Type"] == "Seq Scan"} & _GROWING


def test_a_tick_reads_deliveries_by_the_due_index_alone(full: Hooks) -> None:
    with explained(full.database) as seen:
        assert sorted(full.dispatch()) == ["big"] * 4 + ["small"] * 4
    assert "deliveries_due" in indexes(seen)
    assert whole_tables(seen) == set()
    full.sql("UPDATE endpoint_slots SET dispatched_until = NULL")


def test_taking_and_settling_touch_rows_by_their_keys(full: Hooks) -> None:
    slot = full.held("small")
    with explained(full.database) as seen:
        taken = full.taken(slot)
        full.settle(taken, OK)
    assert {"deliveries_due", "deliveries_pkey", "events_pkey", "attempts_pkey"} <= indexes(seen)
    assert whole_tables(seen) == set()
    full.leave(slot)


def test_a_backlog_of_a_hundred_thousand_costs_another_endpoint_nothing(full: Hooks) -> None:
    """The ten of one endpoint are taken and settled while the other's rows are locked, every one of them."""
    with full.database.transaction() as other:
        other.execute(text("SELECT FROM deliveries WHERE endpoint_id = 'big' FOR UPDATE"))
        slot = full.held("small")
        left = full.count("deliveries", "endpoint_id = 'small' AND state = 'pending'")
        with explained(full.database, analyze=True) as seen:
            full.dispatch()
            for _ in range(left):
                full.settle(full.taken(slot), OK)
        full.leave(slot)
    assert full.count("deliveries", "endpoint_id = 'small' AND state = 'pending'") == 0
    scans = [node for node in seen if node.get("Relation Name") == "deliveries"]
    assert all(node["Actual Rows"] <= 64 for node in scans)


def test_a_page_of_a_listing_is_read_along_its_index_from_wherever_it_begins(full: Hooks) -> None:
    [place] = full.rows(
        "SELECT created_at, event_id, endpoint_id FROM deliveries ORDER BY 1, 2, 3 OFFSET 50000 LIMIT 1"
    )
    middle = Position(*place)
    for selection in (Selection(), Selection(state="delivered"), Selection(endpoint=EndpointId("big"))):
        with explained(full.database) as seen, full.database.transaction() as tx:
            replays.listing(tx, selection, limit=1000, after=middle)
        assert "deliveries_created_at" in indexes(seen)
        assert whole_tables(seen) == set()
        with explained(full.database, analyze=True) as ran, full.database.transaction() as tx:
            page = replays.listing(tx, selection, limit=1000, after=middle)
        assert (len(page), page[0].position > middle) == (1000, True)
        scans = [node for node in ran if node.get("Relation Name") == "deliveries"]
        assert all(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) <= 2_500 for node in scans)


def test_an_idle_tick_reads_nothing_of_a_backlog_that_may_not_go_out(full: Hooks) -> None:
    """Ticks come four times a second, whether or not there is anything to ask for."""
    full.sql("UPDATE endpoints SET state = 'paused', still_since = now() WHERE id IN ('big', 'small')")
    with explained(full.database, analyze=True, of=("WITH",)) as seen:
        assert full.dispatch() == []
    full.sql("UPDATE endpoints SET state = 'enabled', still_since = NULL WHERE id IN ('big', 'small')")
    [scan] = [node for node in seen if node.get("Relation Name") == "deliveries"]
    assert (scan["Actual Loops"], scan["Actual Rows"]) == (200, 0)
    assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 200 * 4


def due_entries_read(hooks: Hooks) -> int:
    """Entries of the due index that statements have come upon so far, in sessions that have said so."""
    [(read,)] = hooks.rows("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'deliveries_due'")
    return int(read)


def test_settling_does_not_look_through_a_backlog_that_the_planner_knows_nothing_of(database: Database) -> None:
    hooks = Hooks(database)
    hooks.endpoint()
    fill_backlog(hooks, 1000)
    slot = hooks.held()
    before = due_entries_read(hooks)
    with database.session() as session:
        with session.transaction() as tx:
            found = deliveries.take(tx, slot, BOUNDS, worker="w")
        for _ in range(20):
            assert isinstance(found, Taken)
            with session.transaction() as tx:
                found = onward.settle_delivered_and_take(tx, found, OK, slot, BOUNDS, took=TOOK, worker="w")  # type: ignore[assignment]
        for _ in range(20):
            assert isinstance(found, Taken)
            with session.transaction() as tx:
                deliveries.settle(tx, found, OK, Delivered(), BOUNDS, took=TOOK)
                found = deliveries.take(tx, slot, BOUNDS, worker="w")
        with session.transaction() as tx:
            tx.execute(text("SELECT pg_stat_force_next_flush()"))
    assert due_entries_read(hooks) - before < 400
