"""The plain in-database scan: its own cohorts, through the same expiry, with receipts of its own path."""

from datetime import timedelta

from db import cohorts
from db.engine import Database
from domain.paths import Path
from tasks.lane import HereAndNow
from tasks.sweep import Swept, sweep
from tests.helpers import POLICY, Desk

NO_WAIT = timedelta(0)


def scan(database: Database, path: Path = Path.SCANNER) -> Swept:
    return sweep(database, path, POLICY, HereAndNow(database, POLICY, "w"), apart=NO_WAIT)


def test_it_expires_its_own_cohorts_only_and_its_receipts_say_so(database: Database) -> None:
    desk = Desk(database)
    mine, other = desk.overdue("a", amount=250, currency="EUR"), desk.overdue("b")
    assert mine.cohort != other.cohort
    cohorts.route(database, [mine.cohort], Path.SCANNER)
    assert scan(database).claimed == 1
    assert desk.sql("SELECT id, status FROM holds ORDER BY id") == [("a", "expired"), ("b", "held")]
    assert desk.sql("SELECT path, tally FROM receipts") == [("scanner", {"expired": {str(mine.cohort): 1}})]
    assert desk.count("ledger", "side = 'close'") == 1


def test_it_rescues_nobody_and_the_sweep_rescues_what_it_leaves(database: Database) -> None:
    desk = Desk(database)
    desk.overdue("h", by=timedelta(minutes=6))
    assert scan(database).run is None
    cohorts.route(database, range(100), Path.SCANNER)
    assert scan(database, Path.SWEEP).claimed == 1
    assert desk.sql("SELECT path FROM receipts") == [("rescue",)]
