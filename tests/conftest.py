"""The suite's own Postgres, and a fresh migrated database for each test that asks for one."""

import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from cli.local.engines import Postgres, postgres_user
from db import schema
from db.engine import Database

_numbers = itertools.count(1)


@contextmanager
def running(server: Postgres) -> Iterator[Postgres]:
    """A server of the test's own, stopped afterwards."""
    server.prepare()
    log = (server.data.parent / "postgres.log").open("ab")
    process = subprocess.Popen(server.command(), stdout=log, stderr=log, user=postgres_user(), cwd="/")
    try:
        for _ in range(200):
            if process.poll() is not None:
                raise RuntimeError((server.data.parent / "postgres.log").read_text())
            try:
                psycopg.connect(libpq(server.url), connect_timeout=2).close()
                break
            except psycopg.OperationalError:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
        yield server
    finally:
        process.send_signal(2)
        process.wait(20)
        log.close()


def libpq(url: str) -> str:
    """The same address as psycopg itself takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The session's own server."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o755)
        with running(Postgres(home / "data", home / "run", {"fsync": "off", "max_connections": "200"})) as server:
            yield server


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """A migrated, empty database that tests copy."""
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute("CREATE DATABASE holdfast_template")
    database = Database(postgres.database("holdfast_template"))
    with database.transaction() as tx:
        schema.migrate(tx)
    database.close()
    return "holdfast_template"


@pytest.fixture
def database_url(postgres: Postgres, template: str) -> Iterator[str]:
    """The address of a fresh, migrated database, dropped afterwards."""
    name = f"holdfast_{next(_numbers)}"
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield postgres.database(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh, migrated database, as the code uses it."""
    database = Database(database_url, pool=16)
    yield database
    database.close()
