"""Each check finds what it is for, names the hold, and is silent on a database that is in order."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from cli.local.engines import Postgres
from db import pruning
from db.engine import Database
from db.invariants_bridge import BRIDGE_INVARIANTS
from db.invariants_reminders import REMINDER_INVARIANTS
from db.invariants_webhooks import WEBHOOK_INVARIANTS
from db.reconcile import CHECKS, Violation, violations
from domain.identity import HoldId, cohort
from tests.conftest import libpq
from tests.helpers import Desk, whole_second
from tests.histories import EUR, HOUR, forget, live_through_everything, set_aside, sweep

_numbers = itertools.count(1)


def found(database: Database, **options: Any) -> list[Violation]:
    with database.transaction() as tx:
        return violations(tx, **options)


def told(database: Database, **options: Any) -> list[tuple[str, str | None]]:
    """Check and hold of each violation."""
    return [(violation.check, violation.hold_id) for violation in found(database, **options)]


@contextmanager
def copied(postgres: Postgres, template: str, name: str) -> Iterator[str]:
    """A copy of a database, dropped afterwards; its name."""
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield name
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def in_order(postgres: Postgres, template: str) -> Iterator[str]:
    """A database that has seen everything and is in order; tests copy it."""
    with copied(postgres, template, "holdfast_in_order") as name:
        database = Database(postgres.database(name))
        live_through_everything(Desk(database))
        database.close()
        yield name


@pytest.fixture
def busy(postgres: Postgres, in_order: str) -> Iterator[Desk]:
    """A copy of it."""
    with copied(postgres, in_order, f"holdfast_busy_{next(_numbers)}") as name:
        database = Database(postgres.database(name))
        yield Desk(database)
        database.close()


def test_a_busy_database_in_order_has_no_violation(busy: Desk) -> None:
    assert busy.count("holds") == 18
    assert found(busy.database, kept=timedelta(hours=1)) == []


def test_a_pruned_database_has_no_violation(busy: Desk) -> None:
    """Closed holds, receipts and runs are gone; the ledger and the dead letters remain."""
    entries, letters = busy.count("ledger"), busy.count("dead_letters")
    for (hold,) in busy.sql("SELECT id FROM holds WHERE status <> 'held'"):
        forget(busy, hold)
        assert found(busy.database) == []
    busy.sql("DELETE FROM receipts")
    assert found(busy.database) == []
    busy.sql("DELETE FROM sweep_runs")
    assert found(busy.database) == []
    assert (busy.count("ledger"), busy.count("dead_letters")) == (entries, letters)


def test_a_database_pruned_by_the_command_has_no_violation(busy: Desk) -> None:
    pruned = pruning.prune(busy.database, older_than=timedelta(0), batch=3)
    assert (pruned.holds, busy.count("holds"), busy.count("receipts")) == (11, 7, 0)
    assert found(busy.database) == []


UNGUARDED = """
ALTER TABLE ledger DISABLE TRIGGER ALL;
ALTER TABLE holds DROP CONSTRAINT holds_id;
"""

PLANTED: list[tuple[str, list[tuple[str, str | None]]]] = [
    ("UPDATE ledger SET amount = 2 * amount WHERE hold_id = 'kept'", [("opening-entry", "kept")]),
    ("UPDATE ledger SET currency = 'USD' WHERE hold_id = 'kept'", [("opening-entry", "kept")]),
    (
        "INSERT INTO ledger VALUES ('free', 'open', 5, 'EUR', 'placed', now())",
        [("opening-entry", "free"), ("ledger-sum", None)],
    ),
    ("DELETE FROM ledger WHERE hold_id = 'live'", [("opening-entry", "live"), ("ledger-sum", None)]),
    (
        "UPDATE ledger SET reason = 'cancelled' WHERE hold_id = 'kept' AND side = 'close'",
        [("closing-entry", "kept")],
    ),
    (
        "DELETE FROM ledger WHERE hold_id = 'kept' AND side = 'close'",
        [("closing-entry", "kept"), ("ledger-sum", None)],
    ),
    (
        "UPDATE ledger SET amount = -299 WHERE hold_id = 'kept' AND side = 'close'",
        [("closing-entry", "kept"), ("ledger-sum", None)],
    ),
    (
        "INSERT INTO ledger VALUES ('live', 'close', -100, 'EUR', 'expired', now())",
        [("closing-entry", "live"), ("ledger-sum", None)],
    ),
    (
        "DELETE FROM ledger WHERE hold_id = 'pruned' AND side = 'close'",
        [("pruned-entries", "pruned"), ("ledger-sum", None)],
    ),
    (
        "UPDATE ledger SET currency = 'CHF' WHERE hold_id = 'pruned' AND side = 'close'",
        [("pruned-entries", "pruned"), ("ledger-sum", None), ("ledger-sum", None)],
    ),
    ("UPDATE effects SET key = key || 'x' WHERE key = 'hold-placed:live'", [("effect-key", "live")]),
    (
        "UPDATE effects SET key = replace(key, ':v1:', ':v1:1') WHERE hold_id = 'gone' AND kind = 'expired'",
        [("effect-key", "gone")],
    ),
    (
        """INSERT INTO effects (key, hold_id, kind, version, expires_at, at, imported)
           VALUES ('hold-placed:nobody', 'nobody', 'placed', 1, now(), now(), true)""",
        [("effect-hold", "nobody")],
    ),
    (
        """DELETE FROM effects WHERE key = 'hold-placed:free';
           DELETE FROM events WHERE event_id = 'reservation-placed:free:1'""",
        [("placed-effect", "free")],
    ),
    (
        "UPDATE effects SET imported = false WHERE hold_id = 'told' AND kind = 'placed'",
        [("placed-effect", "told")],
    ),
    (
        """DELETE FROM effects WHERE key = 'hold-extended:longer:v2';
           DELETE FROM events WHERE event_id = 'reservation-extended:longer:2'""",
        [("extended-effects", "longer")],
    ),
    ("UPDATE holds SET expires_at = expires_at + interval '1 h' WHERE id = 'live'", [("deadline", "live")]),
    ("UPDATE holds SET status = 'cancelled' WHERE id = 'by-hand'", [("closing-effect", "by-hand")]),
    (
        "UPDATE holds SET status = 'held', closed_at = NULL WHERE id = 'by-hand'",
        [("closing-effect", "by-hand")],
    ),
    (
        """DELETE FROM effects WHERE hold_id = 'by-hand' AND kind = 'expired';
           DELETE FROM events WHERE event_id = 'reservation-expired:by-hand:1'""",
        [("closing-effect", "by-hand")],
    ),
    (
        """INSERT INTO effects (key, hold_id, kind, version, expires_at, at, imported)
           SELECT 'hold-confirmed:' || id, id, 'confirmed', version, expires_at, now(), true
           FROM holds WHERE id = 'by-hand'""",
        [("closing-effect", "by-hand")],
    ),
    (
        "UPDATE effects SET at = expires_at - interval '1 us' WHERE hold_id = 'gone' AND kind = 'expired'",
        [("expired-early", "gone")],
    ),
    ("UPDATE effects SET at = expires_at WHERE hold_id = 'kept' AND kind = 'confirmed'", [("closed-late", "kept")]),
    (
        "UPDATE effects SET at = expires_at WHERE hold_id = 'dropped' AND kind = 'cancelled'",
        [("closed-late", "dropped")],
    ),
    (
        """UPDATE effects AS e SET at = b.expires_at FROM effects AS b
           WHERE e.key = 'hold-extended:longer:v3' AND b.key = 'hold-extended:longer:v2'""",
        [("extended-late", "longer")],
    ),
    ("UPDATE effects SET receipt = NULL WHERE hold_id = 'by-hand' AND kind = 'expired'", [("receipt", "by-hand")]),
    ("DELETE FROM receipts WHERE message_id = 'cli:1'", [("receipt", "by-hand")]),
    ("UPDATE receipts SET tally = '{}' WHERE message_id = 'cli:1'", [("receipt-tally", None)]),
    ("DELETE FROM sweep_runs WHERE id = 1", [("receipt-run", None)]),
    ("UPDATE sweep_runs SET observed = 0 WHERE id = 1", [("receipt-run", None)]),
    ("DELETE FROM events WHERE event_id = 'reservation-placed:live:1'", [("effect-event", "live")]),
    (
        "UPDATE events SET type = 'reservation.expired' WHERE event_id = 'reservation-placed:live:1'",
        [("effect-event", "live"), ("event-body", "live")],
    ),
    (
        """INSERT INTO events SELECT 'reservation-placed:live:2', hold_id, type, occurred_at, body
           FROM events WHERE event_id = 'reservation-placed:live:1'""",
        [("event-effect", "live")],
    ),
    (
        f"""UPDATE holds SET id = 'fr.ee', cohort = {cohort(HoldId("fr.ee"))} WHERE id = 'free';
           UPDATE effects SET hold_id = 'fr.ee', key = 'hold-placed:fr.ee' WHERE hold_id = 'free';
           UPDATE events SET hold_id = 'fr.ee', event_id = 'reservation-placed:fr.ee:1',
                             body = convert_to(replace(convert_from(body, 'UTF8'), '"free"', '"fr.ee"'), 'UTF8')
           WHERE hold_id = 'free'""",
        [("event-id", "fr.ee")],
    ),
    (r"UPDATE events SET body = '\xff22' WHERE event_id = 'reservation-placed:live:1'", [("event-body", "live")]),
    ("UPDATE events SET body = '{]' WHERE event_id = 'reservation-placed:live:1'", [("event-body", "live")]),
    ("UPDATE events SET body = '[]' WHERE event_id = 'reservation-placed:live:1'", [("event-body", "live")]),
    (
        """UPDATE events AS v SET body = o.body FROM events AS o
           WHERE v.event_id = 'reservation-placed:live:1' AND o.event_id = 'reservation-placed:kept:1'""",
        [("event-body", "live")],
    ),
    ("DELETE FROM dead_letters WHERE hold_id = 'aside'", [("set-aside-letter", "aside")]),
    ("UPDATE dead_letters SET replayed_at = now() WHERE hold_id = 'aside'", [("set-aside-letter", "aside")]),
    ("UPDATE holds SET set_aside = true WHERE id = 'kept'", [("set-aside-closed", "kept")]),
    ("UPDATE holds SET set_aside = false WHERE id = 'aside'", [("letter-hold", "aside")]),
    ("UPDATE holds SET cohort = (cohort + 1) % 100 WHERE id = 'live'", [("cohort", "live")]),
]


def _name(number: int, expected: list[tuple[str, str | None]]) -> str:
    return f"{number}-{expected[0][0]}"


@pytest.mark.parametrize(
    ("damage", "expected"), PLANTED, ids=[_name(number, expected) for number, (_, expected) in enumerate(PLANTED)]
)
def test_a_planted_violation_is_found_and_nothing_else(
    busy: Desk, damage: str, expected: list[tuple[str, str | None]]
) -> None:
    for statement in (UNGUARDED + damage).split(";"):
        if statement.strip():
            busy.sql(statement.replace(":", r"\:"))
    assert told(busy.database) == expected


def test_each_check_has_a_violation_planted_for_it() -> None:
    elsewhere = {**WEBHOOK_INVARIANTS, **REMINDER_INVARIANTS, **BRIDGE_INVARIANTS}
    assert {check for _, expected in PLANTED for check, _ in expected} == set(CHECKS) - set(elsewhere)


def test_a_violation_says_what_is_wrong(busy: Desk) -> None:
    busy.sql("UPDATE holds SET set_aside = true WHERE id = 'kept'")
    busy.sql("DELETE FROM effects WHERE key = 'hold-extended\\:longer\\:v2'")
    busy.sql("UPDATE sweep_runs SET observed = 0 WHERE id = 1")
    assert found(busy.database) == [
        Violation("extended-effects", "longer", "began at version 1, is at 3, effects hold-extended: 1, from v3 to v3"),
        Violation("receipt-run", None, "receipts of run 1 count 2 expired, the run observed 0"),
        Violation("event-effect", "longer", "event reservation-extended:longer:2 follows from no effect"),
        Violation("set-aside-closed", "kept", "is confirmed, and set aside"),
    ]


def test_a_receipt_may_count_more_than_remains_unless_nothing_of_its_time_can_be_pruned(busy: Desk) -> None:
    busy.sql(
        "UPDATE receipts SET tally = CAST(:tally AS jsonb) WHERE message_id = 'cli\\:1'", tally='{"expired": {"1": 2}}'
    )
    assert told(busy.database) == []
    assert told(busy.database, kept=timedelta(minutes=10)) == [("receipt-tally", None)]


def test_each_check_reports_at_most_so_many_and_goes_on_to_the_next(busy: Desk) -> None:
    busy.sql("UPDATE holds SET cohort = (cohort + 1) % 100, set_aside = status <> 'held'")
    two_of_each = told(busy.database, limit_per_check=2)
    assert two_of_each[:-2] == [
        ("set-aside-closed", "by-hand"),
        ("set-aside-closed", "dropped"),
        ("letter-hold", "aside"),
    ]
    assert [check for check, _ in two_of_each[-2:]] == ["cohort", "cohort"]
    assert set(two_of_each) < set(told(busy.database))


def test_what_is_committed_meanwhile_belongs_to_the_next_reconcile(busy: Desk) -> None:
    """It begins as one snapshot: damage done after its first query is not seen by its last one."""
    with busy.database.transaction() as tx:
        done: list[str] = []

        def damage(*_: Any) -> None:
            if len(done) == 2:
                busy.sql("UPDATE holds SET cohort = (cohort + 1) % 100 WHERE id = 'live'")
            done.append("a statement")

        event.listen(tx, "after_cursor_execute", damage)
        assert violations(tx) == []
    assert len(done) > len(CHECKS)
    assert told(busy.database) == [("cohort", "live")]


def test_writers_that_commit_between_any_two_checks_raise_no_false_alarm(busy: Desk) -> None:
    busy.sql("UPDATE cohort_paths SET path = 'sweep'")  # so that the sweep sees every round's overdue hold
    with busy.database.transaction() as tx:
        rounds: list[str] = []

        def write(*_: Any) -> None:
            name = f"round-{len(rounds)}"
            rounds.append(name)
            busy.placed(f"{name}-live", amount=5, **EUR)
            busy.extend(f"{name}-live", 1, HOUR)
            busy.placed(f"{name}-kept", amount=7, **EUR)
            busy.confirm(f"{name}-kept")
            busy.overdue(f"{name}-gone", amount=11, **EUR)
            sweep(busy)
            busy.overdue(f"{name}-aside")
            set_aside(busy, f"{name}-aside")

        event.listen(tx, "after_cursor_execute", write)
        assert violations(tx) == []
    assert len(rounds) > len(CHECKS)
    assert busy.count("holds", "id LIKE 'round-%'") == 4 * len(rounds)
    assert found(busy.database) == []


def test_a_transaction_that_has_seen_an_older_snapshot_is_refused(busy: Desk) -> None:
    with busy.database.transaction() as tx:
        whole_second(tx)
        with pytest.raises(DBAPIError, match="must be called before any query"):
            violations(tx)


def test_nothing_is_written_by_a_reconcile(busy: Desk) -> None:
    before = busy.everything()
    with busy.database.transaction() as tx:
        violations(tx)
        with pytest.raises(DBAPIError, match="read-only transaction"):
            tx.exec_driver_sql("UPDATE holds SET claims = 0")
    assert busy.everything() == before
