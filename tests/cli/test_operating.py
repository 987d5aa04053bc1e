"""What the operator runs: `sweep`, `status`, `reconcile`, `prune`, `migrate`, `import`."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cli.local.engines import Valkey
from db import schema
from db.reconcile import CHECKS
from domain.holds import Status
from tests.cli.conftest import Command
from tests.cli.saying import BROKER_PASSWORD, Script
from tests.helpers import Desk


def test_sweep_here_expires_what_is_due_without_a_broker(holdfast: Command, desk: Desk) -> None:
    assert holdfast("sweep", "--here") == (0, "nothing is due\n", "")
    desk.overdue("a")
    desk.placed("b")
    assert holdfast("sweep", "--here") == (0, "run 1: 1 holds claimed, 1 expired\n", "")
    desk.overdue("c")
    assert holdfast("sweep", "--here", "--json").data == {
        "run": 2, "claimed": 1, "published": 1, "too_soon": False, "error": None, "outcomes": {"expired": 1},
    }  # fmt: skip
    assert desk.sql("SELECT id, status FROM holds ORDER BY id") == [("a", "expired"), ("b", "held"), ("c", "expired")]
    assert desk.sql("SELECT message_id, worker LIKE 'cli@%' FROM receipts ORDER BY id") == [
        ("here:1", True),
        ("here:2", True),
    ]


def test_sweep_takes_the_cohorts_of_one_path(holdfast: Command, desk: Desk) -> None:
    hold = desk.overdue("h")
    desk.sql("UPDATE cohort_paths SET path = 'scanner' WHERE cohort = :cohort", cohort=hold.cohort)
    assert holdfast("sweep", "--here", "--json").data["run"] is None
    assert holdfast("sweep", "--here", "--path", "scanner", "--json").data["outcomes"] == {"expired": 1}


def test_sweep_logs_what_fails_alone_to_stderr(holdfast: Command, desk: Desk) -> None:
    desk.overdue("h", amount=100, currency="EUR")
    desk.sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (type <> 'reservation.expired')")
    said = holdfast("sweep", "--here", "--json")
    assert (said.code, said.data["claimed"], said.data["outcomes"]) == (0, 1, {})
    (logged,) = map(json.loads, said.err.splitlines())
    assert (logged["event"], logged["hold"], logged["level"]) == ("expiry.postponed", "h", "warning")


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A broker of the test's own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp") as folder:
        server = Valkey(Path(folder) / "data", Path(folder) / "valkey.sock")
        server.prepare()
        process = subprocess.Popen(server.command(), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert any("ready to accept" in line.lower() for line in process.stdout)
        yield server
        process.kill()
        process.communicate()


def test_sweep_publishes_to_the_broker(script: Script, desk: Desk, valkey: Valkey) -> None:
    for name in ("a", "b"):
        desk.overdue(name)
    said = script("sweep", "--json", HOLDFAST_BROKER_URL=valkey.url, HOLDFAST_LOG_LEVEL="ERROR")
    assert (said.code, said.err) == (0, "")
    assert said.data == {
        "run": 1, "claimed": 2, "published": 2, "too_soon": False, "error": None, "outcomes": None,
    }  # fmt: skip
    assert desk.sql("SELECT observed, published, error FROM sweep_runs") == [(2, 2, None)]
    assert desk.count("holds", "status = 'held' AND claimed_run = 1") == 2


def test_sweep_gives_back_what_no_broker_takes(script: Script, desk: Desk) -> None:
    desk.overdue("h")
    said = script("sweep", "--json", HOLDFAST_BROKER_URL=f"redis://:{BROKER_PASSWORD}@127.0.0.1:1/0")
    assert said.code == 1
    assert said.data["error"] == "the broker is not available (ConnectionError)"
    logged, line = said.err.splitlines()
    assert json.loads(logged)["event"] == "sweep.broker_unavailable"
    assert line == (
        "holdfast: the broker is not available (ConnectionError); start it, or use --here; what was not published was "
        "given back"
    )
    assert desk.read("h").status is Status.HELD
    assert desk.count("holds", "claimed_until > now()") == 0


def test_the_age_of_a_tick_is_told_as_people_read_it(holdfast: Command, desk: Desk) -> None:
    for name, age in (("back", "-9 s"), ("idle", "3 days 2 h"), ("now", "1.23 s")):
        desk.sql(f"INSERT INTO sweeps (name, began_at) VALUES ('{name}', now() - interval '{age}')")
    told = [" ".join(line.split()) for line in holdfast("status").out.splitlines() if "ticked" in line]
    assert told[:2] == ["back ticked 0.0 s ago, last run -", "idle ticked 3d2h ago, last run -"]
    assert told[2].startswith("now ticked 1.")


def test_status_is_red_with_exit_1_until_a_sweep_has_ticked(holdfast: Command) -> None:
    said = holdfast("status", "--json")
    assert (said.code, said.err) == (1, "")
    assert said.data["red"] == ["expiry:sweep has never ticked: start beat and a worker with `holdfast up`"]
    assert f"red: {said.data['red'][0]}" in " ".join(holdfast("status").out.split())
    holdfast("sweep", "--here")
    assert holdfast("status").code == 0


def test_status_prints_how_everything_stands(holdfast: Command, desk: Desk) -> None:
    desk.placed("live", amount=1250, currency="EUR")
    desk.overdue("due")
    holdfast("sweep", "--here")
    desk.sql("UPDATE sweeps SET began_at = now()")
    desk.overdue("late", by=timedelta(minutes=1))
    said = holdfast("status", "--json")
    assert (said.code, said.err) == (0, "")
    assert {name: said.data[name] for name in ("live", "overdue", "set_aside", "totals", "open_amounts", "red")} == {
        "live": 1, "overdue": 1, "set_aside": 0, "open_amounts": {"EUR": 1250}, "red": [],
        "totals": {"held": 2, "confirmed": 0, "cancelled": 0, "expired": 1},
    }  # fmt: skip
    lines = [line.rstrip() for line in holdfast("status").out.splitlines()]
    assert lines[:2] == ["Holds", "   live          1"]
    assert "   EUR  12.50" in lines
    assert lines[-1] == "all is well"


def test_status_of_a_database_without_a_schema_is_red(
    holdfast: Command, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", empty_url)
    said = holdfast("status", "--json")
    assert (said.code, said.data["schema"], said.err) == (1, None, "")
    assert said.data["red"] == ["the database has no schema: run `holdfast migrate`"]


def test_reconcile_names_each_violation_by_its_hold(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", amount=100, currency="EUR")
    assert holdfast("reconcile") == (0, f"{len(CHECKS)} checks passed\n", "")
    assert holdfast("reconcile", "--json").data == {"checks": list(CHECKS), "violations": []}
    desk.sql("DELETE FROM events")
    said = holdfast("reconcile", "--json")
    assert (said.code, said.err) == (1, "")
    assert [(found["check"], found["hold_id"]) for found in said.data["violations"]] == [("effect-event", "h")]
    told = holdfast("reconcile")
    assert (told.code, told.err) == (1, "")
    assert told.out.startswith("effect-event  h  ")
    assert told.out.endswith(f"1 violations in 1 of {len(CHECKS)} checks\n")


def test_prune_deletes_what_closed_long_ago(holdfast: Command, desk: Desk) -> None:
    for name in ("old", "new"):
        desk.placed(name)
        desk.confirm(name)
    desk.placed("held")
    desk.sql("UPDATE holds SET closed_at = closed_at - interval '11 days' WHERE id = 'old'")
    said = holdfast("prune", "--closed-after", "10d")
    assert said == (
        0,
        "3 holds looked at; deleted 1 holds, 2 effects, 2 events, 0 reminders, 0 receipts, 0 sweep runs\n",
        "",
    )
    assert holdfast("prune", "--closed-after", "10d", "--json").data == {
        "looked_at": 2, "holds": 0, "effects": 0, "events": 0, "reminders": 0, "receipts": 0, "sweep_runs": 0,
        "contacts": 0,
    }  # fmt: skip
    assert desk.sql("SELECT id FROM holds ORDER BY id") == [("held",), ("new",)]


def test_migrate_makes_the_schema_once(holdfast: Command, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", empty_url)
    assert holdfast("migrate", "--json") == (0, f'{{"before":null,"after":"{schema.newest()}"}}\n', "")
    assert holdfast("migrate") == (0, f"schema {schema.newest()} already\n", "")
    assert holdfast("place", "h", "--resource", "seat", "--customer", "acme", "--for", "1h").code == 0


def test_migrate_says_what_it_found(holdfast: Command, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", empty_url)
    assert holdfast("migrate") == (0, f"schema {schema.newest()} (was empty)\n", "")


def test_migrate_leaves_a_newer_schema_alone(holdfast: Command, desk: Desk) -> None:
    desk.sql("UPDATE alembic_version SET version_num = '9999'")
    assert holdfast("migrate") == (0, "schema 9999 is newer than this code; it is left as it is\n", "")
    assert desk.sql("SELECT version_num FROM alembic_version") == [("9999",)]


def test_import_takes_the_good_lines_and_tells_the_bad_ones(holdfast: Command, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "holds.jsonl"
    good = {"id": "a", "resource": "seat", "customer": "acme", "expires_in": "2h"}
    file.write_text(f'{json.dumps(good)}\n{{"id":"b"}}\n')
    bad = "line 2: expires_at: is missing"
    assert holdfast("import", str(file), "--strict") == (1, "0 taken, 0 already there, 1 bad\n", bad + "\n")
    assert desk.count("holds") == 0
    said = holdfast("import", str(file), "--json")
    assert (said.code, said.err) == (1, "")
    assert said.lines == [
        {"line": 2, "field": "expires_at", "cause": "is missing"},
        {"taken": 1, "already_there": 0, "bad": 1},
    ]
    assert holdfast("import", "-", stdin=json.dumps(good | {"id": "c"}).encode()) == (
        0,
        "1 taken, 0 already there, 0 bad\n",
        "",
    )
    assert desk.sql("SELECT id, status FROM holds ORDER BY id") == [("a", "held"), ("c", "held")]


def test_the_host_s_zone_changes_nothing(script: Script, desk: Desk) -> None:
    desk.placed("h")
    assert (
        script("show", "h", TZ="Pacific/Kiritimati")
        .out.splitlines()[-1]
        .startswith(f"  expires   {desk.read('h').expires_at:%Y-%m-%d %H:%M:%S} UTC  (in ")
    )
