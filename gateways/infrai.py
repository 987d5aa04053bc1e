"""A client for Infrai's queue, cron and discovery: plain calls, typed results, typed errors.

A write is made once for its intent, however often it is called: its `Idempotency-Key` says what is meant to happen.
Where the same thing may be meant twice (to pause, resume and pause again), each call is an intent of its own, unless
the caller names one.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from domain.errors import BadInput
from domain.infrai import CAPABILITIES, LARGEST_BATCH, LONGEST_LEASE, compact, delay_seconds, queue_name
from gateways import infrai_answers as answers
from gateways.infrai_answers import Job, Message, Run, Stats
from gateways.infrai_calls import Call, Caller, Json, Patience
from gateways.infrai_discovery import Difference, differences, ensure_known, fields_if_unchanged
from gateways.infrai_errors import Conflicting, ContractChanged, NotThere
from gateways.infrai_terms import CronTerms, Outgoing, QueueTerms, given
from gateways.infrai_wire import Wire, check_origin
from gateways.side_by_side import side_by_side

_MESSAGE_BYTES = 800_000
"""What one consumed message may take in an answer: its payload at the limit with every letter escaped, which makes it
three times as long, and what stands around it. A smaller bound would let one message stop a queue."""
_HEAD_BYTES = 1024 * 1024


class Infrai:
    """The service, for one process: make it after the fork, share it between threads, close it at the end.

    Besides what each call lists, every call may raise `WaitAsked` (keep `after` and come back), `Unreachable`,
    `KeyRefused`, `CreditRefused`, `Refused`, `Broken`, `Unreadable`, and at its first use `ContractChanged`.
    """

    def __init__(
        self, url: str, key: SecretStr, *, patience: Patience | None = None, verify: bool = True,
        connections: int = 8, ca_file: Path | None = None,
    ) -> None:  # fmt: skip
        """`verify` asks discovery before the first use of each capability whether it is still the same.

        Raises:
            BadInput: the URL or the key cannot be used.
        """
        target = check_origin(url, "HOLDFAST_INFRAI_URL")
        text = key.get_secret_value()
        if not text.isascii() or not text.isprintable() or not text or " " in text:
            raise BadInput("INFRAI_API_KEY", "is empty, or holds a sign that no header may hold")
        self._wire = Wire(target, connections=connections, ca_file=ca_file)
        self.calls = Caller(self._wire, text, patience or Patience())
        self._verify = verify
        self._fields: dict[str, frozenset[str]] = {}
        self._connections = connections
        self._at_once: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection that is idle."""
        self._wire.close()

    def check(self, names: Sequence[str] = tuple(CAPABILITIES)) -> list[Difference]:
        """What discovery says otherwise of these capabilities; none of them, and the client fits."""
        return differences(self.calls, names)

    def create_queue(self, name: str, terms: QueueTerms | None = None, *, intent: str | None = None) -> bool:
        """Create a queue, or find it there with these terms. False: it is there with others."""
        terms = terms or QueueTerms()
        body = {
            "name": queue_name(name),
            "type": "fifo" if terms.fifo else "standard",
            "dead_letter_queue": terms.dead_letter_queue,
            "max_retries": terms.max_retries,
            "message_retention_days": terms.retention_days,
            "visibility_timeout_default": None if terms.lease is None else _lease(terms.lease),
            "enable_priority": terms.priorities or None,
        }
        try:
            self._call("queue.create", body=given(body), intent=intent or _once())
        except Conflicting:
            return False
        return True

    def publish(self, queue: str, message: Outgoing, *, intent: str) -> str:
        """Publish once for this intent; returns the message's id.

        Raises:
            BadInput: the payload, the delay or the queue's name is out of bounds; nothing was sent.
            NotThere: there is no such queue.
            Conflicting: the intent was published before with another body (a shorter delay after a crash, say); that
                message stands.
        """
        body = {"queue": queue_name(queue)} | message.as_data()
        return answers.message_id("queue.publish", self._call("queue.publish", body=body, intent=intent))

    def at_once(self) -> int:
        """How many messages one `publish_batch` should be given: 100, or as many as go side by side one by one.

        No public client makes the call for batches, so a service may have none, or another one than is known here.
        """
        if self._at_once is None:
            try:
                self._known("queue.publish_batch")
            except ContractChanged:
                self._at_once = self._connections
            else:
                self._at_once = LARGEST_BATCH
        return self._at_once

    def publish_batch(self, queue: str, messages: Sequence[Outgoing], *, intent: str) -> list[str | None]:
        """Publish up to 100 messages, all or none, once for this intent; returns their ids in order.

        Where the service has no such call they go one by one, each with an intent of its own. None stands for one that
        was published before with another body, and stands.

        Raises:
            BadInput, NotThere, Conflicting: as `publish`.
        """
        if not 1 <= len(messages) <= LARGEST_BATCH:
            raise BadInput("messages", f"are {len(messages)}; a batch has 1 to {LARGEST_BATCH}")
        body = {"queue": queue_name(queue), "messages": [message.as_data() for message in messages]}
        if self.at_once() < LARGEST_BATCH:
            return self._one_by_one(queue, messages, intent)
        try:
            data = self._call("queue.publish_batch", body=body, intent=intent)
        except NotThere:
            return self._one_by_one(queue, messages, intent)
        return [*answers.message_ids("queue.publish_batch", data, len(messages))]

    def _one_by_one(self, queue: str, messages: Sequence[Outgoing], intent: str) -> list[str | None]:
        """Side by side, but where they have groups, whose order must stay."""

        def publish(numbered: tuple[int, Outgoing]) -> str | None:
            place, message = numbered
            try:
                return self.publish(queue, message, intent=f"{intent}#{place}")
            except Conflicting:
                return None

        grouped = any(message.group is not None for message in messages)
        return side_by_side(publish, enumerate(messages), 1 if grouped else self._connections)

    def consume(self, queue: str, *, most: int, lease: timedelta) -> list[Message]:
        """Up to `most` (1 to 100) messages, hidden from others for the lease, in whole seconds.

        Each call has a key of its own: a service that makes one of the body where there is none would answer every
        later look like the first. If the answer is lost at every attempt, its messages come back when their lease ends.
        """
        if not 1 <= most <= LARGEST_BATCH:
            raise BadInput("most", f"is {most}; it must be from 1 to {LARGEST_BATCH}")
        body = {"queue": queue_name(queue), "max_messages": most, "visibility_timeout": _lease(lease)}
        room = _HEAD_BYTES + most * _MESSAGE_BYTES
        data = self._call("queue.consume", body=body, most=room, intent=_once())
        return answers.messages("queue.consume", data)

    def ack(self, queue: str, message_id: str) -> bool:
        """Delete a message for good, whoever has it by now. False: it was gone already."""
        body = {"queue": queue_name(queue), "message_id": message_id}
        return self._unless_gone("queue.ack", body=body, intent=f"{queue}/{message_id}")

    def nack(self, queue: str, message_id: str, *, delay: timedelta = timedelta()) -> bool:
        """Give a message back, to come again after the delay. False: it was gone already.

        No public page shows this call: rather let a lease end where that does.
        """
        body = {"queue": queue_name(queue), "message_id": message_id, "delay_seconds": delay_seconds(delay) or None}
        return self._unless_gone("queue.nack", body=given(body), intent=_once())

    def stats(self, queue: str) -> Stats:
        """How a queue stands."""
        return answers.stats("queue.stats", self._call("queue.stats", target=queue_name(queue)))

    def redrive(self, queue: str, *, intent: str | None = None) -> None:
        """Move everything from the dead letter queue of this work queue back to it."""
        self._call("queue.dlq.redrive", target=queue_name(queue), intent=intent or _once())

    def push_subscribe(
        self, queue: str, url: str, *, secret: SecretStr | None = None, lease: timedelta = timedelta(seconds=60),
        max_retries: int = 5, dead_letter_queue: str | None = None,
    ) -> None:  # fmt: skip
        """Have a queue's messages posted to a public https address; 2xx acknowledges."""
        body = {
            "url": url,
            "secret": None if secret is None else secret.get_secret_value(),
            "visibility_timeout": _lease(lease),
            "max_retries": max_retries,
            "dead_letter_queue": dead_letter_queue,
        }
        self._call("queue.push_subscribe", target=queue_name(queue), body=given(body), intent=_once())

    def delete_queue(self, queue: str) -> bool:
        """Delete a queue with all its messages. False: it was gone already."""
        return self._unless_gone("queue.delete", target=queue_name(queue), intent=_once())

    def create_cron(self, terms: CronTerms, *, intent: str | None = None) -> Job:
        """Schedule a call. The same terms are the same job, unless `intent` says that another is meant."""
        body = terms.as_data()
        intent = intent or compact(body, "terms").decode()
        return answers.job("cron.create", self._call("cron.create", body=body, intent=intent))

    def get_cron(self, job_id: str) -> Job:
        """One job. Raises `NotThere` once it is deleted."""
        return answers.job("cron.get", self._call("cron.get", target=job_id))

    def list_crons(self) -> list[Job]:
        """Every job."""
        return answers.jobs("cron.list", self._call("cron.list"))

    def pause_cron(self, job_id: str) -> None:
        """Stop a job's schedule; what would have run meanwhile is not made up for."""
        self._call("cron.pause", target=job_id, intent=_once())

    def resume_cron(self, job_id: str) -> None:
        """Let a job's schedule go on, from now."""
        self._call("cron.resume", target=job_id, intent=_once())

    def trigger_cron(self, job_id: str, *, intent: str | None = None) -> None:
        """Run a job now."""
        self._call("cron.trigger", target=job_id, intent=intent or _once())

    def delete_cron(self, job_id: str) -> bool:
        """Delete a job. False: it was gone already."""
        return self._unless_gone("cron.delete", target=job_id, intent=_once())

    def cron_runs(self, job_id: str) -> list[Run]:
        """A job's runs."""
        return answers.runs("cron.runs.list", self._call("cron.runs.list", target=job_id))

    def _unless_gone(self, capability: str, **options: Any) -> bool:
        try:
            self._call(capability, **options)
        except NotThere:
            return False
        return True

    def _call(self, capability: str, *, body: Mapping[str, Json] | None = None, **options: Any) -> Json:
        """One call, after the check of its capability and its fields."""
        known = self._known(capability)
        if known is not None:
            ensure_known(capability, body or (), known)
        return self.calls.data(Call(capability=capability, body=body, **options))

    def _known(self, capability: str) -> frozenset[str] | None:
        """The fields that discovery knows, asked once; None: it is not to be asked. Twice by two threads, no harm."""
        if not self._verify:
            return None
        if capability not in self._fields:
            self._fields[capability] = fields_if_unchanged(self.calls, capability)
        return self._fields[capability]


def _once() -> str:
    """An intent of its own: repeats inside one call share it, the next call does not."""
    return secrets.token_hex(16)


def _lease(lease: timedelta) -> int:
    if not timedelta(seconds=1) <= lease <= LONGEST_LEASE:
        raise BadInput("lease", f"is {lease.total_seconds():g} s; it must be from 1 s to 12 h")
    return int(lease.total_seconds())
