"""The bridge lane: publish what enters the horizon, and consume what has come."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import structlog
from celery.signals import worker_process_init

from db.engine import Database
from domain.errors import BadInput
from gateways.infrai import Infrai
from gateways.infrai_terms import QueueTerms
from settings import settings
from tasks.app import database, policy, task, worker_name
from tasks.bridging import Bridge, Bridged

log = structlog.get_logger(__name__)

_RETRIES_BEFORE_DEAD = 10
"""Deliveries that end without an acknowledgement before Infrai puts a message aside; the sweep rescues its hold."""
_RETENTION_DAYS = 14
"""Counted from publication, perhaps: twice the longest delay."""


@cache
def client() -> Infrai:
    """This process's client.

    Raises:
        BadInput: the address or the key is missing, or cannot be used.
    """
    chosen = settings()
    if not chosen.has_bridge:
        raise BadInput("HOLDFAST_INFRAI_URL", "is not set; set it to Infrai's address, or a local server's")
    return Infrai(chosen.infrai_url, chosen.infrai_api_key)


@worker_process_init.connect
def _own_client(**_: Any) -> None:
    """A forked child makes connections of its own."""
    client.cache_clear()


def bridge_of(db: Database, worker: str) -> Bridge:
    """The bridge of the settings."""
    chosen = settings()
    return Bridge(
        db=db, client=client(), queue=chosen.infrai_queue, bounds=policy(), worker=worker,
        lease=chosen.bridge_lease, budget=chosen.run_budget,
    )  # fmt: skip


def make_queues() -> bool:
    """Create the bridge's queue and the one of its dead letters, or find them. False: one is there with other terms."""
    queue = settings().infrai_queue
    terms = QueueTerms(
        dead_letter_queue=dead_letter_queue(), max_retries=_RETRIES_BEFORE_DEAD, retention_days=_RETENTION_DAYS,
        lease=settings().bridge_lease,
    )  # fmt: skip
    dead = client().create_queue(dead_letter_queue(), QueueTerms(retention_days=_RETENTION_DAYS))
    return client().create_queue(queue, terms) and dead


def dead_letter_queue() -> str:
    """Where Infrai puts what was not acknowledged so many times."""
    return f"{settings().infrai_queue}-dlq"


def half_a_tick() -> timedelta:
    """A tick that comes sooner than this after the last one is a copy."""
    return settings().bridge_tick / 2


def _tick(verb: str, run: Callable[[Bridge], Bridged]) -> dict[str, object]:
    """One tick; a bridge that is not set up is one line in the log, and `status` says that it is silent."""
    try:
        over = bridge_of(database(), worker_name())
    except BadInput as problem:
        log.error("bridge.unusable", error=str(problem))  # noqa: TRY400 - its cause is all there is to say
        return {"error": str(problem)}
    done = run(over)
    if done.run is not None:
        log.info("bridge.ran", did=verb, **done.as_data())
    return done.as_data()


@task("bridge.publish", soft_limit=settings().sweep_soft_limit, hard_limit=settings().sweep_hard_limit)
def publish() -> dict[str, object]:
    """One tick: publish a message for each hold on path `infrai` whose deadline is within seven days."""
    return _tick("published", lambda over: over.publish(apart=half_a_tick()))


@task("bridge.consume", soft_limit=settings().sweep_soft_limit, hard_limit=settings().sweep_hard_limit)
def consume() -> dict[str, object]:
    """One tick: expire what messages say, and acknowledge them after the commit."""
    return _tick("consumed", lambda over: over.consume(apart=half_a_tick()))
