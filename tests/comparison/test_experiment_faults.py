"""Each case against a transport that is broken on purpose: each is seen to fail, by the check that names it."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

import pytest

from cli.local.engines import Postgres
from comparison.cases import CASES
from comparison.cases.burst import shuffled
from comparison.experiment import Entrant, Plan, experiment
from comparison.ground import expired_once, untouched
from comparison.processes import end, start
from comparison.result import Report, Result, Status
from db.engine import Database
from domain.identity import HoldId
from domain.references import Reference
from tests.comparison.table_queue import TableQueue
from tests.comparison.trying import Waiting, at_once, grounds_of

AT = datetime(2026, 12, 1, tzinfo=UTC)
BURST = 40
PATIENCE = 1.0
"""Seconds; the table's lease is half a second."""


def tried(database: Database, fault: str, *cases: str, runs: int = 1, seed: int = 7) -> Report:
    """These cases with the table, broken in this way."""

    entrant = Entrant(name="table", title="A table", make=lambda url: TableQueue(url, fault))
    chosen = [case for case in CASES if case.id in cases or not cases]
    plan = Plan(runs=runs, seed=seed, cases=chosen, burst=BURST, patience=PATIENCE)
    return experiment([entrant], plan, grounds_of(database), at=AT, progress=lambda *_: None)


def only(report: Report) -> Result:
    [result] = report.results
    return result


def broken_checks(result: Result) -> set[str]:
    return {check.what for check in result.checks if not check.passed}


FAULTS = {
    "orders": ("expires whatever a message names", "1 transition"),
    "withheld": ("acks before the commit", "outcomes: expired, duplicate"),
    "early": ("expires whatever a message names", "outcomes: early, expired"),
    "renewed": ("expires whatever a message names", "outcomes: stale, expired, stale"),
    "missing": ("wraps the payload", "outcomes: missing, expired"),
    "malformed": ("wraps the payload", "outcomes: expired"),
    "payload": ("cuts what is too large", "4,097 bytes are refused"),
    "delay": ("forgets delays", "nothing comes at once"),
    "beyond": ("cuts a delay short", "it is within the published limit"),
    "later": ("never ticks", "a tick within seven days comes"),
    "killed": ("acks before the commit", "a consumer is killed before-ack"),
    "burst": ("loses one in twenty", "40 transitions"),
    "boundary": ("pushes to a private address", "no private push endpoint"),
}


OTHERS = [
    ("reopens what was expired", "orders", "1 transition"),
    ("forgets acks", "withheld", "nothing comes after the acknowledgement"),
    ("wraps the payload", "boundary", "the worker sees our payload and nobody else's"),
    ("reopens what was expired", "burst", "40 transitions"),
    ("forgets delays", "later", "nothing comes before its time"),
    ("cuts a delay short", "beyond", "nothing comes a second early"),
    ("forgets what waits longer", "beyond", "outcomes: expired"),
    ("is three seconds early", "delay", "nothing comes two seconds early"),
    ("loses the last byte", "payload", "4,096 bytes arrive whole, and become a dead letter"),
    ("expires whatever a message names", "killed", f"hold is {untouched()}"),
]
"""More ways to be broken, and by which check they are found."""

SOUND_BEYOND = {
    "": "The hold waited in its table; within seven days of its deadline it was published, as the bridge does.",
    "has no delays": "It has no delays: the hold waits in its table, whatever its deadline. "
    "The row's deadline was moved.",
    "keeps longer delays": None,
}
"""The ways to be sound with a second more than seven days, and what the cell says of each."""

Found = Mapping[tuple[str, str], Waiting]


@pytest.fixture(scope="module")
def found(postgres: Postgres, template: str) -> Iterator[Found]:
    """What was found of each fault in its case, and of the sound transport in all of them."""
    pairs = [(fault, case) for case, (fault, _) in FAULTS.items()] + [(fault, case) for fault, case, _ in OTHERS]
    jobs = {("", ""): partial(tried, fault="")}
    jobs |= {(fault, "beyond"): partial(tried_in, fault=fault, case="beyond") for fault in SOUND_BEYOND}
    jobs |= {(fault, case): partial(tried_in, fault=fault, case=case) for fault, case in pairs}
    with at_once(postgres, template, jobs) as reports:
        yield reports


def tried_in(database: Database, *, fault: str, case: str) -> Report:
    return tried(database, fault, case)


def test_a_sound_transport_passes_every_case(found: Found) -> None:
    report = found["", ""].result()
    assert {result.case: result.summary for result in report.results if result.status != "pass"} == {}
    assert [result.case for result in report.results] == [case.id for case in CASES]
    assert report.columns[0].violations == []
    assert not report.failed


def test_there_is_a_fault_for_each_case() -> None:
    assert list(FAULTS) == [case.id for case in CASES]


