"""The schema: migrations and typed columns say the same, and every migration applies to a filled database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from cli.local.engines import Postgres
from db import schema
from db.engine import Database
from db.tables import metadata
from tests.helpers import Desk, wait_for_lock

FILLED = {
    "0001": """
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, timezone, amount, currency, cohort,
                       placed_at, closed_at, close_reason)
    VALUES ('held', 'seat', 'acme', 'held', 2, '2030-01-01Z', '{"for": 60}', 'Europe/Berlin', 1250, 'EUR', 5,
            '2026-01-01Z', NULL, NULL),
           ('gone', 'seat', 'acme', 'expired', 1, '2026-01-02Z', '{"for": 60}', NULL, NULL, NULL, 7,
            '2026-01-01Z', '2026-01-02Z', 'deadline passed');
    INSERT INTO effects VALUES ('hold-placed:held', 'held', 'placed', 1, '2030-01-01Z', '2026-01-01Z', NULL, true);
    INSERT INTO receipts (message_id, path, sweep_run, retries, redelivered, worker, tally, at)
    VALUES ('m', 'sweep', 1, 0, false, 'w', '{"expired": {"7": 1}}', '2026-01-02Z');
    INSERT INTO ledger VALUES ('held', 'open', 1250, 'EUR', 'placed', '2026-01-01Z');
    INSERT INTO events VALUES ('reservation-placed:held:1', 'held', 'reservation.placed', '2026-01-01Z', '{}');
    INSERT INTO sweeps VALUES ('expiry:sweep', '2026-01-02Z', 3, 1);
    INSERT INTO sweep_runs (sweep, started_at, observed) VALUES ('expiry:sweep', '2026-01-02Z', 1);
    INSERT INTO dead_letters (key, kind, reference, error, attempts, created_at)
    VALUES ('k', 'reference', '{}', 'bad', 1, '2026-01-02Z');
    """,
}
FILLED["0002"] = (
    FILLED["0001"]
    + """
    INSERT INTO endpoints (id, url, types, waits, max_age, rate, created_at)
    VALUES ('ep', 'https://example.com/', '{reservation.placed}', '{0s,5s}', '1 day', 2.5, '2026-01-01Z');
    INSERT INTO endpoint_keys VALUES ('ep', 'abc', 'v1', 'sealed', '2026-01-01Z', NULL, NULL);
    INSERT INTO endpoint_slots (endpoint_id, slot) VALUES ('ep', 0);
    INSERT INTO deliveries (event_id, endpoint_id, next_attempt_at, created_at, aging_since, still_before)
    VALUES ('reservation-placed:held:1', 'ep', '2026-01-01Z', '2026-01-01Z', '2026-01-01Z', '0');
    INSERT INTO attempts (event_id, endpoint_id, number, trigger, started_at, key_ids, worker)
    VALUES ('reservation-placed:held:1', 'ep', 1, 'auto', '2026-01-01Z', '{abc}', 'w');
    """
)
FILLED["0003"] = FILLED["0002"]
FILLED["0004"] = (
    FILLED["0003"] + "UPDATE endpoint_slots SET took = '20 ms', took_at = '2026-01-01Z'; "
    "UPDATE endpoints SET our_failures = 1;"
)
FILLED["0005"] = (
    FILLED["0004"]
    + """
    UPDATE holds SET email = 'ada@example.com', phone = '+4930123456', locale = 'de', leads = '{1 day}'
    WHERE id = 'held';
    INSERT INTO reminders (key, hold_id, channel, expires_at, lead, due_at, next_at, created_at)
    VALUES ('hold-reminder:held:email:1893456000:86400', 'held', 'email', '2030-01-01Z', '1 day', '2029-12-31Z',
            '2029-12-31Z', '2026-01-01Z');
    INSERT INTO reminder_attempts (key, number, started_at, worker, provider)
    VALUES ('hold-reminder:held:email:1893456000:86400', 1, '2029-12-31Z', 'w', 'smtp');
    """
)
FILLED["0006"] = (
    FILLED["0005"]
    + """
    UPDATE cohort_paths SET path = 'infrai', came_from = 'sweep', routed_at = '2026-01-01Z' WHERE cohort = 5;
    INSERT INTO bridge_messages (hold_id, version, expires_at, publish_at)
    VALUES ('held', 2, '2030-01-01Z', '2029-12-25Z');
    """
)
"""Revision → what fills its tables. A new migration brings its own entry, and is tried on the one before."""


@pytest.fixture
def empty(postgres: Postgres) -> Iterator[Database]:
    """A database that was never migrated."""
    admin_url = make_url(postgres.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE holdfast_empty")
        database = Database(postgres.database("holdfast_empty"))
        yield database
        database.close()
        admin.execute("DROP DATABASE holdfast_empty WITH (FORCE)")


def migrate(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    with database.transaction() as tx:
        return schema.migrate(tx, revision)


def revisions() -> list[tuple[str, str | None]]:
    """Each revision and the one before, oldest first."""
    found = reversed(list(ScriptDirectory.from_config(schema._config()).walk_revisions()))
    return [(script.revision, script.down_revision) for script in found]  # type: ignore[misc]


def test_alembic_finds_no_difference_between_the_migrations_and_the_typed_columns(database: Database) -> None:
    with database.transaction() as tx:
        context = MigrationContext.configure(tx, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


_CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, l.collname,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND c.relname <> 'alembic_version'
        ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conrelid <> coalesce(to_regclass('alembic_version'), 0)
        ORDER BY 1, 2""",
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1, 2""",
}


def catalog(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    with database.engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.exec_driver_sql(query.replace("%", "%%"))]
            for name, query in _CATALOG.items()
        }


@pytest.mark.parametrize("part", list(_CATALOG))
def test_the_typed_columns_make_the_very_tables_that_the_migrations_make(
    database: Database, empty: Database, part: str
) -> None:
    metadata.create_all(empty.engine)
    migrated, typed = catalog(database)[part], catalog(empty)[part]
    assert len(migrated) >= len(metadata.tables)
    assert typed == migrated


def test_migrating_says_where_it_came_from_and_twice_is_a_no_op(empty: Database) -> None:
    assert migrate(empty) == (None, schema.newest())
    before = catalog(empty)
    Desk(empty).placed("h")
    assert migrate(empty) == (schema.newest(), schema.newest())
    assert catalog(empty) == before
    assert Desk(empty).read("h").version == 1


def test_of_two_migrations_at_once_one_waits_and_then_finds_nothing_to_do(empty: Database) -> None:
    with ThreadPoolExecutor(1) as pool:
        with empty.transaction() as first:
            assert schema.migrate(first) == (None, schema.newest())
            second = pool.submit(migrate, empty)
            wait_for_lock(first)
            assert not second.done()
        assert second.result() == (schema.newest(), schema.newest())


def test_a_migration_that_dies_midway_leaves_nothing(empty: Database) -> None:
    with empty.engine.connect() as connection, connection.begin() as dying:
        schema.migrate(connection)
        dying.rollback()
    with empty.transaction() as tx:
        assert schema.current(tx) is None
        assert inspect(tx).get_table_names() == []
    assert migrate(empty) == (None, schema.newest())


@pytest.mark.parametrize(("revision", "before"), revisions())
def test_each_migration_applies_to_a_filled_database(empty: Database, revision: str, before: str | None) -> None:
    desk = Desk(empty)
    if before is not None:
        migrate(empty, before)
        for statement in FILLED[before].split(";\n"):
            desk.sql(statement)
    counted = rows(empty)
    assert migrate(empty, revision) == (before, revision)
    assert counted.items() <= rows(empty).items()
    assert migrate(empty)[1] == schema.newest()


@pytest.mark.parametrize(("revision", "before"), revisions())
def test_what_fills_a_revision_fills_each_of_its_tables(empty: Database, revision: str, before: str | None) -> None:
    migrate(empty, revision)
    for statement in FILLED[revision].split(";\n"):
        if statement.strip():
            Desk(empty).sql(statement)
    assert {table for table, number in rows(empty).items() if number == 0} == set()


def rows(database: Database) -> dict[str, int]:
    """Rows in each table."""
    with database.transaction() as tx:
        tables = [name for name in inspect(tx).get_table_names() if name != "alembic_version"]
        return {name: tx.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables}


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("id = 'a.b'", "holds_id"),
        ("id = ''", "holds_id"),
        ("id = repeat('x', 65)", "holds_id"),
        ("id = E'h\\n'", "holds_id"),
        ("status = 'lapsed', closed_at = now()", "holds_status"),
        ("status = 'expired'", "holds_closed_at"),
        ("closed_at = now()", "holds_closed_at"),
        ("version = 0", "holds_version"),
        ("expires_at = '2030-01-01 00:00:00.000001Z'", "holds_whole_seconds"),
        ("amount = 5, currency = NULL", "holds_money"),
        ("amount = NULL", "holds_money"),
        ("amount = 0", "holds_money"),
        ("amount = -5", "holds_money"),
        ("cohort = 100", "holds_cohort"),
        ("cohort = -1", "holds_cohort"),
    ],
)
def test_a_row_that_cannot_be_a_hold_is_refused(desk: Desk, change: str, constraint: str) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    before = desk.everything()
    with pytest.raises(DBAPIError) as failure:
        desk.sql(f"UPDATE holds SET {change}")
    assert isinstance(failure.value.orig, psycopg.Error)
    assert failure.value.orig.diag.constraint_name == constraint
    assert desk.everything() == before


def test_every_cohort_has_its_path_from_the_first_migration_on(desk: Desk) -> None:
    assert desk.sql("SELECT cohort, path FROM cohort_paths ORDER BY cohort") == [(n, "sweep") for n in range(100)]
