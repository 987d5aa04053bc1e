"""Every queue of a project: the calls on them, and the dead letters that go from one to another."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from comparison.infrai_server import models
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.problems import Problem, conflict, invalid, missing
from comparison.infrai_server.queue import ORDERLY, Handing, Message, Queue, Rules
from domain.errors import BadInput
from domain.infrai import compact

Json = Any
Data = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Subscription:
    """Where a queue's messages are pushed to."""

    id: str
    queue: str
    url: str
    secret: str | None
    lease: int
    max_retries: int
    dead_letter_queue: str | None


@dataclass(slots=True)
class Queues:
    """All of them. Whoever calls holds the server's lock."""

    contract: Contract
    handing: Callable[[], Handing] = lambda: ORDERLY
    """How the next consume hands out."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _queues: dict[str, Queue] = field(default_factory=dict)
    _places: "count[int]" = field(default_factory=count)

    def create(self, request: models.CreateQueue) -> Data:
        """queue.create (U11: the same again is found, another one is a conflict)."""
        rules = self._rules(request)
        existing = self._queues.get(request.name)
        if existing is not None and existing.rules != rules:
            raise conflict(f"queue {request.name} exists with other settings")
        if rules.dead_letter_queue is not None:  # X9
            if rules.dead_letter_queue == request.name:
                raise invalid("dead_letter_queue: must be another queue")
            if rules.dead_letter_queue not in self._queues:
                raise invalid(f"dead_letter_queue: there is no queue {rules.dead_letter_queue}; create it first")
        if existing is None:
            self._queues[request.name] = Queue(rules)
        return {
            "queue": request.name,
            "name": request.name,
            "type": "fifo" if rules.fifo else "standard",
            "dead_letter_queue": rules.dead_letter_queue,
            "max_retries": rules.max_retries,
            "message_retention_days": rules.retention_days,
            "visibility_timeout_default": rules.lease,
            "enable_priority": rules.priorities,
        }

    def publish(self, request: models.Publish, now: float) -> Data:
        """queue.publish."""
        queue = self._current(request.queue, now)
        self._check(request)
        return {"message_id": self._put(queue, request.queue, request, now)}

    def publish_batch(self, request: models.PublishBatch, now: float) -> Data:
        """queue.publish_batch: all or none (U5)."""
        queue = self._current(request.queue, now)
        for place, message in enumerate(request.messages):
            self._check(message, f"messages[{place}].")
        return {"message_ids": [self._put(queue, request.queue, message, now) for message in request.messages]}

    def consume(self, request: models.Consume, now: float) -> Json:
        """queue.consume (X1: the list's name)."""
        queue = self._current(request.queue, now)
        lease = request.visibility_timeout or queue.rules.lease
        taken = queue.take(request.max_messages, lease, now, self.handing())
        shown = [
            {
                "message_id": message.message_id,
                "payload": message.payload,
                "attempts": message.deliveries,
                "enqueued_at": instant(message.published_at),
            }
            for message in taken
        ]
        return shown if self.contract.consume_key == "bare" else {self.contract.consume_key: shown}

    def ack(self, request: models.Ack, now: float) -> Data:
        """queue.ack: by message id, so a late one deletes a message that another has by now (U7)."""
        queue = self._current(request.queue, now)
        message = queue.messages.get(request.message_id)
        if message is None or message.deliveries == 0:
            return self._gone(request)
        queue.drop(request.message_id, now)
        return {"message_id": request.message_id, "acked": True}

    def nack(self, request: models.Nack, now: float) -> Data:
        """queue.nack (U9). Of a message whose lease ran out it changes nothing: that was counted already."""
        queue = self._current(request.queue, now)
        message = queue.messages.get(request.message_id)
        if message is None or message.deliveries == 0:
            return self._gone(request)
        if message.leased_until is not None and queue.give_back(message, request.delay_seconds, now):
            self._bury(queue.rules, message, now)
        return {"message_id": request.message_id, "nacked": True}

    def stats(self, name: str, now: float) -> Data:
        """queue.stats (U20)."""
        queue = self._current(name, now)
        visible, leased, delayed = queue.counts(now)
        dead = self._queues.get(queue.rules.dead_letter_queue or "")
        oldest = min((message.published_at for message in queue.messages.values()), default=now)
        return {
            "queue": name,
            "visible": visible,
            "in_flight": leased,
            "delayed": delayed,
            "dlq": 0 if dead is None else sum(message.origin == name for message in dead.messages.values()),
            "oldest_age_seconds": now - oldest,
        }

    def redrive(self, name: str, now: float) -> Data:
        """queue.dlq.redrive (U8, X10): by the work queue's name, or by that of a dead letter queue."""
        queue = self._current(name, now)
        dead_name = queue.rules.dead_letter_queue
        by_its_own = dead_name is None and any(one.rules.dead_letter_queue == name for one in self._queues.values())
        dead = self._queues.get(name if by_its_own else dead_name or "")
        if dead is None:
            raise conflict(f"queue {name} has no dead letter queue")
        others = {one for one in self._queues if one != name} if by_its_own else {name}
        moved = [message for message in dead.messages.values() if message.origin in others]
        for message in moved:
            dead.drop(message.message_id, now)
            message.deliveries, message.failures, message.leased_until, message.visible_at = 0, 0, None, now
            self._queues[message.origin].put(message, now)
        return {"queue": name, "redriven": len(moved)}

    def delete(self, name: str, now: float) -> Data:
        """queue.delete. One that others send their dead letters to stays."""
        self._current(name, now)
        if users := [one for one, queue in self._queues.items() if queue.rules.dead_letter_queue == name]:
            raise conflict(f"queue {name} takes the dead letters of {', '.join(users[:3])}")
        del self._queues[name]
        self.subscriptions.pop(name, None)
        return {"queue": name, "deleted": True}

    def subscribe(self, name: str, request: models.PushSubscribe, now: float) -> Data:
        """queue.push_subscribe; the newest one of a queue counts (U21)."""
        self._current(name, now)
        if request.dead_letter_queue is not None and request.dead_letter_queue not in self._queues:
            raise invalid(f"dead_letter_queue: there is no queue {request.dead_letter_queue}; create it first")
        self.subscriptions[name] = Subscription(
            f"sub_{secrets.token_hex(8)}", name, request.url, request.secret,
            request.visibility_timeout, request.max_retries, request.dead_letter_queue,
        )  # fmt: skip
        return {"id": self.subscriptions[name].id, "queue": name, "url": request.url}

    def to_push(self, now: float, most: int) -> list[tuple[Subscription, Message]]:
        """Lease what subscriptions are to be sent (U22: beside whoever consumes)."""
        found = []
        for subscription in self.subscriptions.values():
            queue = self._current(subscription.queue, now)
            taken = queue.take(most, subscription.lease, now)
            found += [(subscription, message) for message in taken]
        return found

    def pushed(self, subscription: Subscription, message: Message, *, accepted: bool, now: float) -> None:
        """Settle a push: acknowledged, or visible again when its lease would have ended."""
        queue = self._queues.get(subscription.queue)
        if queue is None or queue.messages.get(message.message_id) is not message:
            return
        if accepted:
            queue.drop(message.message_id, now)
            return
        if message.leased_until is None:
            return
        dead_letters = subscription.dead_letter_queue or queue.rules.dead_letter_queue
        if dead_letters is not None and message.failures >= subscription.max_retries:
            queue.drop(message.message_id, now)
            self._bury_in(dead_letters, message, now)
        else:
            message.failures += 1
            queue.wait(message, message.leased_until, now)

    def settle(self, now: float) -> None:
        """Bring every queue up to this instant."""
        for queue in self._queues.values():
            for message in queue.settle(now):
                self._bury(queue.rules, message, now)

    def _current(self, name: str, now: float) -> Queue:
        """A queue, with everything that became of any up to now."""
        if name not in self._queues:
            raise missing(f"there is no queue {name}")
        self.settle(now)
        return self._queues[name]

    def _rules(self, request: models.CreateQueue) -> Rules:
        contract = self.contract
        retries, days, lease = request.max_retries, request.message_retention_days, request.visibility_timeout_default
        return Rules(
            fifo=request.type == "fifo",
            dead_letter_queue=request.dead_letter_queue,
            max_retries=contract.retries_default if retries is None else retries,
            retention_days=contract.retention_default_days if days is None else days,
            lease=contract.lease_default if lease is None else lease,
            priorities=request.enable_priority,
            expiries_count=contract.dead_letter_counts == "both",
            backoff=contract.lease_backoff,
        )

    def _check(self, message: models.MessageFields, place: str = "") -> None:
        try:
            size = len(compact(message.payload, f"{place}payload"))
        except BadInput as refused:
            raise invalid(str(refused)) from None
        if size > self.contract.largest_payload:
            raise Problem(
                "PAYLOAD_TOO_LARGE", f"{place}payload: has {size} bytes; {self.contract.largest_payload} at most"
            )

    def _put(self, queue: Queue, name: str, fields: models.MessageFields, now: float) -> str:
        """Take one in; within the window of a `deduplication_id`, the first one's id (U17)."""
        key = fields.deduplication_id if queue.rules.fifo else None
        if key is not None and key in queue.seen and queue.seen[key][1] > now:
            return queue.seen[key][0]
        message = Message(
            f"msg_{secrets.token_hex(12)}", fields.payload, now, now + fields.delay_seconds, next(self._places), name,
            fields.priority, fields.message_group_id, fields.headers,
        )  # fmt: skip
        if key is not None:
            queue.seen[key] = (message.message_id, now + self.contract.dedup_window)
        queue.put(message, now)
        return message.message_id

    def _gone(self, request: models.Ack) -> Data:
        if not self.contract.gone_is_fine:
            raise missing(f"queue {request.queue} has no message {request.message_id} that was delivered")
        return {"message_id": request.message_id}

    def _bury(self, rules: Rules, message: Message, now: float) -> None:
        self._bury_in(rules.dead_letter_queue or "", message, now)

    def _bury_in(self, name: str, message: Message, now: float) -> None:
        dead = self._queues.get(name)
        if dead is not None:
            message.deliveries, message.failures, message.leased_until, message.visible_at = 0, 0, None, now
            dead.put(message, now)


def instant(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
