"""The webhook lane: a sweep that hands out free slots, a drain for each, and what is tidied now and then.

The lane runs on threads, so Celery's time limits do not reach it: a task's bound is the request's
deadline, and while the database is away the lease.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import cache

import structlog

from db import endpoint_keys, endpoints, slots
from domain.endpoints import DeliveryPolicy, EndpointId, HealthPolicy
from settings import settings
from tasks import sending
from tasks.app import database, task, worker_name
from tasks.delivery import Drain
from tasks.lane import broker_faults

log = structlog.get_logger(__name__)

KEYS_KEPT = timedelta(days=1)
"""How long a key that signs no more can still be seen."""
_MOST_SLACK = timedelta(seconds=1)
"""How much of an unused rate is kept, however long a tick is: a rate is by the second, and a burst is no rate."""
_MOST_BATCHES = 500
"""Transactions that cancel, in one task: half a minute's worth. The next task goes on."""


@cache
def policy() -> DeliveryPolicy:
    """The bounds of delivering, from settings."""
    chosen = settings()
    return DeliveryPolicy(
        lease=chosen.webhook_lease,
        pace_slack=min(chosen.webhook_tick, _MOST_SLACK),
        retry=chosen.retry_policy,
        threads=chosen.webhook_threads,
        health=HealthPolicy(
            breaker_after=chosen.webhook_breaker_failures,
            breaker_pause=chosen.webhook_breaker_pause,
            breaker_longest=chosen.webhook_breaker_longest,
            warn_after=chosen.webhook_warn_after,
            disable_after=chosen.webhook_disable_after,
        ),
    )


@task("webhook.sweep", soft_limit=None, hard_limit=None)
def sweep_webhooks() -> int:
    """One tick: a message for each free slot of each endpoint that has something due."""
    with database().transaction() as tx:
        found = slots.dispatch(tx, policy(), apart=settings().webhook_tick / 2)
    for endpoint in found:
        publish(endpoint)
    return len(found)


@task("webhook.drain", soft_limit=None, hard_limit=None)
def drain(endpoint: str) -> int:
    """Send what is due for this endpoint, through one slot, for a moment."""
    sending.vault()  # a process without keys takes nothing, and uses up no attempt
    drained = Drain(
        db=database(), send=sending.send, policy=policy(), worker=worker_name(), budget=settings().webhook_budget
    )(EndpointId(endpoint))
    if drained.again:
        publish(EndpointId(endpoint))
    return drained.sent


@task("webhook.tidy", soft_limit=None, hard_limit=None)
def tidy() -> dict[str, int]:
    """Cancel what waits for deleted endpoints, however much that is, and forget keys that ended."""
    cancelled = sum(_cancelled())
    with database().transaction() as tx:
        pruned = endpoint_keys.prune(tx, kept=KEYS_KEPT)
    if cancelled or pruned:
        log.info("webhook.tidied", cancelled=cancelled, keys=pruned)
    return {"cancelled": cancelled, "keys": pruned}


def _cancelled() -> Iterator[int]:
    """How many deliveries each transaction cancelled, until one finds fewer than it may: then none is left."""
    for _ in range(_MOST_BATCHES):
        with database().transaction() as tx:
            found = endpoints.cancel_of_deleted(tx)
        yield found
        if found < endpoints.CANCEL_BATCH:
            return


def publish(endpoint: EndpointId) -> None:
    """Ask the lane to drain an endpoint.

    Raises:
        BrokerUnavailable: the broker did not say that it took it. The slot's mark runs out, and a tick asks again.
    """
    with broker_faults():
        drain.apply_async(kwargs={"endpoint": endpoint})
