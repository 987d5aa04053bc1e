"""What a fault at the database looks like: one line that names cause and cure, exit 1, nothing changed."""

from pathlib import Path

import pytest

from db.engine import Database
from tests.cli.conftest import Command, pointed
from tests.cli.saying import EVERY_COMMAND, PASSWORD, name_of
from tests.helpers import Desk

OLD_SCHEMA = "the database's schema is older than this code; run `holdfast migrate`"


def test_an_older_schema_is_called_that(holdfast: Command, desk: Desk) -> None:
    desk.sql("ALTER TABLE holds DROP COLUMN set_aside CASCADE")
    assert holdfast("list", "--json") == (1, "", f"holdfast: {OLD_SCHEMA}\n")


LOCKED = "the row is locked by another transaction; try again"


@pytest.mark.parametrize("command", EVERY_COMMAND[1:4], ids=name_of)
def test_a_locked_row_is_told_and_nothing_is_changed(
    holdfast: Command, desk: Desk, impatient: None, command: tuple[str, ...]
) -> None:
    desk.placed("h")
    before = desk.everything()
    with desk.database.transaction() as other:
        other.exec_driver_sql("SELECT FROM holds WHERE id = 'h' FOR UPDATE")
        assert holdfast(*command, "--json") == (1, "", f"holdfast: {LOCKED}\n")
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("REVOKE INSERT ON holds FROM clerk", "the database user may not do this; grant it the tables of its schema"),
        (
            "ALTER ROLE clerk SET default_transaction_read_only = on",
            "the database is read-only; set HOLDFAST_DATABASE_URL to one that takes changes",
        ),
    ],
    ids=["a missing grant", "a read-only database"],
)
def test_what_the_database_does_not_allow_is_told_with_its_cure(
    holdfast: Command, desk: Desk, monkeypatch: pytest.MonkeyPatch, statement: str, line: str
) -> None:
    desk.sql("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk")
    desk.sql(statement)
    before = desk.everything()
    pointed(monkeypatch, str(desk.database.engine.url), username="clerk")
    assert holdfast(*EVERY_COMMAND[0], "--json") == (1, "", f"holdfast: {line}\n")
    assert desk.everything() == before
    desk.sql("DROP OWNED BY clerk; DROP ROLE clerk")


def test_an_error_of_the_database_that_nobody_foresaw_is_its_own_first_line(holdfast: Command, desk: Desk) -> None:
    desk.sql("ALTER TABLE holds ADD CONSTRAINT odd CHECK (resource <> 'seat')")
    line = 'the database refused: new row for relation "holds" violates check constraint "odd" (SQLSTATE 23514)'
    assert holdfast(*EVERY_COMMAND[0]) == (1, "", f"holdfast: {line}\n")
    assert desk.count("holds") == 0


def test_a_defect_is_told_by_its_place_and_not_by_its_text(
    holdfast: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError(PASSWORD)

    monkeypatch.setattr("cli.holds.holds.listing", broken)
    said = holdfast("list")
    line = broken.__code__.co_firstlineno + 1
    assert said == (
        1,
        "",
        f"holdfast: this is a defect of holdfast: RuntimeError at {Path(__file__).name}:{line}; please report it\n",
    )
