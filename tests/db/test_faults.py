"""Only what lies in the data is a poison row; a systemic fault is told as what it is."""

import subprocess
import sys
import traceback

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from db import faults
from db.engine import Database
from domain.contacts import Contacts
from domain.holds import Hold
from domain.outcomes import Outcome
from settings import ROOT
from tests.helpers import Desk, wait_for_lock


@pytest.mark.parametrize(
    ("sqlstate", "lies_in_the_data"),
    [
        ("22003", True), ("22P02", True), ("23505", True), ("23514", True), ("40P01", False), ("42501", False),
        ("53100", False), ("57014", False), ("08006", False), ("P0001", False), ("XX000", False), (None, False),
    ],
)  # fmt: skip
def test_only_classes_22_and_23_lie_in_the_data(sqlstate: str | None, lies_in_the_data: bool) -> None:  # noqa: FBT001
    assert faults.lies_in_the_data(sqlstate) is lies_in_the_data


def raised(desk: Desk, *holds: Hold) -> str | None:
    """The SQLSTATE with which expiring these fails, nothing being changed."""
    before = desk.everything()
    with pytest.raises(DBAPIError) as failure:
        desk.expire(*(hold.reference for hold in holds))
    assert desk.everything() == before
    assert isinstance(failure.value.orig, psycopg.Error)
    return failure.value.orig.sqlstate


def test_a_broken_trigger_is_no_poison_row(desk: Desk) -> None:
    desk.sql("""CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'broken'; END $$""")
    desk.sql("""CREATE TRIGGER broken BEFORE INSERT ON events FOR EACH ROW
                WHEN (new.type = 'reservation.expired') EXECUTE FUNCTION broken()""")
    state = raised(desk, desk.overdue("h", amount=1250, currency="EUR"))
    assert state == "P0001"
    assert not faults.lies_in_the_data(state)


def test_a_missing_grant_is_no_poison_row(desk: Desk, database_url: str) -> None:
    hold = desk.overdue("h", amount=1250, currency="EUR")
    desk.sql("DROP ROLE IF EXISTS holdfast_limited")
    desk.sql("CREATE ROLE holdfast_limited LOGIN")
    desk.sql("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO holdfast_limited")
    desk.sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO holdfast_limited")
    desk.sql("REVOKE INSERT ON ledger FROM holdfast_limited")
    limited = Database(database_url.replace("postgres@", "holdfast_limited@"))
    try:
        state = raised(Desk(limited), hold)
        assert state == "42501"
        assert not faults.lies_in_the_data(state)
        desk.sql("GRANT INSERT ON ledger TO holdfast_limited")
        assert Desk(limited).expire(hold.reference) == [Outcome.EXPIRED]
    finally:
        limited.close()
        desk.sql("DROP OWNED BY holdfast_limited")
        desk.sql("DROP ROLE holdfast_limited")


def test_a_row_whose_effect_stands_already_is_a_poison_row_and_fails_its_whole_chunk(desk: Desk) -> None:
    bad, good = desk.overdue("bad", amount=1250, currency="EUR"), desk.overdue("good")
    desk.sql("INSERT INTO ledger VALUES ('bad', 'close', -1250, 'EUR', 'by hand', now())")
    state = raised(desk, bad, good)
    assert state == "23505"
    assert faults.lies_in_the_data(state)
    assert desk.expire(good.reference) == [Outcome.EXPIRED]


def test_a_client_frozen_in_a_transaction_loses_its_locks(database: Database, desk: Desk) -> None:
    """The limit is asked for; it is tried with a shorter one."""
    assert desk.sql("SHOW idle_in_transaction_session_timeout") == [("30s",)]
    hold = desk.overdue("h")
    with database.engine.connect() as frozen:
        frozen.execute(text("SET idle_in_transaction_session_timeout = '200ms'"))
        frozen.execute(text("SELECT FROM holds WHERE id = 'h' FOR UPDATE"))
        assert desk.expire(hold.reference) == [Outcome.EXPIRED]
        with pytest.raises(DBAPIError):
            frozen.execute(text("SELECT 1"))


WAITS_WITH_A_LOCK = """
import sys
import traceback
from sqlalchemy import text
from db.engine import Database

with Database(sys.argv[1]).transaction() as tx:
    tx.execute(text("SET LOCAL client_connection_check_interval = '200ms'"))
    tx.execute(text("SELECT FROM holds WHERE id = 'its-own' FOR UPDATE"))
    tx.execute(text("SELECT FROM holds WHERE id = 'another' FOR UPDATE"))
"""


def test_a_client_killed_while_its_statement_waits_loses_its_locks(database: Database, desk: Desk) -> None:
    """The look at the client is asked for; it is tried with a shorter interval. Without it, the wait goes on."""
    assert desk.sql("SHOW client_connection_check_interval") == [("2s",)]
    own = desk.overdue("its-own")
    desk.overdue("another")
    url = database.engine.url.render_as_string(hide_password=False)
    with database.transaction() as holder:
        holder.execute(text("SELECT FROM holds WHERE id = 'another' FOR UPDATE"))
        with subprocess.Popen([sys.executable, "-c", WAITS_WITH_A_LOCK, url], cwd=ROOT) as client:
            wait_for_lock(holder)
            client.kill()
        with database.transaction() as tx:
            tx.execute(text("SET LOCAL lock_timeout = '5s'"))  # the killed one's own wait has ten
            tx.execute(text("SELECT FROM holds WHERE id = 'its-own' FOR UPDATE"))
    assert desk.expire(own.reference) == [Outcome.EXPIRED]


def test_the_server_compiles_no_statement_of_ours(desk: Desk) -> None:
    """Plans by index look dear to it: on a busy machine a tick that takes a millisecond was compiled for a second."""
    assert desk.sql("SHOW jit") == [("off",)]


@pytest.mark.parametrize(
    "statement",
    ["UPDATE holds SET status = 'nonsense'", "UPDATE holds SET leads = NULL", "UPDATE holds SET customer = NULL"],
)
def test_the_row_that_a_server_shows_with_a_refusal_is_in_no_error_nor_its_traceback(
    desk: Desk, statement: str
) -> None:  # fmt: skip
    contacts = Contacts(email="anna@example.com", phone="+4915112345678", timezone="Europe/Berlin")
    desk.placed("h", contacts=contacts, timezone="Europe/Berlin")
    with pytest.raises(DBAPIError) as failure:
        desk.sql(statement)
    told = "".join(traceback.format_exception(failure.value)) + repr(failure.value) + repr(failure.value.orig)
    assert faults.sqlstate(failure.value) in {"23514", "23502"}
    assert faults.cause(failure.value) in told
    assert ("anna@example.com" in told, "+4915112345678" in told, "DETAIL" in told) == (False, False, False)
