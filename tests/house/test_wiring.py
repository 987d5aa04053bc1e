"""What must fit together and no single file shows: timetable, tasks, lanes, leases, settings, words."""

import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import celeryconfig
from beat_schedule import TICKS_EXPIRE_AFTER, TIMETABLE
from cli.local.programs import LANES
from settings import ROOT, InvalidSetting, Settings, settings
from tasks.app import CONNECTIONS, app, task

app.loader.import_default_modules()
OURS: dict[str, Any] = {name: found for name, found in app.tasks.items() if not name.startswith("celery.")}


def test_every_timetable_entry_names_a_registered_task_that_takes_its_arguments() -> None:
    for entry in TIMETABLE.values():
        inspect.signature(app.tasks[entry["task"]].run).bind(**entry["kwargs"])


def test_ticks_wait_far_longer_than_clocks_differ() -> None:
    assert TICKS_EXPIRE_AFTER >= 900
    assert {entry["options"]["expires"] for entry in TIMETABLE.values()} == {TICKS_EXPIRE_AFTER}


def test_every_task_is_routed_to_a_lane_that_some_worker_serves() -> None:
    served = {settings().queue_prefix + lane.queue for lane in LANES}
    assert {queue.name for queue in celeryconfig.task_queues} == served
    for name in OURS:
        assert app.amqp.router.route({}, name)["queue"].name in served


def test_every_lease_outlives_the_longest_task_under_it() -> None:
    expire: Any = OURS["expiry.expire"]
    assert expire.soft_time_limit < expire.time_limit < settings().claim_lease.total_seconds()
    assert settings().claim_lease < settings().visibility_timeout
    assert celeryconfig.broker_transport_options["visibility_timeout"] == settings().visibility_timeout.total_seconds()
    for name, found in OURS.items():
        if not name.startswith("webhook."):
            assert found.time_limit <= settings().longest_task.total_seconds()
    assert settings().longest_task < settings().visibility_timeout


def test_only_the_lane_on_threads_has_no_limits_and_its_own_bound_is_under_the_leases() -> None:
    [lane] = [lane for lane in LANES if lane.pool == "threads"]
    unlimited = {name for name, found in OURS.items() if found.time_limit is None}
    assert unlimited == {"webhook.sweep", "webhook.drain", "webhook.tidy"}
    for name in unlimited:
        assert app.amqp.router.route({}, name)["queue"].name == settings().queue_prefix + lane.queue
    longest = settings().webhook_budget + settings().webhook_deadline
    assert settings().webhook_deadline < settings().webhook_lease
    assert longest < settings().visibility_timeout


def test_each_thread_of_a_lane_may_have_a_connection() -> None:
    assert all(lane.at_once <= CONNECTIONS for lane in LANES)


def test_every_task_acknowledges_late_and_keeps_no_result() -> None:
    for found in OURS.values():
        assert found.acks_late
        assert found.ignore_result


def test_a_task_option_that_is_not_one_of_ours_is_an_error() -> None:
    with pytest.raises(TypeError):
        task("test.typo", soft_limit=timedelta(1), hard_limit=timedelta(2), acks_layte=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "HOLDFAST_TICK",
            "soon",
            "HOLDFAST_TICK: duration: 'soon' is no duration; write it like 90s, 30m, 1h30m or 2d",
        ),
        ("HOLDFAST_CHUNK", "0", "HOLDFAST_CHUNK: Input should be greater than or equal to 1"),
        (
            "HOLDFAST_CLAIM_LEASE",
            "25s",
            "HOLDFAST_EXPIRY_HARD_LIMIT (30s) must be shorter than HOLDFAST_CLAIM_LEASE (25s)",
        ),
        (
            "HOLDFAST_WEBHOOK_LEASE",
            "15s",
            "HOLDFAST_WEBHOOK_DEADLINE (15s) must be shorter than HOLDFAST_WEBHOOK_LEASE (15s)",
        ),
        (
            "HOLDFAST_WEBHOOK_WARN_AFTER",
            "6d",
            "HOLDFAST_WEBHOOK_WARN_AFTER (518400s) must be shorter than HOLDFAST_WEBHOOK_DISABLE_AFTER (432000s)",
        ),
        (
            "HOLDFAST_BROKER_URL",
            "redis://:se@cret@host:6379/0",
            (
                "HOLDFAST_BROKER_URL cannot be read; write it like redis://:password@host:6379/0, "
                "with @ : / ? # in a password as %40 %3A %2F %3F %23"
            ),
        ),
        ("HOLDFAST_DATABASE_URL", "mysql://me:secret@x", "HOLDFAST_DATABASE_URL must begin with postgresql://"),
    ],
)
def test_a_bad_setting_is_named_and_its_value_never_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(variable, value)
    settings.cache_clear()
    with pytest.raises(InvalidSetting) as refused:
        settings()
    settings.cache_clear()
    assert str(refused.value) == line


def test_every_setting_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "SETTINGS.md").read_text()
    named = set(re.findall(r"^\| `([A-Z_]+)` \|", reference, re.MULTILINE))
    assert named == {
        field.validation_alias or f"HOLDFAST_{name.upper()}" for name, field in Settings.model_fields.items()
    }


def test_nothing_in_the_project_reads_another_clock() -> None:
    for folder in ("domain", "db"):
        for file in Path(ROOT, folder).rglob("*.py"):
            assert not re.search(r"datetime\.now\(|time\.time\(|utcnow", file.read_text()), file
