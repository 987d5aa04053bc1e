"""The calls, by id: a request that was validated goes in, `data` comes out. One lock; nothing slow inside it."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from comparison.infrai_server.clock import Clock
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.cron import Crons, Terms
from comparison.infrai_server.faults import Faults
from comparison.infrai_server.models import CreateCron, Request
from comparison.infrai_server.outbound import Outbound
from comparison.infrai_server.problems import invalid
from comparison.infrai_server.queues import Queues
from comparison.infrai_server.schedule import Schedule
from domain.errors import BadInput
from domain.infrai import compact
from domain.instants import parse_instant, zone_name

Json = Any
Calls = Mapping[str, Callable[[str, Any, float], Json]]
"""By id: target, request and instant go in."""
_TARGETS = {"clients": ("task",), "docs table": ("url",), "docs example": ("task_url",)}


class Service:
    """One project's queues and jobs."""

    def __init__(self, contract: Contract, clock: Clock, faults: Faults) -> None:
        self.contract = contract
        self.clock = clock
        self.faults = faults
        self.lock = RLock()
        self.outbound = Outbound(contract.loopback_targets, contract.signature_prefix)
        self.queues = Queues(contract, faults.handing)
        self.crons = Crons(contract, lambda: random.uniform(0, contract.jitter) if contract.jitter else 0.0)  # noqa: S311 - lateness, no secret
        self.spellings: Counter[str] = Counter()
        """How often cron.create came in which spelling (X2)."""
        self._calls: Calls = {
            "queue.create": lambda _, request, __: self.queues.create(request),
            "queue.publish": lambda _, request, now: self.queues.publish(request, now),
            "queue.publish_batch": lambda _, request, now: self.queues.publish_batch(request, now),
            "queue.consume": lambda _, request, now: self.queues.consume(request, now),
            "queue.ack": lambda _, request, now: self.queues.ack(request, now),
            "queue.nack": lambda _, request, now: self.queues.nack(request, now),
            "queue.stats": lambda target, _, now: self.queues.stats(target, now),
            "queue.dlq.redrive": lambda target, request, now: self.queues.redrive(_same(target, request), now),
            "queue.push_subscribe": self._subscribe,
            "queue.delete": lambda target, request, now: self.queues.delete(_same(target, request), now),
            "cron.create": self._create_cron,
            "cron.get": lambda target, _, __: self.crons.get(target).as_data(),
            "cron.list": lambda _, __, ___: {"items": [job.as_data() for job in self.crons.all()]},
            "cron.pause": lambda target, _, __: self.crons.pause(target),
            "cron.resume": lambda target, _, now: self.crons.resume(target, now),
            "cron.trigger": lambda target, _, now: self.crons.trigger(target, now),
            "cron.delete": self._delete_cron,
            "cron.runs.list": lambda target, _, __: {"items": [run.as_data() for run in self.crons.get(target).runs]},
        }

    def carry_out(self, call: str, target: str, request: Request) -> Json:
        """Carry out one call at the present instant of the server's clock.

        Raises:
            Problem: it is refused; nothing was changed.
        """
        with self.lock:
            return self._calls[call](target, request, self.clock.now())

    def _subscribe(self, target: str, request: Any, now: float) -> Json:
        self.outbound.check(request.url)
        return self.queues.subscribe(_same(target, request), request, now)

    def _delete_cron(self, target: str, _request: Any, _now: float) -> Json:
        self.crons.delete(target)
        return {"job_id": target, "deleted": True}

    def _create_cron(self, _target: str, request: CreateCron, now: float) -> Json:
        """X2: three spellings are taken; U30: exactly one of expression and instant, which lies ahead."""
        spelling, url = self._target(request)
        expression = request.cron_expr or request.schedule
        if (expression is None) == (request.run_at is None) or (request.cron_expr and request.schedule):
            raise invalid("cron_expr: give either cron_expr or run_at, once")
        if request.retry is not None and request.retries is not None:
            raise invalid("retry: is given twice, as retry and as retries")
        if self.contract.cron_fields == "clients" and (spelling != "clients" or request.schedule or request.retries):
            raise invalid("cron_expr, task: this server takes no other spelling")
        try:
            zone = zone_name(request.timezone)
            schedule = None if expression is None else Schedule.parse(expression, zone)
            run_at = None if request.run_at is None else parse_instant(request.run_at, "run_at").timestamp()
            compact(request.payload, "payload")
        except BadInput as refused:
            raise invalid(str(refused)) from None
        if run_at is not None and run_at <= now:
            raise invalid(f"run_at: lies in the past; it is {datetime.fromtimestamp(now, UTC).isoformat()}")
        self.spellings[spelling] += 1
        terms = Terms(
            name=request.name, url=url, expression=expression, schedule=schedule, run_at=run_at, timezone=zone,
            timeout=request.timeout_seconds, attempts=request.retry or request.retries or self.contract.run_attempts,
            overlap=request.overlap_policy, max_runs=request.max_runs, secret=request.secret,
            payload={} if request.payload is None else request.payload, headers=dict(request.headers or {}),
            on_failure=request.on_failure_webhook,
        )  # fmt: skip
        return self.crons.add(terms, now)

    def _target(self, request: CreateCron) -> tuple[str, str]:
        """In which spelling the target was given, and the target."""
        given = [(name, getattr(request, field)) for name, (field,) in _TARGETS.items() if getattr(request, field)]
        if len(given) != 1:
            raise invalid("task: give the target once, as task, as url, or as task_url with task_type")
        [(spelling, url)] = given
        if (spelling == "docs example") != (request.task_type is not None):
            raise invalid("task_type: goes with task_url, and with nothing else")
        for address in (url, request.on_failure_webhook):
            if address is not None:
                self.outbound.check(address, plain=True)
        return spelling, url


def _same(target: str, request: Any) -> str:
    """The queue of the path, which the body may repeat."""
    if request.queue not in {None, target}:
        raise invalid("queue: is another one in the body than in the path")
    return target
