"""What the expiry task does with a chunk, and with a reference that cannot be applied."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from db.engine import Database
from domain.outcomes import Outcome, Tally
from domain.paths import Path
from tasks.expiry import apply
from tasks.messages import read_references
from tests.helpers import POLICY, Desk, carrier, fill, whole_second

BROKEN = "'h-037'"


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def due(database: Database, count: int, *, run: int | None = None) -> list[Any]:
    with database.transaction() as tx:
        references = fill(tx, [f"h-{n:03}" for n in range(count)], deadline=whole_second(tx, timedelta(minutes=-1)))
    if run is not None:
        desk = Desk(database)
        desk.sql("INSERT INTO sweep_runs (id, sweep, started_at) VALUES (:run, 'expiry:sweep', now())", run=run)
        desk.sql(
            "UPDATE holds SET claimed_run = :run, claimed_until = now() + interval '1 minute', claims = 1", run=run
        )
    return references


def forbid(desk: Desk, hold: str) -> None:
    """Make one hold's expiry fail with an error that lies in the data (class 23)."""
    desk.sql(f"ALTER TABLE events ADD CONSTRAINT poison CHECK (hold_id NOT IN ({hold}))")


def test_one_bad_row_among_a_hundred_leaves_the_others_done(database: Database, desk: Desk) -> None:
    references = due(database, 100, run=7)
    forbid(desk, BROKEN)
    tally = apply(database, references, carrier(path=Path.SWEEP, run=7), POLICY)
    assert tally == Tally({Outcome.EXPIRED: 99})
    assert desk.sql("SELECT id, status, claims, set_aside FROM holds WHERE status <> 'expired'") == [
        ("h-037", "held", 1, False)
    ]
    assert desk.count("ledger", "side = 'close'") == 99
    assert desk.count("dead_letters") == 0
    assert desk.sql(
        "SELECT sum((tally -> 'expired' -> c)::int) FROM receipts, jsonb_object_keys(tally -> 'expired') c"
    ) == [(99,)]


def test_a_hold_that_fails_alone_is_postponed_longer_each_time_then_set_aside(database: Database, desk: Desk) -> None:
    (reference,) = due(database, 1, run=7)
    forbid(desk, "'h-000'")
    waits = []
    for claims in (1, 2, 3):
        desk.sql("UPDATE holds SET claims = :claims", claims=claims)
        assert apply(database, [reference], carrier(path=Path.SWEEP, run=7), POLICY) == Tally()
        waits.append(desk.sql("SELECT claimed_until - now() FROM holds")[0][0].total_seconds())
    assert [round(wait, -1) for wait in waits] == [120, 240, 480]
    assert desk.sql("SELECT status, set_aside FROM holds") == [("held", True)]
    (letter,) = desk.sql("SELECT kind, hold_id, sweep_run, attempts, error FROM dead_letters")
    assert (letter.kind, letter.hold_id, letter.sweep_run, letter.attempts) == ("expiry", "h-000", 7, 3)
    assert "poison" in letter.error


def test_a_run_that_would_set_aside_too_many_stops(database: Database, desk: Desk) -> None:
    references = due(database, 104, run=7)
    forbid(desk, ", ".join(f"'h-{n:03}'" for n in range(103)))
    desk.sql("UPDATE holds SET claims = 3")
    tally = apply(database, references, carrier(path=Path.SWEEP, run=7), POLICY)
    assert desk.count("dead_letters") == 100
    assert desk.count("holds", "set_aside") == 100
    assert desk.sql("SELECT error FROM sweep_runs") == [("stopped: it would set aside more than 100 holds",)]
    assert tally.counts.get(Outcome.EXPIRED, 0) + desk.count("holds", "status = 'held'") == 104


@pytest.mark.parametrize(
    "fault",
    [
        "REVOKE INSERT ON ledger FROM clerk",
        """CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
           CREATE TRIGGER broken BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION broken()""",
    ],
    ids=["a missing grant", "a broken trigger"],
)
def test_a_systemic_fault_sets_nothing_aside_and_splits_nothing(database: Database, desk: Desk, fault: str) -> None:
    references = due(database, 50, run=7)
    desk.sql("UPDATE holds SET claims = 3")
    desk.sql("""DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN;
                GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk;
                GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO clerk""")
    desk.sql(fault)
    clerk = Database(str(database.engine.url.set(username="clerk")))
    before = desk.everything()
    with pytest.raises(DBAPIError):
        apply(clerk, references, carrier(path=Path.SWEEP, run=7), POLICY)
    clerk.close()
    assert desk.everything() == before
    desk.sql("DROP OWNED BY clerk; DROP ROLE clerk")


def test_a_reference_that_cannot_be_read_becomes_a_dead_letter_once(database: Database, desk: Desk) -> None:
    good = due(database, 1)[0].as_data()
    refs: list[object] = [good, {**good, "hold_version": True}, "\ud800\x00", {**good, "\x00": 1}]
    for _ in range(2):
        assert [reference.as_data() for reference in read_references(database, refs, carrier("m-1"))] == [good]
    assert desk.sql("SELECT key, kind, attempts, error FROM dead_letters ORDER BY key") == [
        ("malformed:m-1:1", "malformed", 2, "hold_version: must be a whole number from 1 to 2147483647"),
        ("malformed:m-1:2", "malformed", 2, "reference: must be a JSON object with the four fields of a reference"),
        ("malformed:m-1:3", "malformed", 2, "\\x00: is no field of a reference"),
    ]
