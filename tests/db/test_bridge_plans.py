"""Plans with a hundred thousand messages waiting and as many published: a tick reads a few pages of two indexes."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text

from cli.local.engines import Postgres
from db import bridge, cohorts
from db.engine import Database
from domain.paths import Path
from tests.conftest import libpq
from tests.db.test_plans import explained, indexes
from tests.helpers import Desk

LEASE = timedelta(minutes=1)

_MESSAGES = text("""
INSERT INTO bridge_messages (hold_id, version, expires_at, publish_at, batch, batch_at, claimed_until, published_at)
SELECT 'w-' || n, 1, date_trunc('second', now()) + interval '30 days', now() + interval '1 hour' + n * interval '1 s',
       NULL, NULL, NULL, NULL
FROM generate_series(1, 100000) AS n
UNION ALL
SELECT 'p-' || n, 1, date_trunc('second', now()), now() - interval '7 days', 'b' || n / 100, now(), now(), now()
FROM generate_series(1, 100000) AS n
""")


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Database]:
    """100,000 messages that wait for the horizon, and 100,000 that were published."""
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE holdfast_bridge_plans TEMPLATE {template} STRATEGY file_copy")
        database = Database(postgres.database("holdfast_bridge_plans"))
        with database.transaction() as tx:
            tx.execute(_MESSAGES)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield database
        database.close()
        admin.execute("DROP DATABASE holdfast_bridge_plans WITH (FORCE)")


def whole_tables(seen: list[dict[str, object]]) -> set[object]:
    return {node["Relation Name"] for node in seen if node["Node Type"] == "Seq Scan"} & {"bridge_messages"}


def test_an_idle_look_reads_a_handful_of_pages(full: Database) -> None:
    with explained(full, analyze=True) as seen, full.transaction() as tx:
        assert not bridge.anything_to_publish(tx)
    scans = [node for node in seen if node.get("Relation Name") == "bridge_messages"]
    assert {node["Index Name"] for node in scans} == {"bridge_messages_due", "bridge_messages_under_way"}
    assert sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in scans) <= 8


def test_taking_noting_and_trying_again_go_by_the_indexes(full: Database) -> None:
    desk = Desk(full)
    cohorts.route(full, range(100), Path.INFRAI)
    desk.placed("h")
    with explained(full) as seen, full.transaction() as tx:
        batch = bridge.take(tx, 100, lease=LEASE, old=LEASE)
        assert batch is not None
        bridge.give_back(tx, batch)
        bridge.published(tx, batch, ["m"])
        assert bridge.publish_again(tx, batch.lines[0].hold_id) == 2
    assert {"bridge_messages_due", "bridge_messages_under_way", "bridge_messages_pkey"} <= indexes(seen)
    assert whole_tables(seen) == set()
