"""The environment, read once, typed and checked. Every variable is named `HOLDFAST_` and a field's name below.

A bad value stops the process with one line that names the variable. Durations are written `30s`, `5m`, `1h30m`.
"""

import hashlib
import re
from datetime import timedelta
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from domain.contacts import check_mailbox
from domain.durations import format_duration, parse_duration, parse_length, parse_lengths
from domain.endpoints import LONGEST_GRACE, MOST_SLOTS
from domain.errors import HoldfastError
from domain.infrai import LONGEST_LEASE
from domain.quiet_hours import Policy, Rules, parse_quiet_hours
from domain.terms import read_leads
from domain.webhooks import LADDER, LONGEST_LIFE, LONGEST_RETRY_AFTER, LONGEST_WAIT, MOST_ATTEMPTS, RetryPolicy

ROOT = Path(__file__).resolve().parent
"""The project's own folder: relative paths in settings start here."""

_SOCKET_PATH = re.compile(r"[A-Za-z0-9_./-]{1,100}", re.ASCII)
"""Paths that stand in an address as they are; unix sockets take 107 bytes at most on Linux, 103 on macOS."""


def _at_most(longest: timedelta) -> AfterValidator:
    """A bound that is said as durations are written."""

    def judged(length: timedelta) -> timedelta:
        if length > longest:
            raise ValueError(f"must be at most {format_duration(longest)}")
        return length

    return AfterValidator(judged)