@pytest.mark.parametrize("case", FAULTS)
def test_a_case_fails_where_the_transport_is_broken(case: str, found: Found) -> None:
    fault, broken = FAULTS[case]
    result = only(found[fault, case].result())
    assert result.status is Status.FAILED
    assert (result.runs, result.passed_runs) == (1, 0)
    assert broken in broken_checks(result)


@pytest.mark.parametrize(("fault", "case", "broken"), OTHERS)
def test_other_faults_are_found_too(fault: str, case: str, broken: str, found: Found) -> None:
    assert broken in broken_checks(only(found[fault, case].result()))


@pytest.mark.parametrize("fault", SOUND_BEYOND)
def test_a_second_more_than_seven_days_is_seen_to_expire_once_whoever_keeps_it(fault: str, found: Found) -> None:
    result = only(found[fault, "beyond"].result())
    assert result.status is Status.PASSED
    assert f"beyond is {expired_once()}" in [check.what for check in result.checks]
    assert list(result.notes) == [note for note in [SOUND_BEYOND[fault]] if note]


def test_a_failed_case_says_only_what_was_seen_in_it(found: Found) -> None:
    for case in ("withheld", "killed"):
        assert only(found["acks before the commit", case].result()).notes == []


def test_what_a_failed_case_left_behind_fails_no_other(database: Database) -> None:
    report = tried(database, "loses the second", "missing", "later")
    assert [(result.case, result.status.value) for result in report.results] == [("missing", "fail"), ("later", "pass")]


def test_what_is_not_offered_is_said_with_its_published_limit_and_fails_nothing(database: Database) -> None:
    report = tried(database, "has no delays", "delay", "beyond")
    assert [(result.case, result.status.value, result.runs) for result in report.results] == [
        ("delay", "not offered", 0),
        ("beyond", "pass", 1),
    ]
    assert report.results[0].summary == "delayed delivery: it has no delays (its page says so)"
    assert not report.failed


def test_a_candidate_that_is_away_is_skipped_with_its_reason(database: Database) -> None:
    report = tried(database, "is away", "orders")
    assert (only(report).status, only(report).summary) == (Status.SKIPPED, "the table is not there; make it")
    assert report.failed, "nothing was tried"


class Untidy(TableQueue):
    def stop(self) -> None:
        super().stop()
        raise OSError("its server has gone")


class Stillborn(TableQueue):
    def start(self) -> None:
        raise RuntimeError("no licence")


def test_one_that_cannot_start_or_tidy_up_costs_nobody_their_results(database: Database) -> None:
    entrants = [Entrant(name=made.__name__, title="A table", make=made) for made in (Untidy, Stillborn)]
    plan = Plan(runs=1, seed=7, cases=[case for case in CASES if case.id == "missing"], patience=PATIENCE)
    report = experiment(entrants, plan, grounds_of(database), at=AT, progress=lambda *_: None)
    assert [result.status.value for result in report.results] == ["pass", "skipped"]
    assert report.results[1].summary == "it did not start: RuntimeError: no licence"
    assert [column.left for column in report.columns] == ["OSError: its server has gone", None]


def test_each_run_has_holds_of_its_own_and_all_are_counted(database: Database) -> None:
    result = only(tried(database, "", "renewed", runs=3))
    assert (result.status, result.runs, result.passed_runs) == (Status.PASSED, 3, 3)


def test_one_failing_run_fails_the_case_and_is_the_one_shown(database: Database) -> None:
    result = only(tried(database, "loses one in twenty", "renewed", runs=7))
    assert (result.status, result.runs, result.passed_runs) == (Status.FAILED, 7, 6)
    assert "nothing came" in result.summary


def test_the_same_seed_shuffles_alike_and_another_otherwise() -> None:
    deadline = AT.replace(hour=1)
    references = [Reference.to(HoldId(f"h-{number}"), 1, deadline) for number in range(1000)]

    def order(seed: int, candidate: str = "table", run: int = 0) -> list[Reference]:
        return shuffled(references, 100, Plan(runs=1, seed=seed).rng(candidate, "burst", run))

    first = order(7)
    assert len(first) == 1100
    assert len(set(first)) == 1000
    assert order(7) == first
    assert order(8) != first
    assert order(7, run=1) != first
    assert order(7, candidate="sweep") != first


def test_a_consumer_ends_with_the_experiment_that_started_it(database: Database, database_url: str) -> None:
    candidate = TableQueue(database_url)
    candidate.start()
    door = candidate.doorway()
    order = {"module": door.module, "address": dict(door.address), "database": database_url, "name": "x"}
    consumer = start("comparison.consumer", {**order, "dies": "before-ack"})
    assert consumer.stdin is not None
    assert consumer.poll() is None
    consumer.stdin.close()
    assert consumer.wait(20) == 1
    end(consumer)
    candidate.stop()
