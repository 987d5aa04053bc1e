"""Expiring: each hold once, whatever message comes, how often and in which order."""

import subprocess
import sys
from datetime import timedelta
from itertools import permutations

import pytest

from domain.holds import Status
from domain.identity import HoldId, cohort
from domain.instants import rfc3339
from domain.outcomes import Outcome
from domain.paths import Carrier, Path
from domain.references import Reference
from domain.terms import For
from tests.helpers import Desk, carrier, without_receipts

SECOND = timedelta(seconds=1)


def test_expiring_writes_effect_closing_entry_event_and_receipt_in_one_transaction(desk: Desk) -> None:
    hold = desk.overdue("seat-1", amount=1250, currency="EUR")
    desk.sql("INSERT INTO sweep_runs (id, sweep, started_at) VALUES (812, 'expiry:sweep', now())")
    by = Carrier(
        message_id="m-7", path=Path.SWEEP, run=812, worker="expiry@host", retries=2, redelivered=True
    )  # fmt: skip
    assert desk.expire(hold.reference, by=by) == [Outcome.EXPIRED]
    after = desk.read("seat-1")
    assert (after.status, after.close_reason, after.version) == (Status.EXPIRED, "deadline passed", 1)
    at = after.closed_at
    assert at is not None
    [receipt] = desk.sql("SELECT * FROM receipts")
    assert tuple(receipt)[1:] == ("m-7", "sweep", 812, 2, True, "expiry@host", {"expired": {"62": 1}}, at)
    assert desk.sql("SELECT key, version, expires_at, at, receipt FROM effects WHERE kind = 'expired'") == [
        (hold.reference.job_id, 1, hold.expires_at, at, receipt.id)
    ]
    assert desk.sql("SELECT amount, currency, reason, at FROM ledger WHERE side = 'close'") == [
        (-1250, "EUR", "expired", at)
    ]
    body = (
        f'{{"type":"reservation.expired","timestamp":"{rfc3339(at)}","data":{{"reservation_id":"seat-1",'
        f'"hold_version":1,"resource":"seat 14","expires_at":"{rfc3339(hold.expires_at)}"}}}}'
    )
    assert desk.sql("SELECT event_id, type, occurred_at, body FROM events WHERE type = 'reservation.expired'") == [
        ("reservation-expired:seat-1:1", "reservation.expired", at, body.encode())
    ]
    assert desk.sql(
        "SELECT count(DISTINCT xmin::text) FROM (SELECT xmin FROM receipts UNION ALL SELECT xmin FROM holds) x"
    ) == [(1,)]


def test_only_a_held_hold_expires_of_one_overdue_in_each_status(desk: Desk) -> None:
    holds = {
        name: desk.placed(name, amount=5, currency="EUR") for name in ("held", "confirmed", "cancelled", "expired")
    }
    desk.confirm("confirmed")
    desk.cancel("cancelled")
    desk.age("held", timedelta(hours=3))
    desk.age("expired", timedelta(hours=3))
    desk.expire(desk.read("expired").reference)
    late = holds["confirmed"].expires_at + SECOND
    closed = desk.sql("SELECT * FROM holds WHERE id <> 'held' ORDER BY id")
    references = [desk.read(name).reference for name in holds]
    assert desk.expire(*references, now=late) == [Outcome.EXPIRED, Outcome.STALE, Outcome.STALE, Outcome.DUPLICATE]
    assert desk.sql("SELECT * FROM holds WHERE id <> 'held' ORDER BY id") == closed
    assert desk.count("ledger", "side = 'close'") == 4


@pytest.mark.parametrize(
    "age",
    [
        timedelta(hours=2, minutes=1), timedelta(hours=23, minutes=59), timedelta(hours=24, minutes=10),
        timedelta(hours=25, minutes=30), timedelta(hours=49),
    ],
)  # fmt: skip
def test_a_hold_of_two_hours_is_overdue_at_every_age_beyond(desk: Desk, age: timedelta) -> None:
    desk.placed("h", For(timedelta(hours=2)))
    desk.age("h", age)
    assert desk.read("h").standing == "lapsed"
    assert desk.expire(desk.read("h").reference) == [Outcome.EXPIRED]


def test_the_deadline_itself_is_due_and_the_microsecond_before_is_early(desk: Desk) -> None:
    hold = desk.placed("h")
    just_before = hold.expires_at - timedelta.resolution
    assert desk.expire(hold.reference, now=just_before) == [Outcome.EARLY]
    assert desk.expire(hold.reference, now=hold.expires_at) == [Outcome.EXPIRED]


def test_an_early_message_changes_nothing_and_the_on_time_message_still_works(desk: Desk) -> None:
    hold = desk.placed("h", amount=1250, currency="EUR")
    before = without_receipts(desk)
    for _ in range(3):
        assert desk.expire(hold.reference) == [Outcome.EARLY]
        assert without_receipts(desk) == before
    assert desk.expire(hold.reference, now=hold.expires_at) == [Outcome.EXPIRED]
    assert desk.count("ledger", "side = 'close'") == 1


def test_a_repeat_is_a_duplicate_and_changes_nothing(desk: Desk) -> None:
    hold = desk.overdue("h", amount=1250, currency="EUR")
    desk.expire(hold.reference)
    before = without_receipts(desk)
    for _ in range(3):
        assert desk.expire(hold.reference) == [Outcome.DUPLICATE]
    assert without_receipts(desk) == before
    assert desk.count("receipts") == 4


