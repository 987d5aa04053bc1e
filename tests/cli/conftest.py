"""The `holdfast` command in this process and as a script, each against a database of the test's own."""

import base64
import io
import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
import structlog
from sqlalchemy import event, make_url

from cli import main
from cli.local.engines import Postgres
from db.engine import Database
from settings import settings
from tasks import sending
from tests.cli.saying import PASSWORD, Said, Script, checked
from tests.conftest import libpq
from tests.helpers import Desk
from tests.hooks import Hooks

Command = Callable[..., Said]
VAULT = base64.b64encode(bytes(range(32))).decode()

_numbers = itertools.count(1)


@pytest.fixture
def desk(database: Database) -> Desk:
    """The same database, as the code behind the command sees it."""
    return Desk(database)


@pytest.fixture
def hooks(desk: Desk) -> Hooks:
    """Endpoints and their lane in the same database."""
    return Hooks(desk.database)


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key to seal with; this process forgets it and the sender afterwards."""
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", VAULT)
    for kept in (sending.vault, sending.sender):
        kept.cache_clear()
    yield
    for kept in (sending.vault, sending.sender):
        kept.cache_clear()


@pytest.fixture
def address(database_url: str) -> str:
    """The test's database with a password, which the server does not ask for and nobody may read."""
    return with_password(database_url)


def with_password(url: str) -> str:
    return make_url(url).set(password=PASSWORD).render_as_string(hide_password=False)


def pointed(monkeypatch: pytest.MonkeyPatch, url: str, **parts: str) -> None:
    """Let the command use this address, with the password in it."""
    host = parts.pop("host", None)
    other = make_url(url).set(**{"password": PASSWORD, **parts})  # type: ignore[arg-type]
    if host is not None:
        other = other.update_query_dict({"host": host})
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", other.render_as_string(hide_password=False))


@pytest.fixture(scope="module")
def one_database(postgres: Postgres, template: str) -> Iterator[str]:
    """A migrated database that a whole module's tests leave as it is."""
    with _made(postgres, f"TEMPLATE {template} STRATEGY file_copy") as url:
        yield url


@pytest.fixture
def empty_url(postgres: Postgres) -> Iterator[str]:
    """A database without a schema."""
    with _made(postgres, "") as url:
        yield url


@contextmanager
def _made(postgres: Postgres, options: str) -> Iterator[str]:
    name = f"holdfast_cli_{next(_numbers)}"
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} {options}".encode())
        yield with_password(postgres.database(name))
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    """A command may say where logs go; a test's process goes on."""
    root = logging.getLogger()
    handlers, level, configured = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture
def holdfast(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, _logging_as_before: None
) -> Iterator[Command]:
    """Runs the command in this process; `stdin` are bytes."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", address)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str, stdin: bytes = b"") -> Said:
        settings.cache_clear()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main.run(arguments)
        return checked(code, *capsys.readouterr())

    yield command
    settings.cache_clear()


@pytest.fixture
def script(address: str) -> Script:
    """Runs the installed script."""
    return Script(address)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command waits for a lock a tenth of a second, not ten."""

    def soon_tired(*arguments: object, **options: object) -> Database:
        database = Database(*arguments, **options)  # type: ignore[arg-type]
        event.listen(database.engine, "begin", lambda tx: tx.exec_driver_sql("SET LOCAL lock_timeout = '100ms'"))
        return database

    monkeypatch.setattr("cli.context.Database", soon_tired)
