"""Races: real connections and processes that start together; whoever loses is told so and changes nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.engine import Database
from domain.holds import Answer, Done, Reason, Refused, Status
from domain.outcomes import Outcome, Tally
from domain.references import Reference
from domain.terms import For
from tests.helpers import Desk, fill, wait_until, whole_second

HOUR = timedelta(hours=1)
PROCESSES = 8


@pytest.fixture
def appliers(database_url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Eight processes that apply references, ready and waiting."""
    command = [sys.executable, str(Path(__file__).with_name("applier.py")), database_url]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen([*command, f"w{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for n in range(PROCESSES)
        ]
        assert [heard(process) for process in started] == ["ready"] * PROCESSES
        yield started
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(20) for process in started] == [0] * PROCESSES


@pytest.fixture
def crowd(desk: Desk, database: Database) -> None:
    """So many other holds that a chunk is found by its keys, as in production, and not by walking along the table."""
    with database.transaction() as tx:
        fill(tx, [f"crowd-{n}" for n in range(20_000)], deadline=whole_second(tx, ahead=HOUR))
    desk.sql("ANALYZE")


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def chunked(references: list[Reference], size: int) -> list[list[dict[str, Any]]]:
    data = [reference.as_data() for reference in references]
    return [list(data[start : start + size]) for start in range(0, len(data), size)]


_rounds = iter(range(1000))


@pytest.mark.usefixtures("crowd")
@settings(
    max_examples=6, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    orders=st.lists(st.integers(0, 2**32), min_size=PROCESSES, max_size=PROCESSES),
    sizes=st.lists(st.sampled_from([50, 100, 250, 500, 1000]), min_size=PROCESSES, max_size=PROCESSES),
)
def test_eight_processes_applying_the_same_thousand_references_in_any_order_expire_each_once(
    desk: Desk, database: Database, appliers: list[subprocess.Popen[str]], orders: list[int], sizes: list[int]
) -> None:
    prefix = f"r{next(_rounds)}-"
    with database.transaction() as tx:
        deadline = whole_second(tx, ahead=-timedelta(seconds=1))
        references = fill(tx, [f"{prefix}{n}" for n in range(1000)], deadline=deadline)
    for process, order, size in zip(appliers, orders, sizes, strict=True):
        shuffled = list(references)
        Random(order).shuffle(shuffled)
        tell(process, json.dumps(chunked(shuffled, size)))
    assert [heard(process) for process in appliers] == ["loaded"] * PROCESSES
    for process in appliers:
        tell(process, "go")
    tallies = [json.loads(heard(process)) for process in appliers]
    assert sum(tally.get("expired", 0) for tally in tallies) == 1000
    assert sum(tally.get("duplicate", 0) for tally in tallies) == 7000
    assert {outcome for tally in tallies for outcome in tally} == {"expired", "duplicate"}
    mine = f"hold_id LIKE '{prefix}%'"
    assert desk.count("ledger", f"side = 'close' AND {mine}") == 1000
    assert desk.count("effects", f"kind = 'expired' AND {mine}") == 1000
    assert desk.count("events", f"type = 'reservation.expired' AND {mine}") == 1000
    assert desk.sql(f"SELECT sum(amount) FROM ledger WHERE {mine}") == [(0,)]


def race(*runners: Callable[[], Any]) -> list[Any]:
    """Run these at once, each in a thread that waits for the others to be there."""
    together = Barrier(len(runners))

    def start(run: Callable[[], Any]) -> Any:
        together.wait()
        return run()

    with ThreadPoolExecutor(len(runners)) as pool:
        return list(pool.map(start, runners))


@pytest.mark.parametrize("close", ["confirm", "cancel"])
def test_in_a_hundred_races_of_closing_against_expiring_exactly_one_wins_each_time(desk: Desk, close: str) -> None:
    """Each alone would succeed: the expiry is judged as at the deadline, the closing by the clock before it."""
    wins = {"close": 0, "expire": 0}
    for number in range(100):
        name = f"h{number}"
        hold = desk.placed(name, amount=1250, currency="EUR")
        expire = partial(desk.expire, hold.reference, now=hold.expires_at)
        closing = partial(getattr(desk, close), name)
        runners = [closing, expire] if number % 2 else [expire, closing]
        answers = race(*runners)
        answer, outcomes = answers if number % 2 else reversed(answers)
        if isinstance(answer, Done):
            wins["close"] += 1
            assert outcomes == [Outcome.STALE]
        else:
            wins["expire"] += 1
            assert answer.reason is Reason.CLOSED
            assert outcomes == [Outcome.EXPIRED]
    assert wins["close"] + wins["expire"] == 100
    assert desk.count("ledger", "side = 'close'") == 100
    assert desk.count("effects", "kind <> 'placed'") == 100
    assert desk.count("events", "type <> 'reservation.placed'") == 100
    assert desk.count("holds", "status = 'expired'") == wins["expire"]