def test_both_orders_of_a_duplicate_leave_the_identical_final_state(desk: Desk) -> None:
    """Two messages about the same holds, one on time and one delivered again: every table ends the same."""
    holds = [desk.placed(name, amount=1250, currency="EUR") for name in ("a", "b")]
    now = holds[1].expires_at
    backup = [
        desk.sql(f"CREATE TABLE saved_{name} AS TABLE {name}") for name in ("holds", "effects", "events", "ledger")
    ]
    assert len(backup) == 4
    first = (carrier("first"), [hold.reference for hold in holds])
    second = (carrier("second"), [hold.reference for hold in reversed(holds)])
    ends = []
    for order in permutations([first, second]):
        for by, references in order:
            desk.expire(*references, by=by, now=now)
        state = desk.everything()
        state["effects"] = [row[:6] + row[7:] for row in state["effects"]]
        state["receipts"] = [row[2:] for row in state["receipts"]]
        ends.append(state)
        desk.sql("ALTER TABLE ledger DISABLE TRIGGER ALL")
        desk.sql("TRUNCATE holds, effects, events, ledger, receipts")
        for name in ("holds", "effects", "events", "ledger"):
            desk.sql(f"INSERT INTO {name} TABLE saved_{name}")
    assert ends[0] == ends[1]
    assert [row[1] for row in ends[0]["ledger"]] == ["close", "open"] * 2


def test_the_same_reference_twice_in_one_message_is_one_effect_and_one_duplicate(desk: Desk) -> None:
    a, b, early = desk.overdue("a"), desk.overdue("b"), desk.placed("early")
    missing = Reference.to(HoldId("nobody"), 1, a.expires_at)
    batch = [a.reference, early.reference, missing, b.reference, a.reference, early.reference, missing, a.reference]
    assert desk.expire(*batch) == [
        Outcome.EXPIRED, Outcome.EARLY, Outcome.MISSING, Outcome.EXPIRED,
        Outcome.DUPLICATE, Outcome.DUPLICATE, Outcome.MISSING, Outcome.DUPLICATE,
    ]  # fmt: skip
    assert desk.count("effects", "kind = 'expired'") == 2
    assert desk.expire(early.reference, now=early.expires_at) == [Outcome.EXPIRED]


def test_the_same_batch_twice_is_all_duplicates(desk: Desk) -> None:
    batch = [desk.overdue(f"h{n}").reference for n in range(5)]
    assert desk.expire(*batch) == [Outcome.EXPIRED] * 5
    assert desk.expire(*batch) == [Outcome.DUPLICATE] * 5


def test_a_receipt_counts_its_outcomes_by_cohort(desk: Desk) -> None:
    a, b, c = desk.overdue("a"), desk.overdue("b"), desk.placed("c")
    desk.expire(a.reference, b.reference, c.reference, a.reference)
    assert desk.sql("SELECT tally FROM receipts") == [
        (
            {
                "expired": {str(a.cohort): 1, str(b.cohort): 1},
                "early": {str(c.cohort): 1},
                "duplicate": {str(a.cohort): 1},
            },
        ),
    ]


def test_a_message_about_nothing_leaves_its_receipt_and_nothing_else(desk: Desk) -> None:
    before = without_receipts(desk)
    assert desk.expire() == []
    assert desk.expire(Reference.to(HoldId("nobody"), 1, desk.placed("h").expires_at)) == [Outcome.MISSING]
    assert desk.sql("SELECT tally FROM receipts ORDER BY id") == [
        ({},),
        ({"missing": {str(cohort(HoldId("nobody"))): 1}},),
    ]
    desk.sql("DELETE FROM holds")
    assert without_receipts(desk)["ledger"] == before["ledger"] == []


_EXPIRE_ELSEWHERE = """
import sys
from datetime import timedelta
from db.engine import Database
from db import expiry, holds
from domain.identity import HoldId
from domain.paths import Carrier
database = Database(sys.argv[1])
by = Carrier(message_id="m", path=None, run=None, worker="w")
with database.transaction() as tx:
    hold = holds.get(tx, HoldId(sys.argv[2]))
    print(hold.as_data())
    print([o.value for o in expiry.expire(tx, [hold.reference], by, grace=timedelta(0))])
    print(tx.exec_driver_sql("SELECT key FROM effects ORDER BY key").scalars().all())
database.close()
"""


@pytest.mark.parametrize("host", ["Pacific/Kiritimati", "America/St_Johns"])
def test_the_hosts_own_zone_changes_nothing(desk: Desk, database_url: str, host: str) -> None:
    due, early = desk.overdue("due"), desk.placed("early")

    def told(hold: str) -> str:
        command = [sys.executable, "-c", _EXPIRE_ELSEWHERE, database_url, hold]
        return subprocess.run(command, env={"TZ": host}, capture_output=True, text=True, check=True).stdout

    assert told("early").splitlines()[:2] == [str(early.as_data()), "['early']"]
    assert told("due").splitlines() == [
        str(due.as_data()), "['expired']", str([due.reference.job_id, "hold-placed:due", "hold-placed:early"]),
    ]  # fmt: skip


def test_a_receipt_names_only_a_run_that_is_on_record(desk: Desk) -> None:
    hold = desk.placed("h")
    assert desk.expire(hold.reference, by=carrier(run=777_777)) == [Outcome.EARLY]
    assert desk.sql("SELECT sweep_run FROM receipts") == [(None,)]
