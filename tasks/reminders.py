"""The reminders lane: a sweep that asks for drains, and a drain of one channel.

The lane runs on threads, so Celery's time limits do not reach it: a task's bound is a request's deadline.
"""

from threading import BoundedSemaphore

import structlog

from db import reminding
from domain.errors import BadInput
from domain.reminding import Channel
from settings import settings
from tasks import reaching
from tasks.app import database, task, worker_name
from tasks.lane import broker_faults, depth_of
from tasks.reminding import Drain

log = structlog.get_logger(__name__)

LANE = "reminders"


ROOM = {channel: BoundedSemaphore(settings().reminder_channel_threads) for channel in Channel}
"""Threads of this process that a channel may use: a provider that hangs leaves the others to the other channel."""


@task("reminder.sweep", soft_limit=None, hard_limit=None)
def sweep_reminders() -> int:
    """One tick: a message for each thread that a channel with due reminders can use.

    Not while the lane holds as many already, so that nothing piles up where no worker is.
    """
    chosen = settings()
    most = chosen.reminder_channel_threads
    with database().transaction() as tx:
        due = reminding.dispatch(tx, apart=chosen.reminder_tick / 2, most=most)
    if not due or depth_of(LANE) >= most * len(Channel):
        return 0
    for turn in range(most):  # in turn, so that two channels with a backlog share the threads evenly
        for channel, count in due.items():
            if turn < count:
                publish(channel)
    return sum(due.values())


@task("reminder.drain", soft_limit=None, hard_limit=None)
def drain(channel: str) -> int:
    """Send what is due by this channel, for a moment; nothing where the channel has all the threads it may have.

    Nor where a gateway or the texts cannot be made of these settings: then reminders wait, and `status` turns red.
    """
    if channel not in set(Channel):
        log.warning("reminder.malformed", channel=ascii(channel)[:70])
        return 0
    try:
        gateways = reaching.ready()
    except BadInput as problem:
        log.error("reminder.misconfigured", error=str(problem))  # noqa: TRY400 - its one line says it all
        return 0
    chosen, channel = settings(), Channel(channel)
    if not ROOM[channel].acquire(blocking=False):
        return 0
    try:
        drained = Drain(
            db=database(), gateways=gateways, compose=reaching.compose, rules=chosen.quiet_rules,
            worker=worker_name(), lease=chosen.reminder_lease,
            deadline=chosen.reminder_deadline, budget=chosen.reminder_budget,
        )(channel)  # fmt: skip
    finally:
        ROOM[channel].release()
    if drained.again:
        publish(channel)
    return drained.sent


def publish(channel: Channel) -> None:
    """Ask the lane to drain a channel.

    Raises:
        BrokerUnavailable: the broker did not say that it took it. The reminders stay due, and a tick asks again.
    """
    with broker_faults():
        drain.apply_async(kwargs={"channel": channel.value})
