"""What each call answers as `data`: from these the discovery documents say what is returned."""

from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from comparison.infrai_server.contract import Contract


class Returned(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid")


class Queue(Returned):
    """queue.create."""

    queue: str
    name: str
    type: str
    dead_letter_queue: str | None
    max_retries: int
    message_retention_days: int
    visibility_timeout_default: int
    enable_priority: bool


class Published(Returned):
    """queue.publish."""

    message_id: str


class PublishedBatch(Returned):
    """queue.publish_batch."""

    message_ids: list[str]


class Message(Returned):
    """One consumed message."""

    message_id: str
    payload: dict[str, Any]
    attempts: int
    enqueued_at: str


class Items(Returned):
    """queue.consume, in the house style."""

    items: list[Message]


class Messages(Returned):
    """queue.consume, as most clients read it."""

    messages: list[Message]


class Settled(Returned):
    """queue.ack and queue.nack."""

    message_id: str
    acked: bool = True
    nacked: bool = True


class Stats(Returned):
    """queue.stats."""

    queue: str
    visible: int
    in_flight: int
    delayed: int
    dlq: int
    oldest_age_seconds: float


class Redriven(Returned):
    """queue.dlq.redrive."""

    queue: str
    redriven: int


class Subscribed(Returned):
    """queue.push_subscribe."""

    id: str
    queue: str
    url: str


class Deleted(Returned):
    """queue.delete."""

    queue: str
    deleted: bool


class Job(Returned):
    """cron.create, get, pause, resume."""

    job_id: str
    cron_id: str
    name: str | None
    schedule: str | None
    cron_expr: str | None
    run_at: str | None
    url: str
    task: str
    timezone: str
    timeout_seconds: int
    overlap_policy: str
    max_runs: int | None
    enabled: bool
    next_run_at: str | None


class Jobs(Returned):
    """cron.list."""

    items: list[Job]


class Run(Returned):
    """cron.trigger."""

    run_id: str
    job_id: str
    status: str
    started_at: str
    finished_at: str | None
    http_status: int | None
    output: str


class Runs(Returned):
    """cron.runs.list."""

    items: list[Run]


class JobDeleted(Returned):
    """cron.delete."""

    job_id: str
    deleted: bool


class Bare(RootModel[list[Message]]):
    """queue.consume, without a name for the list."""


def consumed(contract: Contract) -> type[BaseModel]:
    """What consume returns under this contract (X1)."""
    kinds: dict[str, type[BaseModel]] = {"items": Items, "messages": Messages, "bare": Bare}
    return kinds[contract.consume_key]
