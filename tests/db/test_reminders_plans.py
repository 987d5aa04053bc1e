"""Plans with a hundred thousand reminders to come: an idle tick, a take and a cancel read a few pages by index."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text

from cli.local.engines import Postgres
from db import reminding
from db.engine import Database
from domain.reminding import Channel
from tests.conftest import libpq
from tests.db.test_plans import explained, indexes
from tests.reminded import Reminded

_GROWING = {"reminders", "reminder_attempts", "holds"}
_EARLIER = timedelta(microseconds=-1)

_HUNDRED_THOUSAND = """
WITH hold AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, cohort, placed_at, email, leads)
    SELECT 'live-' || n, 'seat', 'acme', 'held', 1, date_trunc('second', now()) + n * interval '1 second'
           + interval '1 day', '{}', 1, now(), 'ada@example.com', '{1 hour}'
    FROM generate_series(1, 100000) AS n
    RETURNING *
)
INSERT INTO reminders (key, hold_id, channel, expires_at, lead, due_at, next_at, created_at)
SELECT concat('hold-reminder:', id, ':', 'email', ':', CAST(extract(epoch FROM expires_at) AS bigint), ':', 3600), id,
       'email',
       expires_at, '1 hour', expires_at - interval '1 hour', expires_at - interval '1 hour', now()
FROM hold
"""


@pytest.fixture(scope="module")
def full(postgres: Postgres, template: str) -> Iterator[Reminded]:
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE holdfast_reminders TEMPLATE {template} STRATEGY file_copy")
        database = Database(postgres.database("holdfast_reminders"))
        desk = Reminded(database)
        desk.sql(_HUNDRED_THOUSAND)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield desk
        database.close()
        admin.execute("DROP DATABASE holdfast_reminders WITH (FORCE)")


def whole_tables(seen: list[dict[str, object]]) -> set[object]:
    return {node["Relation Name"] for node in seen if node["Node Type"] == "Seq Scan"} & _GROWING


def tick(desk: Reminded) -> dict[Channel, int]:
    with desk.database.transaction() as tx:
        return reminding.dispatch(tx, apart=_EARLIER, most=12)


def test_an_idle_tick_reads_a_handful_of_pages_of_the_due_index(full: Reminded) -> None:
    with explained(full.database, analyze=True) as seen:
        assert tick(full) == {}
    assert "reminders_due" in indexes(seen)
    assert whole_tables(seen) == set()
    for scan in (node for node in seen if node.get("Index Name") == "reminders_due"):
        assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 10


def test_taking_and_settling_touch_rows_by_their_keys(full: Reminded) -> None:
    full.make_due("live-500")
    with explained(full.database) as seen:
        full.settle(full.taken())
    assert {"reminders_due", "reminders_pkey", "holds_pkey", "reminder_attempts_pkey"} <= indexes(seen)
    assert whole_tables(seen) == set()


def test_extending_and_closing_find_a_holds_reminders_by_a_range_of_the_key(full: Reminded) -> None:
    hold = full.read("live-900")
    with explained(full.database) as seen:
        full.cancel(hold.id)
    assert "reminders_pkey" in indexes(seen)
    assert whole_tables(seen) == set()
    assert full.states("live-900") == ["cancelled"]