def _rising(waits: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    """A ladder goes up.

    Raises:
        ValueError: a wait is shorter than the one before it.
    """
    if any(later < earlier for earlier, later in pairwise(waits)):
        raise ValueError("no wait may be shorter than the one before it")
    return waits


Duration = Annotated[timedelta, BeforeValidator(lambda raw: parse_duration(raw) if isinstance(raw, str) else raw)]
Length = Annotated[timedelta, BeforeValidator(lambda raw: parse_length(raw) if isinstance(raw, str) else raw)]
Lengths = Annotated[
    tuple[Annotated[timedelta, _at_most(LONGEST_WAIT)], ...],
    NoDecode,
    BeforeValidator(lambda raw: parse_lengths(raw) if isinstance(raw, str) else raw),
    AfterValidator(_rising),
]
Count = Annotated[int, Field(ge=1)]


_NEEDED = {
    "smtp": ("smtp_host",),
    "resend": ("resend_api_key",),
    "twilio": ("twilio_account", "twilio_secret"),
    "telnyx": ("telnyx_api_key",),
}
"""What each gateway cannot do without."""


def _leads(raw: str) -> str:
    read_leads(raw)
    return raw


def _mailbox(raw: str) -> str:
    if raw:
        check_mailbox(raw)
    return raw


def _quiet_hours(raw: str) -> str:
    parse_quiet_hours(raw)
    return raw


_TIME_TO_BEGIN = timedelta(seconds=1)
"""How much longer than a request's deadline a lease is, at least."""


class InvalidSetting(HoldfastError):
    """A variable of the environment cannot be used."""


class Settings(BaseSettings):
    """What a deployment may decide. Defaults suit the local stack and a small fleet."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", frozen=True, extra="ignore")

    home: Path = Path(".holdfast")
    """Where the local stack keeps its state."""
    database_url: SecretStr | None = None
    """PostgreSQL 15 or newer, `postgresql://…`. Unset: the local stack's own."""
    broker_url: SecretStr | None = None
    """Redis, Valkey or RabbitMQ: `redis://…`, `amqp://…`. Unset: the local stack's own."""
    queue_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$")] = ""
    """Set before every queue's name, for a broker shared with others."""
    key_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_:.-]*$")] = ""
    """Set before every Redis key, for a Redis shared with others."""

    tick: Duration = timedelta(seconds=1)
    """How often beat asks for a sweep."""
    claim_lease: Duration = timedelta(seconds=60)
    """How long a claimed hold is left alone before another run may claim it."""
    claim_batch: Count = 1000
    """Holds claimed in one transaction."""
    chunk: Count = 500
    """References in one message, and holds in one expiry transaction."""
    in_flight_window: Count = 10_000
    """Holds claimed and not yet expired, at most."""
    run_budget: Duration = timedelta(seconds=10)
    """A sweep run claims nothing more after this long."""
    rescue_grace: Duration = timedelta(minutes=5)
    """Overdue by this much, a hold of any cohort is expired by the sweep."""
    claims_before_set_aside: Count = 3
    """A hold that fails alone is set aside on this claim."""
    set_aside_limit: Count = 100
    """A run that would set aside more holds than this stops."""

    expiry_soft_limit: Duration = timedelta(seconds=20)
    """An expiry task is asked to stop after this long."""
    expiry_hard_limit: Duration = timedelta(seconds=30)
    """An expiry task is killed after this long; under the claim lease."""
    visibility_timeout: Duration = timedelta(seconds=300)
    """Redis delivers an unacknowledged message again after this long; over the claim lease."""

    webhook_tick: Duration = timedelta(milliseconds=250)
    """How often beat asks whether a webhook is due."""
    webhook_deadline: Duration = timedelta(seconds=15)
    """One request may take this long, from look-up to the last byte read."""
    webhook_lease: Duration = timedelta(seconds=30)
    """How long a taken delivery is left alone before another worker may take it; over the deadline."""
    webhook_budget: Duration = timedelta(seconds=1)
    """A worker begins no further request for the same endpoint after this long, so that others get their turn."""
    webhook_waits: Lengths = LADDER
    """The longest wait before each attempt, none shorter than the one before; the last one repeats. An endpoint may
    have its own, as it may for attempts and age."""
    webhook_attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] = len(LADDER)
    """Attempts a delivery has, counted anew when it is replayed."""
    webhook_max_age: Annotated[Duration, _at_most(LONGEST_LIFE)] = timedelta(days=4)
    """No attempt starts later after the event, or the replay, than this."""
    webhook_retry_after: Annotated[Length, _at_most(LONGEST_RETRY_AFTER)] = timedelta(hours=1)
    """A receiver may ask for no longer wait than this; 0s heeds none."""
    webhook_answer_bytes: Annotated[int, Field(ge=0, le=1024 * 1024)] = 16 * 1024
    """Bytes of an answer's body that are read, after decompression."""
    webhook_slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] = 4
    """Requests under way at once to an endpoint that is added without `--concurrency`."""
    webhook_key_grace: Annotated[Length, _at_most(LONGEST_GRACE)] = timedelta(hours=24)
    """How long an endpoint's present keys still sign after `rotate` without `--grace`."""
    webhook_threads: Count = 48
    """Requests that all webhook workers together can have under way. Endpoints that are slow, or new, get a share."""
    webhook_breaker_failures: Count = 5
    """Failures in a row after which an endpoint's breaker opens."""
    webhook_breaker_pause: Duration = timedelta(seconds=5)
    """How long a breaker stays open at first; each failed probe doubles it."""
    webhook_breaker_longest: Duration = timedelta(minutes=1)
    """How long a breaker stays open at most."""
    webhook_warn_after: Duration = timedelta(days=1)
    """Others are told of an endpoint that has failed this long without a success."""
    webhook_disable_after: Duration = timedelta(days=5)
    """An endpoint that has failed this long without a success is disabled."""
    vault_keys: SecretStr = SecretStr("")
    """Seal endpoint secrets: base64 of 32 bytes each, with commas between, the one to seal with first. Unset, with the
    local stack's own database: its own key."""
    dangerous_webhook_targets: bool = False
    """Opens plain http, every port and loopback to webhooks: for development and tests only."""

    reminder_leads: Annotated[str, AfterValidator(_leads)] = "24h"
    """How long before their deadline customers are reminded, with commas between; a hold's own leads go first."""
    reminder_tick: Duration = timedelta(seconds=1)
    """How often beat asks whether a reminder is due."""
    reminder_deadline: Duration = timedelta(seconds=15)
    """One request to a provider may take this long, from look-up to the last byte read."""
    reminder_lease: Duration = timedelta(seconds=60)
    """A taken reminder whose outcome was not recorded by then counts as unknown; over the deadline."""
    reminder_budget: Duration = timedelta(seconds=5)
    """A worker begins no further reminder for the same message after this long, so that others get their turn."""
    reminder_channel_threads: Count = 12
    """Threads of one worker that a channel may use: a provider that hangs leaves the others to the other channel."""
    quiet_hours: Annotated[str, AfterValidator(_quiet_hours)] = "21:00-08:00"
    """When customers are left alone, by the clock of their own zone; `off` for never."""
    quiet_sms: Policy = Policy.DOWNGRADE
    """What becomes of an SMS in quiet hours: `suppress`, `downgrade` (to email), `delay` or `send`."""
    quiet_email: Policy = Policy.SEND
    """What becomes of an email in quiet hours: `suppress`, `delay` or `send`."""
    texts: Path | None = None
    """A folder of templates that stand before those of Holdfast."""
    email_gateway: Literal["none", "smtp", "resend"] = "none"
    """What sends emails. With none, email reminders are suppressed when they are due."""
    email_from: Annotated[str, AfterValidator(_mailbox)] = ""
    """The sender of emails, like `Holds <holds@example.com>`."""
    sms_gateway: Literal["none", "twilio", "telnyx"] = "none"
    """What sends SMS. With none, SMS reminders are suppressed when they are due."""
    sms_from: str = ""
    """The sender of SMS: a number in E.164, a name, or Twilio's `MG…`."""
    smtp_host: str = ""
    """The mail server."""
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 587
    """The mail server's port."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls`, `tls` from the first byte, or `none`."""
    smtp_user: str = ""
    """The login at the mail server; empty for none."""
    smtp_password: SecretStr = SecretStr("")
    """The login's password."""
    resend_api_key: SecretStr = SecretStr("")
    """Resend's API key."""
    resend_url: str = "https://api.resend.com"
    """Where Resend answers."""
    twilio_account: str = ""
    """Twilio's account, `AC…`."""
    twilio_key: str = ""
    """The id of an API key of Twilio, `SK…`; empty to log in with the account."""
    twilio_secret: SecretStr = SecretStr("")
    """The secret of that key, or the account's token."""
    twilio_url: str = "https://api.twilio.com"
    """Where Twilio answers."""
    telnyx_api_key: SecretStr = SecretStr("")
    """Telnyx's API key."""
    telnyx_url: str = "https://api.telnyx.com"
    """Where Telnyx answers."""
    provider_ca_file: Path | None = None
    """Certificates that providers are verified with, instead of the public ones."""
    infrai_url: str = ""
    """Infrai's address, or that of `holdfast infrai-server`. Unset: nothing is carried by Infrai."""
    infrai_api_key: SecretStr = Field(default=SecretStr(""), validation_alias="INFRAI_API_KEY")
    """The project's key. Its variable is the one Infrai's own documents name, without our prefix."""
    infrai_queue: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,76}$")] = "holdfast-expiry"
    """The queue of the bridge; its dead letters go to the same name with `-dlq`."""
    bridge_tick: Duration = timedelta(seconds=1)
    """How often beat asks the bridge to publish and to consume."""
    bridge_lease: Annotated[Duration, _at_most(LONGEST_LEASE)] = timedelta(seconds=60)
    """How long a consumed message, and a batch being published, are left alone."""
    door_token: SecretStr = SecretStr("")
    """What opens the sweep door as a bearer token; 16 characters or more."""
    door_secret: SecretStr = SecretStr("")
    """What signs a call of the sweep door (HMAC-SHA256 over its body); 16 characters or more."""

    statement_timeout: Duration = timedelta(seconds=15)
    """A worker's statement is cancelled after this long; under the expiry's soft limit."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto` is console on a terminal, else JSON."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe log line that is written."""
    flower_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Flower's port on loopback in the local stack; 0 takes a free one."""
    flower_user: Annotated[str, Field(pattern=r"^[^:]*$")] = ""
    """Flower's login name. Without it and the password Flower asks for none."""
    flower_password: SecretStr = SecretStr("")
    """Flower's password."""

    @model_validator(mode="after")
    def _leases_outlive_tasks(self) -> Self:
        ladders = (
            ("statement_timeout", "expiry_soft_limit", "expiry_hard_limit", "claim_lease", "visibility_timeout"),
            ("run_budget", "visibility_timeout"),
            ("webhook_deadline", "webhook_lease", "visibility_timeout"),
            ("webhook_budget", "visibility_timeout"),
            ("webhook_warn_after", "webhook_disable_after"),
            ("webhook_breaker_pause", "webhook_breaker_longest"),
            ("reminder_deadline", "reminder_lease"),
            ("reminder_deadline", "visibility_timeout"),
            ("reminder_budget", "visibility_timeout"),
            ("run_budget", "bridge_lease"),
        )
        for lower, upper in chain.from_iterable(map(pairwise, ladders)):
            a, b = getattr(self, lower), getattr(self, upper)
            if a >= b:
                raise ValueError(
                    f"HOLDFAST_{lower.upper()} ({a.total_seconds():g}s) must be shorter than "
                    f"HOLDFAST_{upper.upper()} ({b.total_seconds():g}s)"
                )
        return self

    @model_validator(mode="after")
    def _leases_leave_time_to_begin(self) -> Self:
        """Whoever took something longer ago than its lease outlasts the deadline begins no request any more."""
        for lane in ("webhook", "reminder"):
            lease, deadline = getattr(self, f"{lane}_lease"), getattr(self, f"{lane}_deadline")
            if lease - deadline < _TIME_TO_BEGIN:
                raise ValueError(
                    f"HOLDFAST_{lane.upper()}_LEASE ({lease.total_seconds():g}s) must be longer than "
                    f"HOLDFAST_{lane.upper()}_DEADLINE ({deadline.total_seconds():g}s) by "
                    f"{format_duration(_TIME_TO_BEGIN)} at least"
                )
        return self

    @model_validator(mode="after")
    def _gateways_have_what_they_need(self) -> Self:
        if self.quiet_email is Policy.DOWNGRADE:
            raise ValueError(
                "HOLDFAST_QUIET_EMAIL cannot be downgrade: there is nothing below; use send, delay or suppress"
            )
        for setting, needed in (("email_gateway", "email_from"), ("sms_gateway", "sms_from")):
            chosen: str = getattr(self, setting)
            for name in () if chosen == "none" else (needed, *_NEEDED[chosen]):
                value = getattr(self, name)
                if not (value.get_secret_value() if isinstance(value, SecretStr) else value):
                    raise ValueError(f"HOLDFAST_{name.upper()} is needed with HOLDFAST_{setting.upper()}={chosen}")
        if bool(self.smtp_user) is not bool(self.smtp_password.get_secret_value()):
            raise ValueError("HOLDFAST_SMTP_USER and HOLDFAST_SMTP_PASSWORD go together: set both, or none")
        return self

    @property
    def leads(self) -> tuple[timedelta, ...]:
        """For holds whose contacts came without leads."""
        return read_leads(self.reminder_leads)

    @property
    def quiet_rules(self) -> Rules:
        """What becomes of reminders in quiet hours."""
        return Rules(hours=parse_quiet_hours(self.quiet_hours), sms=self.quiet_sms, email=self.quiet_email)

    @property
    def retry_policy(self) -> RetryPolicy:
        """How long a delivery is tried where its endpoint has no bounds of its own."""
        return RetryPolicy(
            waits=self.webhook_waits, attempts=self.webhook_attempts, max_age=self.webhook_max_age,
            longest_retry_after=self.webhook_retry_after,
        )  # fmt: skip

    @property
    def sweep_soft_limit(self) -> timedelta:
        """A sweep task is asked to stop after this long: its budget, and time for what the broker may take."""
        return self.run_budget + timedelta(seconds=20)

    @property
    def sweep_hard_limit(self) -> timedelta:
        """A sweep task is killed after this long."""
        return self.sweep_soft_limit + timedelta(seconds=10)

    @property
    def has_bridge(self) -> bool:
        """Whether there is a service that can carry cohorts."""
        return bool(self.infrai_url)

    @property
    def silence(self) -> timedelta:
        """A sweep that has not ticked for this long is silent: `status` turns red."""
        return self.tick * 30

    @property
    def longest_task(self) -> timedelta:
        """What a worker that is asked to stop may need to finish what it does."""
        return max(
            self.expiry_hard_limit,
            self.sweep_hard_limit,
            self.webhook_deadline + self.webhook_budget,
            self.reminder_deadline + self.reminder_budget,
        )

    @property
    def state(self) -> Path:
        """The local stack's folder, absolute."""
        return self.home if self.home.is_absolute() else ROOT / self.home

    @property
    def vault_file(self) -> Path:
        """Where the local stack keeps its own vault key."""
        return self.state / "vault.key"

    @property
    def sockets(self) -> Path:
        """The folder of the local stack's sockets: under its state, or in /tmp where an address cannot hold that."""
        folder = self.state / "run"
        if _SOCKET_PATH.fullmatch(str(folder / ".s.PGSQL.5432")):
            return folder
        return Path("/tmp") / f"holdfast-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"  # noqa: S108 - a short path is the point

    @property
    def database(self) -> str:
        """The database's address, in SQLAlchemy's form. Holds a password: never log it."""
        if self.database_url is None:
            return f"postgresql+psycopg://postgres@/postgres?host={self.sockets}"
        scheme, separator, rest = self.database_url.get_secret_value().partition("://")
        if not separator or scheme not in {"postgres", "postgresql", "postgresql+psycopg"}:
            raise InvalidSetting("HOLDFAST_DATABASE_URL must begin with postgresql://")
        url = f"postgresql+psycopg://{rest}"
        _readable("HOLDFAST_DATABASE_URL", url, "postgresql://user:password@host:5432/name")
        return url

    @property
    def broker(self) -> str:
        """The broker's address, in kombu's form. Holds a password: never log it."""
        if self.broker_url is None:
            return f"redis+socket://{self.sockets / 'valkey.sock'}"
        url = self.broker_url.get_secret_value()
        if url.partition("://")[0] not in {"redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps"}:
            raise InvalidSetting(
                "HOLDFAST_BROKER_URL must begin with redis://, rediss://, redis+socket://, "
                "sentinel://, amqp:// or amqps://"
            )
        _readable("HOLDFAST_BROKER_URL", url, "redis://:password@host:6379/0")
        return url


