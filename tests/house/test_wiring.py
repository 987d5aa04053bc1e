"""What must fit together and no single file shows: timetable, tasks, lanes, leases, settings, words."""

import inspect
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import billiard.pool
import pytest

import celeryconfig
from beat_schedule import TICKS_EXPIRE_AFTER, TIMETABLE
from cli.local.programs import LANES, as_environment
from domain.endpoints import DeliveryPolicy, Overrides
from domain.webhooks import RetryPolicy
from gateways.webhook import Limits
from settings import ROOT, InvalidSetting, Settings, settings, variable
from tasks import sending, webhooks
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
        if not name.startswith(("webhook.", "reminder.")):
            assert found.time_limit <= settings().longest_task.total_seconds()
    assert settings().longest_task < settings().visibility_timeout


def test_only_the_lanes_on_threads_have_no_limits_and_their_own_bounds_are_under_the_leases() -> None:
    lanes = {settings().queue_prefix + lane.queue for lane in LANES if lane.pool == "threads"}
    unlimited = {name for name, found in OURS.items() if found.time_limit is None}
    assert unlimited == {"webhook.sweep", "webhook.drain", "webhook.tidy", "reminder.sweep", "reminder.drain"}
    assert {app.amqp.router.route({}, name)["queue"].name for name in unlimited} == lanes
    for lease, deadline, budget in (
        (settings().webhook_lease, settings().webhook_deadline, settings().webhook_budget),
        (settings().reminder_lease, settings().reminder_deadline, settings().reminder_budget),
    ):
        assert deadline < lease
        assert budget + deadline < settings().visibility_timeout


def test_one_channel_of_reminders_leaves_threads_to_the_other() -> None:
    [lane] = [lane for lane in LANES if lane.queue == "reminders"]
    assert settings().reminder_channel_threads < lane.at_once


def test_each_thread_of_a_lane_may_have_a_connection() -> None:
    assert all(lane.at_once <= CONNECTIONS for lane in LANES)


def test_the_sweep_reckons_with_the_threads_that_one_webhook_worker_has() -> None:
    [lane] = [lane for lane in LANES if lane.queue == "webhooks"]
    assert Settings.model_fields["webhook_threads"].default == lane.at_once
    assert DeliveryPolicy(lease=timedelta(1)).threads == lane.at_once


def test_every_task_acknowledges_late_and_keeps_no_result() -> None:
    for found in OURS.values():
        assert found.acks_late
        assert found.ignore_result