def test_confirms_and_expiries_that_meet_at_the_deadline_close_each_hold_once(desk: Desk, database: Database) -> None:
    """A hundred holds with one deadline; for each, confirms and expiries keep coming until it has passed."""
    names = [f"h{n}" for n in range(100)]
    with database.transaction() as tx:
        deadline = whole_second(tx, ahead=timedelta(seconds=2))
        references = fill(tx, names, deadline=deadline)
        wait_until(tx, deadline - timedelta(milliseconds=250))

    def confirm_all() -> list[Answer]:
        return [desk.confirm(name) for name in names]

    def expire_all() -> list[Outcome]:
        told: list[Outcome] = []
        early = references
        while early:
            latest = [desk.expire(reference)[0] for reference in early]
            early = [ref for ref, outcome in zip(early, latest, strict=True) if outcome is Outcome.EARLY]
            told += latest
        return told

    answers, others, *outcomes = race(confirm_all, confirm_all, expire_all, expire_all)
    confirmed = {answer.hold.id for answer in answers + others if isinstance(answer, Done)}
    assert {a.reason for a in answers + others if isinstance(a, Refused)} <= {Reason.LAPSED, Reason.CLOSED}
    expired = sum(told.count(Outcome.EXPIRED) for told in outcomes)
    assert len(confirmed) + expired == 100
    assert desk.sql("SELECT id FROM holds WHERE status = 'confirmed' ORDER BY id") == [(n,) for n in sorted(confirmed)]
    assert desk.count("ledger", "side = 'close'") == desk.count("holds", "status <> 'held'") == 100
    assert desk.count("effects", "kind = 'confirmed' AND at >= expires_at") == 0
    assert desk.count("effects", "kind = 'expired' AND at < expires_at") == 0


def test_in_a_race_of_extending_against_expiring_the_loser_changes_nothing(desk: Desk) -> None:
    for number in range(50):
        hold = desk.placed(f"h{number}", amount=1250, currency="EUR")
        answer, outcomes = race(
            partial(desk.extend, hold.id, 1, For(HOUR)),
            partial(desk.expire, hold.reference, now=hold.expires_at),
        )
        after = desk.read(hold.id)
        if isinstance(answer, Done):
            assert outcomes == [Outcome.STALE]
            assert (after.status, after.version, after.expires_at) == (Status.HELD, 2, hold.expires_at + HOUR)
        else:
            assert answer.reason is Reason.CLOSED
            assert outcomes == [Outcome.EXPIRED]
            assert (after.status, after.version) == (Status.EXPIRED, 1)
    assert desk.count("ledger", "side = 'close'") == desk.count("holds", "status = 'expired'")
    assert desk.count("effects", "kind <> 'placed'") == 50


def test_a_hold_paid_between_the_sweeps_look_and_its_update_is_not_released(desk: Desk, database: Database) -> None:
    """What follows comes from rows changed, never from ids selected."""
    hold = desk.placed("h", amount=1250, currency="EUR")
    with database.transaction() as sweep:
        due = sweep.exec_driver_sql("SELECT id FROM holds").scalars().all()
        assert due == ["h"]
        assert isinstance(desk.confirm("h"), Done)
        before = desk.sql("TABLE ledger"), desk.sql("TABLE events"), desk.sql("TABLE effects"), desk.sql("TABLE holds")
    assert desk.expire(hold.reference, now=hold.expires_at) == [Outcome.STALE]
    assert before == (
        desk.sql("TABLE ledger"), desk.sql("TABLE events"), desk.sql("TABLE effects"), desk.sql("TABLE holds"),
    )  # fmt: skip


def test_eight_copies_of_one_message_at_once_in_opposite_orders_expire_each_hold_once(desk: Desk) -> None:
    names = [f"h{n}" for n in range(200)]
    with desk.database.transaction() as tx:
        references = fill(tx, names, deadline=whole_second(tx, ahead=-timedelta(seconds=1)))
    outcomes = race(*[partial(desk.expire, *references[::order]) for order in (1, -1) * 4])
    assert Tally.of(outcome for told in outcomes for outcome in told).as_data() == {"expired": 200, "duplicate": 1400}
    assert desk.count("ledger", "side = 'close'") == 200


_DIE_BEFORE_COMMIT = """
import sys
from datetime import timedelta
from db import expiry, holds
from db.engine import Database
from domain.identity import HoldId
from domain.paths import Carrier
from domain.terms import For, Terms
by = Carrier(message_id="m", path=None, run=None, worker="w")
with Database(sys.argv[1]).transaction() as tx:
    held = [holds.get(tx, HoldId(name)) for name in ("due", "paid", "kept")]
    expiry.expire(tx, [held[0].reference], by, grace=timedelta(0))
    holds.confirm(tx, HoldId("paid"), 1)
    holds.extend(tx, HoldId("kept"), 1, For(timedelta(hours=1)))
    holds.place(tx, HoldId("new"), Terms(resource="r", customer="c", lasting=For(timedelta(hours=1))), by)
    print("about to commit", flush=True)
    sys.stdin.read()
"""


def test_a_process_killed_just_before_its_commit_has_changed_nothing_and_blocks_nobody(
    desk: Desk, database_url: str
) -> None:
    due = desk.overdue("due", amount=1250, currency="EUR")
    desk.placed("paid", amount=1250, currency="EUR")
    desk.placed("kept")
    before = desk.everything()
    command = [sys.executable, "-c", _DIE_BEFORE_COMMIT, database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert heard(dying) == "about to commit"
        assert desk.everything() == before
        dying.kill()
        assert dying.wait(10) == -9
    assert desk.expire(due.reference) == [Outcome.EXPIRED]
    assert isinstance(desk.cancel("paid"), Done)
    assert desk.read("kept").version == 1
    assert desk.count("holds") == 3
    assert desk.count("ledger", "side = 'close'") == 2
