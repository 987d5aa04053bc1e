"""The Celery app, the one way to make a task, and what every task may ask: its database, its message."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from math import ceil
from typing import Any, ParamSpec, TypeVar

import billiard.pool
from celery import Celery, Task, current_task
from celery.signals import worker_process_init
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from db.engine import Database
from domain.paths import Carrier, Path
from domain.sweeping import ClaimPolicy
from settings import settings
from tasks import logs  # noqa: F401 - imported for its signal handlers

# A pool's child that is asked to end waits until the worker has counted its last result, which a worker that has
# stopped reading never does: one stop in thirty took the 30 s that it waits by default. What was not counted is not
# acknowledged and comes again, which is a duplicate.
billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 50  # times 0.1 s: a busy worker may take a moment

_LONGEST_ID = 200
_MOST_RETRIES = 1000
"""A message says these of itself; a receipt takes them cut to size."""

P = ParamSpec("P")
R = TypeVar("R")

app = Celery(
    "holdfast",
    config_source="celeryconfig",
    include=["tasks.sweep", "tasks.expiry", "tasks.webhooks", "tasks.reminders", "tasks.bridge"],
)


def task(
    name: str, *, soft_limit: timedelta | None, hard_limit: timedelta | None, retries: int = 0
) -> Callable[[Callable[P, R]], "Task[P, R]"]:
    """Make a function a task of this name. The options are a closed set: Celery would swallow a misspelt one.

    The limits are None only on threads, which nothing can interrupt: such a task bounds itself.

    `retries` bounds how often a failed database is asked again, a few seconds apart; after that the message is gone
    and the next sweep finds its rows.
    """
    limits: dict[str, Any] = {
        "soft_time_limit": None if soft_limit is None else ceil(soft_limit.total_seconds()),
        "time_limit": None if hard_limit is None else ceil(hard_limit.total_seconds()),
    }
    return app.task(
        name=name,
        Strategy="tasks.strategy:guarded",
        **limits,
        autoretry_for=(DBAPIError, PoolTimeout) if retries else (),
        max_retries=retries,
        retry_backoff=1,
        retry_backoff_max=4,
    )


CONNECTIONS = 64
"""Connections of one process, at most, made as needed: a thread of a lane has one, and for a fault another."""


@cache
def database() -> Database:
    """This process's database, made when it is first needed."""
    chosen = settings()
    return Database(chosen.database, statement_timeout=chosen.statement_timeout, pool=CONNECTIONS)


@worker_process_init.connect
def _own_connections(**_: Any) -> None:
    """A forked child opens connections of its own."""
    database.cache_clear()


@cache
def policy() -> ClaimPolicy:
    """The bounds of claiming, from settings."""
    chosen = settings()
    return ClaimPolicy(
        lease=chosen.claim_lease,
        grace=chosen.rescue_grace,
        window=chosen.in_flight_window,
        batch=chosen.claim_batch,
        claims_before_set_aside=chosen.claims_before_set_aside,
        set_aside_limit=chosen.set_aside_limit,
    )


def worker_name() -> str:
    """The name of the worker that runs this task."""
    return str(current_task.request.hostname)


def this_message(*, path: Path | None, run: int | None) -> Carrier:
    """Who carries the message that this task is running."""
    request = current_task.request
    return Carrier(
        message_id=ascii(request.id)[1:-1][:_LONGEST_ID] if isinstance(request.id, str) else "unknown",
        path=path,
        run=run,
        worker=worker_name(),
        retries=min(max(int(request.retries or 0), 0), _MOST_RETRIES),
        redelivered=bool((request.delivery_info or {}).get("redelivered")),
    )
