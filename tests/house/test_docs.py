"""The documents say what is so: commands, options, links, names, lines of status, and the dialogues they show."""

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import psycopg
import pytest
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from cli.dead_letters import _as_data as dead_letter_as_data
from cli.deliveries import _as_data as delivery_as_data
from cli.deliveries import _attempt_as_data as attempt_as_data
from cli.endpoint_reports import as_data as endpoint_as_data
from cli.endpoint_reports import keys_as_data
from cli.local.engines import Postgres
from cli.local.programs import CELERY, LANES, beat, worker
from cli.main import app
from cli.reminders import as_data as reminder_as_data
from cli.reminders import attempt_as_data as reminder_attempt_as_data
from db import dead_letters, endpoint_keys, endpoint_status, reminder_desk, status
from db.bridge import Paused
from db.engine import Database
from db.reconcile import CHECKS
from db.reminder_status import ChannelStatus, ReminderStatus
from db.status import Sweep
from domain.endpoints import EndpointId
from settings import ROOT, settings
from tests.conftest import libpq
from tests.hooks import Hooks
from tests.reminded import Reminded

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
COMMANDS = (ROOT / "docs" / "COMMANDS.md").read_text()
RUNBOOK = (ROOT / "docs" / "RUNBOOK.md").read_text()
TEXTS = {str(file.relative_to(ROOT)): file.read_text() for file in DOCUMENTS}


def commands() -> dict[str, TyperCommand | TyperGroup]:
    """Every command of the program by its words."""
    found: dict[str, TyperCommand | TyperGroup] = {}

    def walk(command: object, words: str) -> None:
        if isinstance(command, TyperGroup):
            if words and command.invoke_without_command:
                found[words] = command
            for name, child in command.commands.items():
                walk(child, f"{words} {name}".strip())
        else:
            assert isinstance(command, TyperCommand)
            found[words] = command

    walk(typer.main.get_command(app), "")
    return found


REAL = commands()

GROUPS = {words.partition(" ")[0] for words in REAL if " " in words}


def options(command: TyperCommand | TyperGroup) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("--")}


def section(title: str) -> str:
    """What COMMANDS.md says below this heading."""
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    assert found, f"COMMANDS.md has no section {title}"
    return found[1]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document, re.MULTILINE | re.DOTALL)


def shell_lines(document: str) -> list[str]:
    """Each line that a reader would type."""
    typed = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return typed + [
        line[2:] for block in blocks(document, "console") for line in block.splitlines() if line[:2] == "$ "
    ]


@pytest.mark.parametrize("words", REAL)
def test_each_command_has_its_section_with_exactly_its_options_and_arguments(words: str) -> None:
    told = section(words)
    assert set(re.findall(r"^\| `(--[a-z-]+)` \|", told, re.MULTILINE)) == options(REAL[words])
    usage = blocks(told, "text")[0].splitlines()[0]
    assert usage.startswith(f"holdfast {words}")
    for parameter in REAL[words].params:
        if isinstance(parameter, TyperArgument):
            assert (parameter.metavar or "").strip("[]") in re.split(r"[ \[\]]", usage)
        elif parameter.required:
            (name,) = parameter.opts
            assert f"| `{name}` | required" in told
            assert name in usage


def test_the_reference_has_no_section_of_a_command_that_is_gone() -> None:
    titles = re.findall(r"^### (.+)$", COMMANDS, re.MULTILINE)
    assert [title for title in titles if title not in REAL and title != "A hold as JSON"] == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_names_only_commands_and_options_that_exist(name: str) -> None:
    spans = re.findall(r"`(holdfast [^`\n]+)`", TEXTS[name])
    typed = [part.strip() for line in shell_lines(TEXTS[name]) for part in re.split(r"[|();<]", line)]
    for line in [*spans, *(part for part in typed if part.startswith("holdfast "))]:
        told = shlex.split(line.replace("[", "").replace("]", ""), comments=True)[1:]
        if told[:1] in (["--help"], ["--version"], ["COMMAND"]) or (len(told) == 1 and told[0] in GROUPS):
            continue
        alone = told[0] in REAL and told[1:2] and told[1].startswith("--")
        words = " ".join(told[:2]) if told[0] in GROUPS and not alone else told[0]
        assert words in REAL, line
        assert {word for word in told if word.startswith("--")} <= options(REAL[words]) | {"--help"}, line


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_names_only_make_targets_that_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = [
        *re.findall(r"`(make [^`]+)`", TEXTS[name]),
        *(s for s in shell_lines(TEXTS[name]) if s.startswith("make ")),
    ]
    for line in told:
        assert {word for word in line.split()[1:] if "=" not in word} <= targets, line