def test_a_child_that_is_asked_to_end_waits_seconds_for_its_last_result_to_be_counted() -> None:
    """The names are the library's: under others the half minute that it waits by default would be back, unseen."""
    source = inspect.getsource(billiard.pool)
    assert "range(GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT)" in source
    assert "sleep(GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL)" in source
    pool = billiard.pool
    assert pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT * pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL == 5


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
        ("HOLDFAST_WEBHOOK_WAITS", "5s,1s", "HOLDFAST_WEBHOOK_WAITS: no wait may be shorter than the one before it"),
        (
            "HOLDFAST_WEBHOOK_WAITS",
            "0s,,5s",
            "HOLDFAST_WEBHOOK_WAITS: durations: '' is no duration; write it like 90s, 30m, 1h30m or 2d",
        ),
        ("HOLDFAST_WEBHOOK_WAITS", "0s,8d", "HOLDFAST_WEBHOOK_WAITS: must be at most 7d"),
        ("HOLDFAST_WEBHOOK_ATTEMPTS", "101", "HOLDFAST_WEBHOOK_ATTEMPTS: Input should be less than or equal to 100"),
        ("HOLDFAST_WEBHOOK_MAX_AGE", "31d", "HOLDFAST_WEBHOOK_MAX_AGE: must be at most 30d"),
        (
            "HOLDFAST_WEBHOOK_KEY_GRACE",
            "8d",
            "HOLDFAST_WEBHOOK_KEY_GRACE: must be at most 7d",
        ),
        ("HOLDFAST_BRIDGE_LEASE", "13h", "HOLDFAST_BRIDGE_LEASE: must be at most 12h"),
        ("HOLDFAST_BRIDGE_LEASE", "10s", "HOLDFAST_RUN_BUDGET (10s) must be shorter than HOLDFAST_BRIDGE_LEASE (10s)"),
        ("HOLDFAST_BRIDGE_TICK", "0s", "HOLDFAST_BRIDGE_TICK: duration: is zero; it must be longer than that"),
        (
            "HOLDFAST_INFRAI_QUEUE",
            "a b",
            "HOLDFAST_INFRAI_QUEUE: String should match pattern '^[A-Za-z0-9_.-]{1,76}$'",
        ),
        ("HOLDFAST_WEBHOOK_SLOTS", "65", "HOLDFAST_WEBHOOK_SLOTS: Input should be less than or equal to 64"),
        (
            "HOLDFAST_WEBHOOK_LEASE",
            "15s",
            "HOLDFAST_WEBHOOK_DEADLINE (15s) must be shorter than HOLDFAST_WEBHOOK_LEASE (15s)",
        ),
        (
            "HOLDFAST_WEBHOOK_LEASE",
            "15.9s",
            "HOLDFAST_WEBHOOK_LEASE (15.9s) must be longer than HOLDFAST_WEBHOOK_DEADLINE (15s) by 1s at least",
        ),
        (
            "HOLDFAST_WEBHOOK_WARN_AFTER",
            "6d",
            "HOLDFAST_WEBHOOK_WARN_AFTER (518400s) must be shorter than HOLDFAST_WEBHOOK_DISABLE_AFTER (432000s)",
        ),
        (
            "HOLDFAST_WEBHOOK_BREAKER_PAUSE",
            "2m",
            "HOLDFAST_WEBHOOK_BREAKER_PAUSE (120s) must be shorter than HOLDFAST_WEBHOOK_BREAKER_LONGEST (60s)",
        ),
        (
            "HOLDFAST_REMINDER_LEASE",
            "15s",
            "HOLDFAST_REMINDER_DEADLINE (15s) must be shorter than HOLDFAST_REMINDER_LEASE (15s)",
        ),
        (
            "HOLDFAST_REMINDER_LEASE",
            "15.9s",
            "HOLDFAST_REMINDER_LEASE (15.9s) must be longer than HOLDFAST_REMINDER_DEADLINE (15s) by 1s at least",
        ),
        (
            "HOLDFAST_REMINDER_LEADS",
            "24h,0s",
            "HOLDFAST_REMINDER_LEADS: leads: is zero; it must be longer than that",
        ),
        (
            "HOLDFAST_QUIET_HOURS",
            "at night",
            "HOLDFAST_QUIET_HOURS: quiet_hours: 'at night' are no hours; write them like 21:00-08:00, or off",
        ),
        ("HOLDFAST_EMAIL_GATEWAY", "smtp", "HOLDFAST_EMAIL_FROM is needed with HOLDFAST_EMAIL_GATEWAY=smtp"),
        (
            "HOLDFAST_SMTP_PASSWORD",
            "secret",
            "HOLDFAST_SMTP_USER and HOLDFAST_SMTP_PASSWORD go together: set both, or none",
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


def test_every_setting_reaches_a_program_through_its_environment_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Settings()
    given = {name: getattr(plain, name) for name in Settings.model_fields}
    said = as_environment(Settings(**given))
    assert {variable(name) for name, value in given.items() if value is not None} == set(said)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert Settings() == plain


def test_the_lane_is_bounded_as_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def bounds() -> tuple[RetryPolicy, Limits]:
        settings.cache_clear()
        found = webhooks.policy.__wrapped__().retry, sending.sender.__wrapped__()
        found[1].close()
        return found[0], found[1].limits

    assert bounds() == (RetryPolicy(), Limits())
    for name, value in (("WAITS", "0s,1m"), ("ATTEMPTS", "3"), ("MAX_AGE", "2h"), ("RETRY_AFTER", "0s"),
                        ("ANSWER_BYTES", "100")):  # fmt: skip
        monkeypatch.setenv(f"HOLDFAST_WEBHOOK_{name}", value)
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    chosen = RetryPolicy(waits=(timedelta(0), minute), attempts=3, max_age=2 * hour, longest_retry_after=timedelta(0))
    assert bounds() == (chosen, Limits(body=100))
    assert Overrides(max_attempts=7).over(chosen) == replace(chosen, attempts=7)
    settings.cache_clear()


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
