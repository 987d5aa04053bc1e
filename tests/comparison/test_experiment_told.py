"""What a cell tells is what was seen: no publishing where nothing is published, no expiry told of the wrong hold."""

from collections.abc import Iterable
from datetime import UTC, datetime

from comparison.candidates.sweep import PlainSweep
from comparison.cases import CASES
from comparison.experiment import Entrant, Plan, experiment
from comparison.result import Result, Step
from comparison.trial import NO_MESSAGES
from db.engine import Database
from tests.comparison.trying import grounds_of

AT = datetime(2026, 12, 1, tzinfo=UTC)


def swept(database: Database, *cases: str) -> dict[str, Result]:
    """These cases with the plain sweep, which has no messages."""
    entrant = Entrant(name="sweep", title="Plain cron sweep", make=PlainSweep)
    plan = Plan(runs=1, seed=7, burst=20, cases=[case for case in CASES if case.id in cases])
    report = experiment([entrant], plan, grounds_of(database), at=AT, progress=lambda *_: None)
    return {result.case: result for result in report.results}


def told(steps: Iterable[Step]) -> list[tuple[str, str, str]]:
    return [(step.lane, step.what, step.subject) for step in steps]


def test_a_sweep_is_told_to_find_the_expired_hold_whichever_was_meant_to_come_first(database: Database) -> None:
    result = swept(database, "orders")["orders"]
    assert result.status == "pass"
    for timeline in result.timelines:
        assert told(timeline.steps) == [
            ("transport", "a tick finds it", "expired"),
            ("worker", "expired", "expired"),
            ("transport", "a tick finds nothing due", ""),
            ("transport", "a tick finds nothing due", ""),
            ("transport", "a tick finds nothing due", ""),
            ("hold", "expired", "expired"),
            ("hold", "held", "extended"),
        ]
    assert list(result.notes) == [NO_MESSAGES]


def test_nothing_is_told_to_be_published_where_there_are_no_messages(database: Database) -> None:
    results = swept(database, "orders", "early", "renewed", "beyond", "killed", "burst", "boundary")
    assert {result.case for result in results.values() if result.status != "pass"} == set()
    steps = [step for result in results.values() for timeline in result.timelines for step in timeline.steps]
    assert [step for step in steps if step.lane == "publisher" or "deliver" in step.what] == []


def test_a_hold_beyond_seven_days_is_left_alone_by_a_real_tick_and_brought_by_a_later_one(database: Database) -> None:
    [timeline] = swept(database, "beyond")["beyond"].timelines
    assert told(timeline.steps) == [
        ("transport", "tick", "beyond"),
        ("transport", "a tick finds nothing due", ""),
        ("hold", "604,802 s pass", "beyond"),
        ("transport", "tick", "beyond"),
        ("transport", "a tick finds it", "beyond"),
        ("worker", "expired", "beyond"),
    ]