@pytest.mark.parametrize("name", TEXTS)
def test_every_relative_link_leads_to_a_file_and_a_heading(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"^```.*?^```", "", TEXTS[name], flags=re.MULTILINE | re.DOTALL)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("name", TEXTS)
def test_every_file_test_and_setting_named_in_a_document_exists(name: str) -> None:
    tests = "\n".join(file.read_text() for file in ROOT.glob("tests/**/test_*.py"))
    for span in re.findall(r"`([^`\n]+)`", TEXTS[name]):
        if re.fullmatch(r"(domain|db|tasks|cli|bench|tests|docs)/[\w/.-]+", span) and "/out/" not in span:
            assert (ROOT / span).exists(), span
        if re.fullmatch(r"test_\w+", span):
            assert f"def {span}(" in tests, span
    for variable in re.findall(r"\bHOLDFAST_([A-Z_]+)\b", TEXTS[name]):
        assert variable.lower() in type(settings()).model_fields, variable


def test_every_decision_is_listed_once_in_order() -> None:
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\) (.+)$", TEXTS["docs/adr/README.md"], re.MULTILINE)
    files = sorted(file for file in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [file for _, file, _ in listed] == [file.name for file in files]
    for number, file, title in listed:
        text = TEXTS[f"docs/adr/{file}"]
        assert text.startswith(f"# {number} · {title}\n")
        assert file.startswith(number)
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequence"]


def test_every_document_is_reached_from_the_readme() -> None:
    reached, open_ = set(), ["README.md"]
    while open_:
        name = open_.pop()
        if name in reached or name not in TEXTS:
            continue
        reached.add(name)
        targets = re.findall(r"\]\(([^)#:]+)", TEXTS[name])
        open_ += [os.path.relpath((ROOT / name).parent / target, ROOT) for target in targets]
    assert reached == set(TEXTS)


@pytest.mark.parametrize("name", ["README.md", "docs/DEPLOYMENT.md"])
def test_the_command_lines_of_the_deployment_are_those_that_run(name: str) -> None:
    told = [line for line in shell_lines(TEXTS[name]) if line.startswith("celery ") and " inspect " not in line]
    real = [*(worker(lane) for lane in LANES), beat(Path("/run/holdfast"))]
    assert told == [shlex.join(("celery", *command[1:])) for command in real]
    assert all(command[0] == CELERY for command in real)


def test_the_unit_for_systemd_starts_a_real_worker() -> None:
    (unit,) = blocks(TEXTS["docs/DEPLOYMENT.md"], "ini")
    (started,) = re.findall(r"^ExecStart=\S+/celery (.+)$", unit, re.MULTILINE)
    assert started.replace("%%", "%") in {shlex.join(worker(lane)[1:]) for lane in LANES}
    (patience,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert timedelta(seconds=int(patience)) > settings().expiry_hard_limit


_LATE_CHANNEL = ChannelStatus(
    channel="sms", scheduled=1, under_way=0, waiting=2, sent=0, suppressed=1, failed=0, late=timedelta(minutes=6)
)


def test_the_runbook_has_every_line_that_makes_status_red() -> None:
    told = {line for block in blocks(RUNBOOK, "text") for line in block.splitlines()}
    silent = Sweep(name="expiry:sweep", age=timedelta(seconds=40), ticks=7, last_run=1)
    run = type("Row", (), {"latest": 812, "sweep": "expiry:sweep", "runs": 3, "error": "the broker is not available "
                           "(ConnectionError)"})()  # fmt: skip
    real = {
        "the database has no schema: run `holdfast migrate`",
        *status._outdated("0005", "0006"),
        *status._stopped([run]),
        *status._late(timedelta(minutes=6), timedelta(minutes=5)),
        *status._silent([silent], {"expiry:sweep"}, timedelta(seconds=30)),
        *status._silent([], {"expiry:sweep"}, timedelta(seconds=30)),
        *ReminderStatus(
            channels=[_LATE_CHANNEL],
            without_gateway=["sms"],
        ).red(timedelta(minutes=5)),
        *status._waiting({"expiry": 2, "malformed": 1}),
        *status._silent(
            [Sweep(name="bridge:publish", age=timedelta(seconds=40), ticks=7, last_run=1)],
            {"bridge:publish", "bridge:consume"},
            timedelta(seconds=30),
        ),
        *status._unbridged(range(10)),
        *status._paused(Paused(datetime(2026, 12, 1, 9, tzinfo=UTC), "ada")),
        *status._unpublished(timedelta(minutes=2), timedelta(seconds=30)),
    }
    assert told == real


def test_the_runbook_has_every_check_of_reconcile_in_order() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", RUNBOOK, re.MULTILINE) == list(CHECKS)


def test_the_dead_letter_shown_has_the_fields_of_a_real_one(database: Database) -> None:
    (shown,) = blocks(section("dead-letters list"), "json")
    with database.transaction() as tx:
        number = dead_letters.bury(tx, "k", "malformed", {"raw": "x"}, "unreadable")
        letter = dead_letters.get(tx, number)
    assert letter is not None
    assert list(json.loads(shown)) == list(dead_letter_as_data(letter))


def test_the_endpoint_and_the_delivery_shown_have_the_fields_of_real_ones(database: Database) -> None:
    hooks = Hooks(database)
    hooks.endpoint()
    hooks.placed("h")
    hooks.make_due()
    hooks.attempt()
    with database.transaction() as tx:
        keys = keys_as_data(endpoint_keys.lives(tx, EndpointId("ep")))
        [health] = endpoint_status.of_all(tx, hooks.see().read_at)
    endpoint = {**endpoint_as_data(hooks.see()), "keys": keys, "health": health.as_data()}
    requests = [attempt_as_data(attempt) for attempt in hooks.attempts()]
    delivery = {**delivery_as_data(hooks.delivery()), "requests": requests}
    for title, real in (("endpoints show", endpoint), ("deliveries show", delivery)):
        [shown] = blocks(section(title), "json")
        assert names(json.loads(shown)) == names(real)


def test_the_reminder_shown_has_the_fields_of_a_real_one(database: Database) -> None:
    reminded = Reminded(database)
    reminded.reminded("h")
    reminded.make_due("h")
    reminded.settle(reminded.taken())
    with database.transaction() as tx:
        [found] = reminder_desk.listing(tx, reminder_desk.Selection(), limit=1)
        requests = [reminder_attempt_as_data(attempt) for attempt in reminder_desk.attempts_of(tx, found.key)]
    [shown] = blocks(section("reminders show"), "json")
    assert names(json.loads(shown)) == names({**reminder_as_data(found, show_contacts=False), "requests": requests})


def names(data: object) -> object:
    """What a JSON value is made of, without its values; lists of texts or numbers are values."""
    if isinstance(data, dict):
        return [(name, names(value)) for name, value in data.items()]
    return [names(item) for item in data if isinstance(item, dict)] or None if isinstance(data, list) else None


@pytest.mark.parametrize("name", ["README.md", "docs/transports.md"])
def test_the_python_shown_runs(name: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(TEXTS[name], "python")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    settings.cache_clear()
    shown: dict[str, object] = {}
    exec(compile(code, name, "exec"), shown)
    settings.cache_clear()
    if name == "docs/transports.md":
        body = (
            b'{"job_id":"hold-expiry:x:v1:60","reservation_id":"x","hold_version":1,'
            b'"expected_expires_at":"1970-01-01T00:01:00Z"}'
        )
        deliver = shown["deliver"]
        assert callable(deliver)
        assert deliver("message-1", body, 1) == "missing"
    opened = shown.get("db", shown.get("database"))
    assert isinstance(opened, Database)
    opened.close()


@pytest.fixture
def empty_database(postgres: Postgres) -> Iterator[str]:
    name = f"docs_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres.database(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def skeleton(output: str) -> str:
    """An answer without what differs from run to run: instants, numbers, waits, message ids, hosts."""
    masks = {
        r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?( ?UTC|Z)?": "<instant>",
        r"\d\d:\d\d:\d\d\.\d+": "<time>",
        r"\(in [0-9dhms]+\)": "(in <wait>)",
        r"(message\"?:? \"?)(here:\d+|[0-9a-f-]{36})": r"\1<id>",
        r"(worker\"?:? \"?)\w+@[\w.-]+": r"\1<worker>",
        r"\d+(\.\d+)?": "<n>",
        r"\s+": " ",
    }
    for pattern, mask in masks.items():
        output = re.sub(pattern, mask, output)
    return output.strip()


def type_line(line: str, folder: Path, url: str) -> str:
    """What a shell prints for this line, with the program on its path."""
    programs = Path(sys.executable).parent
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": url, "PATH": f"{programs}:{os.environ['PATH']}"}
    typed = subprocess.run(
        ["bash", "-c", re.sub(r"--for (5|10)s", "--for 1s", line)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return typed.stdout


def wait_until_nothing_is_due(url: str) -> None:
    """Wait until each deadline within a minute has passed by the database's clock."""
    soon = "SELECT FROM holds WHERE status = 'held' AND expires_at BETWEEN now() AND now() + interval '1 minute'"
    with psycopg.connect(libpq(url), autocommit=True) as watcher:
        while watcher.execute(soon).fetchone() is not None:
            Event().wait(0.05)


@pytest.mark.parametrize(
    ("name", "workers"), [("README.md", True), ("docs/transports.md", False), ("docs/COMMANDS.md", False)]
)
def test_a_dialogue_shown_is_what_a_shell_prints(
    name: str, *, workers: bool, empty_database: str, tmp_path: Path
) -> None:
    """Word for word, but for instants and numbers. Where a reader has workers, `sweep --here` does their part."""
    dialogues = blocks(TEXTS[name], "console")
    if "$ holdfast migrate\n" not in dialogues[0]:
        type_line("holdfast migrate", tmp_path, empty_database)
    for block in dialogues:
        for typed in re.findall(r"^\$ .*(?:\n(?!\$ ).*)*", block, re.MULTILINE):
            line, _, shown = typed.removeprefix("$ ").partition("\n")
            if line.startswith("sleep "):
                wait_until_nothing_is_due(empty_database)
                line = "holdfast sweep --here > /dev/null" if workers else "true"
            assert skeleton(type_line(line, tmp_path, empty_database)) == skeleton(shown), line
