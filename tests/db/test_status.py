"""What an operator reads in `status`, and when it is red."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cli.local.engines import Postgres
from db import endpoint_status, endpoints, schema
from db.endpoint_status import LAST_HOUR
from db.engine import Database
from db.status import Status, Sweep, status
from domain.identity import HoldId
from domain.outcomes import Outcome, Tally
from domain.paths import Path
from domain.references import Reference
from tests.conftest import libpq
from tests.helpers import GRACE, Desk, carrier
from tests.histories import EUR, HOUR, live_through_everything, set_aside, settle, sweep
from tests.hooks import BROKEN, OK, Hooks, fill_backlog

MINUTE = timedelta(minutes=1)
SILENCE = timedelta(seconds=10)
TICKING = "INSERT INTO sweeps (name, began_at) VALUES (:name, clock_timestamp() - CAST(:ago AS interval))"


def read(desk: Desk, **options: Any) -> Status:
    with desk.database.transaction() as tx:
        return status(tx, **{"grace": GRACE, "silence": SILENCE, **options})


@pytest.fixture
def calm(desk: Desk) -> Desk:
    """A database whose sweep ticks."""
    desk.sql(TICKING, name="expiry:sweep", ago=timedelta(0))
    return desk


def test_an_empty_database_whose_sweep_ticks_is_not_red(calm: Desk) -> None:
    stood = read(calm)
    assert stood == Status(
        at=stood.at,
        schema=schema.newest(),
        sweeps=[Sweep(name="expiry:sweep", age=stood.sweeps[0].age, ticks=1, last_run=None)],
        totals={"held": 0, "confirmed": 0, "cancelled": 0, "expired": 0},
    )


def test_the_figures_of_a_busy_database(desk: Desk) -> None:
    live_through_everything(desk)
    stood = read(desk)
    assert (stood.live, stood.overdue, stood.set_aside) == (4, 2, 1)
    assert stood.totals == {"held": 7, "confirmed": 2, "cancelled": 3, "expired": 6}
    assert stood.open_amounts == {"EUR": 1200, "JPY": 600}
    assert stood.dead_letters == {"expiry": 1}
    assert stood.outcomes == Tally({Outcome.EXPIRED: 5})
    assert stood.rescued == 1


def test_every_figure_has_its_place_in_json(calm: Desk) -> None:
    calm.placed("live", amount=100, **EUR)
    at = read(calm).at
    data = read(calm, now=at).as_data()
    assert data == {
        "at": at.isoformat().replace("+00:00", "Z"),
        "schema": schema.newest(),
        "live": 1,
        "overdue": 0,
        "oldest_overdue_s": None,
        "in_flight": 0,
        "set_aside": 0,
        "sweeps": [data["sweeps"][0]],  # type: ignore[index]
        "dead_letters": {},
        "outcomes_last_hour": {},
        "rescued_last_hour": 0,
        "totals": {"held": 1, "confirmed": 0, "cancelled": 0, "expired": 0},
        "open_amounts": {"EUR": 100},
        "endpoints": [],
        "reminders": [],
        "bridge": None,
        "red": [],
    }


def test_a_hold_is_overdue_from_its_deadline_on_and_its_age_is_exact(calm: Desk) -> None:
    deadline = calm.placed("h", HOUR).expires_at
    before = read(calm, now=deadline - timedelta.resolution, silence=2 * HOUR.length)
    assert (before.live, before.overdue, before.oldest_overdue) == (1, 0, None)
    at = read(calm, now=deadline, silence=2 * HOUR.length)
    assert (at.live, at.overdue, at.oldest_overdue) == (0, 1, timedelta(0))
    calm.placed("older", HOUR)
    calm.age("older", MINUTE)
    later = read(calm, now=deadline + MINUTE, silence=2 * HOUR.length)
    assert later.overdue == 2
    assert later.oldest_overdue == deadline + MINUTE - calm.read("older").expires_at


def test_a_hold_is_in_flight_while_a_run_claims_it_and_not_when_it_was_postponed(calm: Desk) -> None:
    for hold in ("claimed", "run-out", "postponed", "unseen"):
        calm.overdue(hold)
    calm.sql("UPDATE holds SET claimed_run = 1, claimed_until = now() + interval '1 minute' WHERE id = 'claimed'")
    calm.sql("UPDATE holds SET claimed_run = 1, claimed_until = now() - interval '1 minute' WHERE id = 'run-out'")
    calm.sql("UPDATE holds SET claimed_run = NULL, claimed_until = now() + interval '1 h' WHERE id = 'postponed'")
    stood = read(calm)
    assert (stood.overdue, stood.in_flight) == (4, 1)


def test_a_set_aside_hold_is_neither_overdue_nor_live_but_still_open_money(calm: Desk) -> None:
    calm.overdue("aside", amount=900, **EUR)
    set_aside(calm, "aside")
    stood = read(calm)
    assert (stood.live, stood.overdue, stood.oldest_overdue, stood.set_aside) == (0, 0, None, 1)
    assert stood.open_amounts == {"EUR": 900}


def test_outcomes_are_summed_over_cohorts_and_receipts_of_the_last_hour(calm: Desk) -> None:
    references = [calm.overdue(f"h{n}").reference for n in range(5)]
    calm.expire(*references[:3])
    calm.expire(*references)
    calm.expire(Reference.to(HoldId("nobody"), 1, references[0].expires_at))
    calm.expire(calm.overdue("rescued", by=GRACE + MINUTE).reference, by=carrier(path=Path.RESCUE))
    stood = read(calm)
    assert stood.outcomes == Tally({Outcome.EXPIRED: 6, Outcome.DUPLICATE: 3, Outcome.MISSING: 1})
    assert stood.rescued == 1
    calm.sql("UPDATE receipts SET at = now() - interval '61 minutes' WHERE path = 'rescue'")
    later = read(calm)
    assert later.outcomes.as_data() == {"expired": 5, "missing": 1, "duplicate": 3}
    assert later.rescued == 0


def test_a_sweep_shows_the_age_of_its_last_tick_and_its_last_run(desk: Desk) -> None:
    desk.overdue("h")
    run = sweep(desk)
    began = desk.sql("SELECT began_at FROM sweeps")[0][0]
    stood = read(desk, now=began + 3 * SILENCE / 4)
    assert stood.sweeps == [Sweep(name="expiry:sweep", age=3 * SILENCE / 4, ticks=1, last_run=run)]
    assert stood.sweeps[0].as_data() == {"name": "expiry:sweep", "age_s": 7.5, "ticks": 1, "last_run": run}
    assert stood.red == []


def test_an_endpoint_shows_what_waits_and_how_its_requests_of_the_last_hour_went(calm: Desk) -> None:
    hooks = Hooks(calm.database)
    hooks.endpoint("ep", label="billing")
    hooks.endpoint("quiet", types=("endpoint.failing",))
    for n in range(4):
        hooks.placed(f"h{n}")
    for result in (OK, OK, BROKEN):
        hooks.attempt(result)
    for number, took in enumerate((1, 2, 3), start=0):
        hooks.sql(
            "UPDATE attempts SET duration = CAST(:took AS interval) WHERE event_id = :event",
            took=timedelta(seconds=took), event=f"reservation-placed:h{number}:1",
        )  # fmt: skip
    now = hooks.sql("SELECT now()")[0][0]
    hooks.sql("UPDATE deliveries SET next_attempt_at = :at WHERE state = 'pending'", at=now - MINUTE)
    [busy, quiet] = read(calm, now=now).endpoints
    assert busy.as_data() == {
        "id": "ep", "label": "billing", "state": "enabled", "reason": None, "breaker": "closed", "failures": 1,
        "failing_since": hooks.see().failing_since.isoformat().replace("+00:00", "Z"),  # type: ignore[union-attr]
        "backlog": 2, "oldest_due_s": 60.0, "attempts_last_hour": 3, "success_rate": 0.6667, "p50_s": 2.0, "p95_s": 2.9,
    }  # fmt: skip
    assert (quiet.backlog, quiet.oldest_due, quiet.attempts, quiet.success_rate, quiet.p50) == (0, None, 0, None, None)
    later = read(calm, now=now + timedelta(minutes=61), silence=2 * HOUR.length).endpoints[0]
    assert (later.attempts, later.success_rate, later.p95) == (0, None, None)


def test_what_is_not_due_yet_or_under_way_has_no_age_and_no_duration(calm: Desk) -> None:
    hooks = Hooks(calm.database)
    hooks.endpoint()
    hooks.placed("h")
    hooks.make_due()
    hooks.taken(hooks.held())
    hooks.sql("UPDATE deliveries SET next_attempt_at = now() + interval '1 h'")
    [found] = read(calm).endpoints
    assert (found.backlog, found.oldest_due, found.attempts) == (1, None, 0)


def test_the_breaker_is_told_by_the_clock_and_a_deleted_endpoint_not_at_all(calm: Desk) -> None:
    hooks = Hooks(calm.database)
    for name in ("closed", "gone", "open", "probing"):
        hooks.endpoint(name)
    hooks.sql("UPDATE endpoints SET breaker_until = now() + interval '1 minute' WHERE id = 'open'")
    hooks.sql("UPDATE endpoints SET breaker_until = now() - interval '1 minute' WHERE id = 'probing'")
    hooks.call(endpoints.delete, "gone")
    assert [(one.id, one.breaker) for one in read(calm).endpoints] == [
        ("closed", "closed"),
        ("open", "open"),
        ("probing", "half-open"),
    ]


def test_what_waits_is_counted_by_the_index(calm: Desk) -> None:
    """Of 20,000 deliveries 200 wait."""
    hooks = Hooks(calm.database)
    hooks.endpoint()
    fill_backlog(hooks, 20_000)
    hooks.sql("""UPDATE deliveries SET state = 'delivered', settled_at = now()
                 WHERE next_attempt_at > (SELECT min(next_attempt_at) FROM deliveries) + interval '199 ms'""")
    hooks.sql("ANALYZE")
    asked = {"now": hooks.sql("SELECT now()")[0][0], "back": LAST_HOUR, "only": None}
    plan = "\n".join(row[0] for row in hooks.sql(f"EXPLAIN {endpoint_status._HEALTH.text}", **asked))
    assert "deliveries_due" in plan, plan
    assert "Seq Scan on deliveries" not in plan, plan
    assert read(calm).endpoints[0].backlog == 200


class TestRed:
    """Each reason to be alarmed is one line that names its cause and a cure."""

    def test_a_sweep_that_never_ticked(self, desk: Desk) -> None:
        assert read(desk).red == ["expiry:sweep has never ticked: start beat and a worker with `holdfast up`"]

    def test_a_sweep_that_is_silent_for_longer_than_allowed(self, calm: Desk) -> None:
        began = calm.sql("SELECT began_at FROM sweeps")[0][0]
        assert read(calm, now=began + SILENCE).red == []
        assert read(calm, now=began + SILENCE + timedelta(seconds=1)).red == [
            "expiry:sweep last ticked 11s ago, more than 10s: see that beat and a worker of its lane run"
        ]

    def test_another_paths_silent_sweep_only_while_it_drives_a_cohort(self, calm: Desk) -> None:
        calm.sql(TICKING, name="expiry:scanner", ago=MINUTE)
        assert read(calm).red == []
        calm.sql("UPDATE cohort_paths SET path = 'scanner' WHERE cohort = 7")
        assert read(calm).red == [
            "expiry:scanner last ticked 1m ago, more than 10s: see that beat and a worker of its lane run"
        ]

    def test_the_sweep_of_webhooks_while_there_is_an_endpoint(self, calm: Desk) -> None:
        hooks = Hooks(calm.database)
        hooks.endpoint()
        assert read(calm).red == ["webhooks has never ticked: start beat and a worker with `holdfast up`"]
        hooks.dispatch()
        assert read(calm).red == []
        calm.sql("UPDATE sweeps SET began_at = began_at - interval '1 minute' WHERE name = 'webhooks'")
        assert read(calm).red == [
            "webhooks last ticked 1m ago, more than 10s: see that beat and a worker of its lane run"
        ]
        hooks.call(endpoints.delete)
        assert read(calm).red == []

    def test_a_clock_that_was_set_back_is_no_silence(self, desk: Desk) -> None:
        desk.sql(TICKING, name="expiry:sweep", ago=-MINUTE)
        assert read(desk).red == []

    def test_a_hold_overdue_by_more_than_the_grace_time(self, calm: Desk) -> None:
        deadline = calm.overdue("h").expires_at
        calm.sql("UPDATE sweeps SET began_at = :at", at=deadline + GRACE)
        assert read(calm, now=deadline + GRACE).red == []
        assert read(calm, now=deadline + GRACE + timedelta(seconds=1)).red == [
            "a hold is overdue by 5m1s, more than 5m: see that beat and the workers run, or run `holdfast sweep`"
        ]

    def test_runs_that_ended_with_an_error_within_the_hour_are_told_once_an_error(self, calm: Desk) -> None:
        for error in ("stopped: it would set aside more than 100 holds", "the run was cut short", None):
            for _ in range(2):
                calm.overdue("h" + str(calm.count("holds")))
                run = sweep(calm)
                calm.sql("UPDATE sweep_runs SET error = :error WHERE id = :run", error=error, run=run)
        calm.sql("UPDATE sweep_runs SET started_at = started_at - interval '61 minutes' WHERE id = 1")
        cure = "mend the cause, the next tick begins anew"
        cut_short = (
            f"run 4 of expiry:sweep ended with an error (2 like it in the last hour): the run was cut short; {cure}"
        )
        stopped = "run 2 of expiry:sweep ended with an error (1 like it in the last hour): stopped: it would set aside"
        assert read(calm).red == [cut_short, f"{stopped} more than 100 holds; {cure}"]

    def test_open_dead_letters_until_each_is_settled(self, calm: Desk) -> None:
        calm.overdue("aside")
        letter = set_aside(calm, "aside")
        assert read(calm).red == [
            "dead letters wait (1 expiry): see `holdfast dead-letters list`, then replay or discard each"
        ]
        settle(calm, letter, "discarded")
        assert read(calm).red == []

    def test_a_schema_older_than_the_code_and_not_a_newer_one(self, calm: Desk) -> None:
        calm.sql("UPDATE alembic_version SET version_num = '0000'")
        assert read(calm).red == [f"the schema is at 0000, this code needs {schema.newest()}: run `holdfast migrate`"]
        calm.sql("UPDATE alembic_version SET version_num = '9999'")
        assert read(calm).red == []

    def test_a_database_without_a_schema(self, postgres: Postgres) -> None:
        with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
            admin.execute("CREATE DATABASE holdfast_bare")
            database = Database(postgres.database("holdfast_bare"))
            stood = read(Desk(database))
            database.close()
            admin.execute("DROP DATABASE holdfast_bare")
        assert stood == Status(at=stood.at, schema=None, red=["the database has no schema: run `holdfast migrate`"])
