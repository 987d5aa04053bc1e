"""Without a database, a schema, or an address that can be read: one line, exit 1, no traceback, no password."""

from collections.abc import Iterator

import psycopg
import pytest

from cli.local.engines import Postgres
from tests.cli.conftest import Command, pointed, with_password
from tests.cli.saying import EVERY_COMMAND, PASSWORD, name_of
from tests.conftest import libpq

CURE = (
    "the database cannot be reached; see that the server of HOLDFAST_DATABASE_URL runs and has this database and user"
)
NO_SCHEMA = "the database has no schema yet; run `holdfast migrate`"
UNREADABLE = (
    "HOLDFAST_DATABASE_URL cannot be read; write it like postgresql://user:password@host:5432/name, "
    "with @ : / ? # in a password as %40 %3A %2F %3F %23"
)
HOLD = b'{"id":"a","resource":"seat","customer":"acme","expires_in":"2h"}\n'


@pytest.fixture(scope="module")
def address(one_database: str) -> str:
    """One database for all of these, since none of them gets as far."""
    return one_database


@pytest.fixture(scope="module")
def without_schema(postgres: Postgres) -> str:
    """The server's first database: nobody makes tables there."""
    return with_password(postgres.url)


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=name_of)
def test_without_a_database_every_command_says_so(
    holdfast: Command, address: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    pointed(monkeypatch, address, host="/nowhere")
    cause = 'connection to server on socket "/nowhere/.s.PGSQL.5432" failed: No such file or directory'
    assert holdfast(*command, stdin=HOLD) == (1, "", f"holdfast: {CURE} (connection is bad: {cause})\n")


@pytest.mark.parametrize(
    "command", [command for command in EVERY_COMMAND if command[0] not in {"migrate", "status"}], ids=name_of
)
def test_without_a_schema_every_command_says_what_to_run(
    holdfast: Command, without_schema: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", without_schema)
    assert holdfast(*command, "--json", stdin=HOLD) == (1, "", f"holdfast: {NO_SCHEMA}\n")


def test_a_database_that_is_not_there_is_named(
    holdfast: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed(monkeypatch, address, database="nowhere")
    said = holdfast("list")
    assert (said.code, said.out) == (1, "")
    assert said.complaint.startswith(f"{CURE} (connection failed: ")
    assert said.complaint.endswith('FATAL:  database "nowhere" does not exist)')


@pytest.fixture
def locked_out(postgres: Postgres) -> Iterator[str]:
    """A user whom the server asks for another password."""
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute("CREATE ROLE locked_out LOGIN PASSWORD 'another'")
        rules.write_text(f"local all locked_out scram-sha-256\n{before}")
        admin.execute("SELECT pg_reload_conf()")
        yield "locked_out"
        rules.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP ROLE locked_out")


def test_a_wrong_password_is_told_and_not_shown(
    holdfast: Command, address: str, locked_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed(monkeypatch, address, username=locked_out)
    said = holdfast("list")
    assert (said.code, said.out) == (1, "")
    assert said.complaint.startswith(f"{CURE} (connection failed: ")
    assert said.complaint.endswith('FATAL:  password authentication failed for user "locked_out")')


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:p@{PASSWORD}@127.0.0.1:1/x",
        f"postgresql://me:{PASSWORD}@127.0.0.1:port/x",
        f"postgresql://me@127.0.0.1:{PASSWORD}",
        f"postgresql://me:{PASSWORD}@[::1/x",
    ],
)
def test_an_address_that_cannot_be_read_is_told_and_not_shown(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
    assert holdfast("list", "--json") == (1, "", f"holdfast: {UNREADABLE}\n")


@pytest.mark.parametrize("command", [("list",), ("sweep",), ("migrate",)], ids=name_of)
def test_a_bad_setting_is_told_by_its_name(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"mysql://me:{PASSWORD}@x")
    assert holdfast(*command) == (1, "", "holdfast: HOLDFAST_DATABASE_URL must begin with postgresql://\n")
