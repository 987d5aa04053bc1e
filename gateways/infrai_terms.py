"""What is asked of Infrai: messages to publish, and how queues and scheduled calls are to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import SecretStr

from domain.errors import BadInput
from domain.infrai import LONGEST_RUN, check_payload, delay_seconds
from domain.instants import rfc3339

Json = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to publish."""

    payload: Mapping[str, Json]
    delay: timedelta = timedelta()
    """Rounded up to whole seconds; 0 to 7 days."""
    group: str | None = None
    """FIFO queues only: messages of a group stay in order."""
    deduplication_id: str | None = None
    """FIFO queues only, for five minutes."""
    priority: int | None = None

    def as_data(self) -> dict[str, Json]:
        """The fields as they travel.

        Raises:
            BadInput: the payload is over the limit or no JSON; the delay is out of range.
        """
        check_payload(self.payload)
        fields = {
            "payload": dict(self.payload),
            "delay_seconds": delay_seconds(self.delay) or None,
            "message_group_id": self.group,
            "deduplication_id": self.deduplication_id,
            "priority": self.priority,
        }
        return given(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTerms:
    """How a queue is to be. What is None is left to the service, whose defaults are not published."""

    fifo: bool = False
    dead_letter_queue: str | None = None
    """It must exist already."""
    max_retries: int | None = None
    retention_days: int | None = None
    lease: timedelta | None = None
    priorities: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTerms:
    """A scheduled call: either `expression` (five fields) or `run_at`."""

    name: str
    url: str
    expression: str | None = None
    run_at: datetime | None = None
    timezone: str = "UTC"
    timeout: timedelta = timedelta(seconds=60)
    retry: int | None = None
    overlap_policy: str | None = None
    max_runs: int | None = None
    payload: Json = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: SecretStr | None = None
    on_failure_webhook: str | None = None

    def as_data(self) -> dict[str, Json]:
        """The fields as they travel.

        Raises:
            BadInput: a timeout over 900 s, or not exactly one of expression and instant.
        """
        if (self.expression is None) == (self.run_at is None):
            raise BadInput("schedule", "must be an expression or an instant, one of them")
        if not timedelta(seconds=1) <= self.timeout <= LONGEST_RUN:
            raise BadInput("timeout", f"is {self.timeout.total_seconds():g} s; it must be from 1 to 900 s")
        fields = {
            "name": self.name,
            "task": self.url,
            "cron_expr": self.expression,
            "run_at": None if self.run_at is None else rfc3339(self.run_at),
            "timezone": self.timezone,
            "timeout_seconds": int(self.timeout.total_seconds()),
            "retry": self.retry,
            "overlap_policy": self.overlap_policy,
            "max_runs": self.max_runs,
            "payload": self.payload,
            "headers": dict(self.headers) or None,
            "secret": None if self.secret is None else self.secret.get_secret_value(),
            "on_failure_webhook": self.on_failure_webhook,
        }
        return given(fields)


def given(fields: Mapping[str, Json]) -> dict[str, Json]:
    """The fields without those that are None, which are left to the service."""
    return {name: value for name, value in fields.items() if value is not None}
