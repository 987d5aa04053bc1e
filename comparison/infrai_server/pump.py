"""What happens without a call: pushes and scheduled calls are sent when they are due. One thread looks, a few send."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition, Thread
from typing import Any

from comparison.infrai_server.cron import Job, Run
from comparison.infrai_server.outbound import Outcome, Post
from comparison.infrai_server.queue import Message
from comparison.infrai_server.queues import Subscription
from comparison.infrai_server.service import Service

log = logging.getLogger("holdfast.infrai_server")

_SENDERS = 8
_LOOKS_EACH = 0.05
"""Seconds between two looks."""


class Pump:
    """Works beside the server while it is open."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="infrai-send")
        self._turn = Condition()
        self._under_way = 0
        self._looks = self._wanted = 0
        self._open = True
        self._thread = Thread(target=self._run, name="infrai-pump", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send nothing more, and wait for what is under way."""
        with self._turn:
            self._open = False
            self._turn.notify_all()
        self._thread.join()
        self._senders.shutdown(cancel_futures=True)

    def settle(self, limit: float = 10.0) -> bool:
        """Wait until everything that is due now has been sent and settled; False if it was not within the limit."""
        with self._turn:
            self._wanted = goal = self._looks + 2  # the look under way may have missed it
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._looks >= goal and self._under_way == 0, limit)

    def _run(self) -> None:
        while True:
            with self._turn:
                if not self._open:
                    return
            try:
                self._look()
            except Exception:
                log.exception("a defect of the contract server")
            with self._turn:
                self._looks += 1
                self._turn.notify_all()
                self._turn.wait_for(lambda: not self._open or self._looks < self._wanted, _LOOKS_EACH)

    def _look(self) -> None:
        service = self._service
        with service.lock:
            now = service.clock.now()
            service.crons.fire(now)
            attempts = service.crons.to_attempt(now)
            pushes = service.queues.to_push(now, _SENDERS)
            failures, service.crons.failures = service.crons.failures, []
        for job, run in attempts:
            self._send(_attempt(job, run, now), partial(self._attempted, job, run))
        for subscription, message in pushes:
            self._send(_push(subscription, message), partial(self._pushed, subscription, message))
        for post in failures:
            self._send(post, lambda _: None)

    def _send(self, post: Post, settled: Callable[[Outcome], Any]) -> None:
        with self._turn:
            self._under_way += 1
        self._senders.submit(self._sent, post, settled)

    def _sent(self, post: Post, settled: Callable[[Outcome], Any]) -> None:
        try:
            outcome = self._service.outbound.send(post)
            with self._service.lock:
                settled(outcome)
        except Exception:
            log.exception("a defect of the contract server")
        finally:
            with self._turn:
                self._under_way -= 1
                self._turn.notify_all()

    def _attempted(self, job: Job, run: Run, outcome: Outcome) -> None:
        self._service.crons.attempted(job, run, outcome, self._service.clock.now())

    def _pushed(self, subscription: Subscription, message: Message, outcome: Outcome) -> None:
        now = self._service.clock.now()
        self._service.queues.pushed(subscription, message, accepted=outcome.accepted, now=now)


def _attempt(job: Job, run: Run, now: float) -> Post:
    """The request of a run (U26), within what is left of its time."""
    terms = job.terms
    return Post(terms.url, terms.payload, max(run.ends_at - now, 0.01), terms.headers, terms.secret)


def _push(subscription: Subscription, message: Message) -> Post:
    """The request of a push (U21): the bare payload."""
    return Post(subscription.url, message.payload, subscription.lease, message.headers or {}, subscription.secret)
