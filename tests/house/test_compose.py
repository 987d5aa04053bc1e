"""compose.yaml says what the local stack says, and every word of it exists where it points."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery
from flower.options import default_options

from cli.local.programs import LANES, beat, flower, worker
from domain.durations import parse_duration
from settings import ROOT, Settings

COMPOSE = (ROOT / "compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
EXAMPLE = dict(re.findall(r"^([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
CELERY = {name: service["command"] for name, service in SERVICES.items() if service["command"][0] == "celery"}


def local(name: str) -> list[str]:
    """The command line of the local stack for the same service."""
    lines = {f"worker-{lane.queue}": worker(lane) for lane in LANES}
    lines["beat"] = beat(Path("/run/beat"))
    lines["flower"] = flower("0.0.0.0", 5555, Path("/var/lib/flower/tasks.db"))
    return ["celery", *lines[name][1:]]


def test_there_is_a_worker_a_lane_one_beat_and_one_flower() -> None:
    assert sorted(CELERY) == sorted(["beat", "flower", *(f"worker-{lane.queue}" for lane in LANES)])


@pytest.mark.parametrize("name", CELERY)
def test_a_command_is_the_local_stacks(name: str) -> None:
    assert CELERY[name] == local(name)


@pytest.mark.parametrize("name", ["beat", *(f"worker-{lane.queue}" for lane in LANES)])
def test_celery_knows_every_option(name: str) -> None:
    assert CELERY[name][:3] == ["celery", "-A", "tasks.app"]
    command = CELERY[name][3]
    known = set(chain.from_iterable(p.opts + p.secondary_opts for p in celery.commands[command].params))
    given = [word.partition("=")[0] for word in CELERY[name][4:]]
    assert given
    assert set(given) <= known


def test_flower_knows_every_option_and_takes_its_value() -> None:
    words = [word.removeprefix("--").partition("=") for word in CELERY["flower"][4:]]
    assert words
    for name, _, value in words:
        assert name in default_options  # Flower drops an option it does not know without a word
        default_options._options[name.replace("_", "-")].parse(value)


def test_workers_may_finish_their_longest_task() -> None:
    for name in OURS.keys() - {"migrate"}:
        assert OURS[name]["stop_signal"] == "SIGTERM"
        assert parse_duration(OURS[name]["stop_grace_period"]) > Settings().longest_task


def test_every_service_is_restarted_bounded_and_watched() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert isinstance(service["command"], list), name
        assert service["restart"] == ("no" if name == "migrate" else "unless-stopped")
        assert ("healthcheck" in service) == (name != "migrate"), name
    assert all(service["init"] is True for service in OURS.values())


def test_it_waits_for_conditions_that_can_come_true() -> None:
    for service in OURS.values():
        for name, wait in service["depends_on"].items():
            healthy, completed = "service_healthy", "service_completed_successfully"
            assert wait["condition"] == (healthy if "healthcheck" in SERVICES[name] else completed)


def test_only_flower_is_reachable_and_only_from_loopback() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "flower": ["127.0.0.1:${HOLDFAST_FLOWER_PORT:-5555}:5555"]
    }


def test_every_variable_of_ours_is_a_setting() -> None:
    used = set(re.findall(r"HOLDFAST_[A-Z_]+", COMPOSE)) | {name for name in EXAMPLE if name.startswith("HOLDFAST_")}
    assert used
    assert {name.removeprefix("HOLDFAST_").lower() for name in used} <= set(Settings.model_fields)


def test_the_example_names_every_variable_and_no_other() -> None:
    assert set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", COMPOSE)) == set(EXAMPLE)


def test_passwords_are_asked_for_and_stand_nowhere() -> None:
    secrets = [name for name in EXAMPLE if name.endswith("PASSWORD")]
    assert len(secrets) == 3
    for name in secrets:
        assert EXAMPLE[name] == ""
        uses = re.findall(rf"\$\{{{name}([^}}]*)\}}", COMPOSE)
        assert uses
        assert all(use.startswith(":?") for use in uses)


def test_only_who_seals_and_who_opens_endpoint_secrets_gets_the_vault_keys_which_are_asked_for() -> None:
    given = {name for name, service in SERVICES.items() if "HOLDFAST_VAULT_KEYS" in service.get("environment", {})}
    assert given == {"migrate", "worker-webhooks"}
    assert EXAMPLE["HOLDFAST_VAULT_KEYS"] == ""
    assert re.findall(r"\$\{HOLDFAST_VAULT_KEYS([^}]*)\}", COMPOSE) == [":?set it in .env"]


def test_only_who_reminds_gets_the_providers_keys_which_stand_in_a_file_of_their_own() -> None:
    files = {name: service["env_file"] for name, service in SERVICES.items() if "env_file" in service}
    assert files == {"worker-reminders": [{"path": "reminders.env", "required": False}]}
    assert "reminders.env" in (ROOT / ".gitignore").read_text().split()
    named = re.findall(r"^HOLDFAST_([A-Z_]+)=", (ROOT / "reminders.env.example").read_text(), re.MULTILINE)
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    assert not set(named) & set(re.findall(r"HOLDFAST_([A-Z_]+)", COMPOSE))


def test_nothing_deployed_may_send_webhooks_inside() -> None:
    assert "DANGEROUS" not in COMPOSE
    assert "HOLDFAST_DANGEROUS_WEBHOOK_TARGETS" not in EXAMPLE


def test_redis_keeps_its_keys() -> None:
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_what_the_image_needs_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split("\n") if line.startswith("!")}
    needed = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "comparison"}
    assert needed <= kept
    copied = re.findall(r"^COPY (?!--from)(.+) \./$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for line in copied for name in line.split()} <= kept


def test_no_secret_and_no_state_reaches_the_image() -> None:
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    assert lines[1] == "*"
    assert not {"!.env", "!.holdfast", "!.git", "!tests"} & set(lines)