def variable(field: str) -> str:
    """The name of the environment's variable for a setting."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else f"HOLDFAST_{field.upper()}"


def _readable(variable: str, address: str, example: str) -> None:
    """Refuse an address that would be split in the wrong place: a piece of a password must not end up in an error.

    Raises:
        InvalidSetting: names the variable and shows nothing of it.
    """
    try:
        split = urlsplit(address.partition(";")[0])
        readable = split.netloc.count("@") <= 1 and (split.port or 1) > 0
    except ValueError:
        readable = False
    if not readable:
        raise InvalidSetting(
            f"{variable} cannot be read; write it like {example}, with @ : / ? # in a password as %40 %3A %2F %3F %23"
        )


@cache
def settings() -> Settings:
    """This process's settings.

    Raises:
        InvalidSetting: a variable is of the wrong form; the message names it and never repeats its value.
    """
    try:
        loaded = Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = f"HOLDFAST_{str(first['loc'][0]).upper()}: " if first["loc"] else ""
        raise InvalidSetting(where + first["msg"].removeprefix("Value error, ")) from None
    _ = loaded.database, loaded.broker
    return _with_local_vault_key(loaded)


def _with_local_vault_key(given: Settings) -> Settings:
    """The local stack's own key goes with its own database, so that every command there seals with what workers open.

    Raises:
        InvalidSetting: there is one, and this user may not read it.
    """
    if given.database_url is not None or given.vault_keys.get_secret_value():
        return given
    try:
        key = given.vault_file.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return given
    except OSError as fault:
        raise InvalidSetting(
            f"{given.vault_file} cannot be read ({fault.strerror}); run this as the user who runs `holdfast up`"
        ) from None
    return given.model_copy(update={"vault_keys": SecretStr(key)})
