"""Celery as a candidate: messages are Celery's own, in a queue of this run's own; what differs by broker is below it.

In the experiment's process a kombu consumer takes one message at a time, so that an answer can be withheld. A consumer
in a process of its own is a real Celery worker, and ticks come from a real beat.
"""

import secrets
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Connection, Consumer, Queue
from kombu.exceptions import KombuError
from kombu.message import Message

from comparison.candidate import Delivery, Doorway, NotAvailable, Verdict, Worker
from comparison.processes import Process, end, is_ready, start

TASK, TICK = "comparison.deliver", "comparison.tick"
_CONNECT = 3
"""Seconds a broker may take to answer at all."""
_BEAT_STARTS = 60.0
"""Seconds beat may take to start, before it is waited for a tick of it."""


def celery_with(driver: str) -> str:
    """Which Celery, kombu and driver are installed here."""
    return ", ".join(f"{name} {version(name)}" for name in ("Celery", "kombu", driver))


class CeleryTransport:
    """What both brokers share. `options` are transport options; `token` names this run's queue and keys."""

    module = ""
    prefetch = 1
    """Messages on their way to this consumer, at most; it handles one at a time."""

    def __init__(self, broker: str, options: Mapping[str, Any], token: str | None = None) -> None:
        self.broker = broker
        self.token = token or secrets.token_hex(4)
        self.queue = self._queue(f"holdfast-compare-{self.token}")
        self.ticks = self._queue(f"holdfast-compare-{self.token}-ticks")
        self.app = Celery("comparison", broker=broker, set_as_current=False, fixups=[])
        self.app.conf.update(
            broker_transport_options=dict(options),
            broker_connection_timeout=_CONNECT,
            broker_connection_retry_on_startup=True,
            task_queues=[self.queue, self.ticks],
            task_default_queue=self.queue.name,
            task_create_missing_queues=False,
            task_ignore_result=True,
            task_acks_late=True,
            worker_prefetch_multiplier=1,
            worker_enable_remote_control=False,
            worker_hijack_root_logger=False,
            accept_content=["json"],
        )
        self._connection: Connection | None = None
        self._consumer: Consumer | None = None
        self._arrived: deque[Message] = deque()
        self._silent: list[Connection] = []
        self._beat: Process | None = None

    # -- what a broker decides ----------------------------------------------------------------------------------------

    def _queue(self, name: str) -> Queue:
        """A queue of this run."""
        return Queue(name, routing_key=name)

    def abandon(self, connection: Connection) -> None:
        """Leave a connection as a dead consumer leaves it: nothing more is said on it."""
        self._silent.append(connection)

    def look_after(self, connection: Connection) -> None:
        """What a worker's event loop does on the side, and a consumer without one must do itself."""

    def clean(self, connection: Connection) -> None:
        """Remove what this run has made on the broker."""
        raise NotImplementedError

    # -- the candidate ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect once.

        Raises:
            NotAvailable: the broker does not answer, or lets nobody in.
        """
        connection = self._connect()
        faults: tuple[type[BaseException], ...] = (
            OSError,
            KombuError,
            *connection.connection_errors,
            *connection.channel_errors,
        )
        try:
            connection.ensure_connection(max_retries=0, timeout=_CONNECT)
            self.prepare(connection)
        except faults as fault:
            self.stop_silently(connection)
            cause = str(fault).strip().partition("\n")[0] or type(fault).__name__
            raise NotAvailable(f"{connection.as_uri()} cannot be used ({cause}); start it, or name another") from None
        self._connection = connection

    def prepare(self, connection: Connection) -> None:
        """Declare this run's queues, and ask the broker who it is."""
        with connection.channel() as channel:
            for queue in (self.queue, self.ticks):
                queue(channel).declare()

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        """Send a Celery message whose one argument is the body."""
        assert not delay, "a broker without delays is not asked for one"
        self.app.send_task(TASK, kwargs={"body": body.decode()}, queue=self.queue.name)

    def deliver(self, worker: Worker, patience: float) -> bool:
        """Take one message, and acknowledge it, or fall silent with it in hand."""
        message = self._next(self.queue, patience)
        if message is None:
            return False
        _, kwargs, _ = message.decode()
        again = (message.delivery_info or {}).get("redelivered")
        delivery = Delivery(kwargs["body"].encode(), str(message.headers["id"]), again)
        if worker(delivery) is Verdict.ACK:
            message.ack()
        else:
            self._fall_silent()
        return True

    def tick(self, act: Callable[[], None], patience: float) -> bool:
        """Start beat at the first call, wait for one of its messages, and act on it before it is acknowledged."""
        if self._beat is None:
            self._beat = start("comparison.beat", asdict(self.doorway()))
            is_ready(self._beat, _BEAT_STARTS)
        self._fall_back()
        message = self._next(self.ticks, patience)
        if message is not None:
            act()
            message.ack()
        self._fall_back()
        return message is not None

    def advance(self, by: timedelta) -> bool:  # noqa: ARG002 - a broker's clock is the world's
        """A broker has to be waited for."""
        return False

    def doorway(self) -> Doorway:
        """The same broker, with this run's queue."""
        self._fall_back()
        return Doorway(self.module, {"broker": self.broker, "token": self.token})

    def serve(self, worker: Worker) -> None:
        """Be a real Celery worker, one process of it, until killed."""

        @self.app.task(name=TASK, bind=True)
        def deliver(task: Any, body: str) -> None:
            info = task.request.delivery_info or {}
            worker(Delivery(body.encode(), task.request.id, info.get("redelivered")))

        self.app.worker_main(
            ["worker", "-P", "solo", "-Q", self.queue.name, "-l", "ERROR", "-n", f"compare-{self.token}@%h",
             "--without-gossip", "--without-mingle", "--without-heartbeat"]
        )  # fmt: skip

    def beat(self) -> None:
        """Be a real beat, until killed."""
        entry = {"task": TICK, "schedule": 0.5, "options": {"queue": self.ticks.name}}
        self.app.conf.update(beat_schedule={"tick": entry}, beat_max_loop_interval=0.5)
        with tempfile.TemporaryDirectory() as folder:
            schedule = str(Path(folder) / "schedule")
            self.app.Beat(schedule=schedule, loglevel="ERROR", quiet=True, redirect_stdouts=False).run()

    def stop(self) -> None:
        """End beat, close everything, and remove queues and keys."""
        if self._beat is not None:
            end(self._beat)
            self._beat = None
        self._fall_back()
        for connection in (*self._silent, self._connection):
            if connection is not None:
                self.stop_silently(connection)
        self._silent, self._connection = [], None
        pool: Any = self.app.pool
        pool.force_close_all()
        with self._connect() as connection, suppress(*connection.connection_errors, *connection.channel_errors):
            self.clean(connection)
        self.app.close()

    def stop_silently(self, connection: Connection) -> None:
        """Close; a broker that has gone needs no goodbye."""
        with suppress(OSError, KombuError, *connection.connection_errors, *connection.channel_errors):
            connection.release()

    # -- one message at a time ----------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        connection: Connection = self.app.connection_for_read()
        return connection

    def _next(self, queue: Queue, patience: float) -> Message | None:
        """The next message of a queue."""
        if self._consumer is None:
            self._connection = self._connection or self._connect()
            channel = self._connection.channel()
            self._consumer = Consumer(
                channel, [queue], on_message=self._arrived.append, accept=["json"], prefetch_count=self.prefetch
            )
            self._consumer.consume()
        if not self._arrived:
            self._wait(patience)
        return self._arrived.popleft() if self._arrived else None

    def _wait(self, patience: float) -> None:
        assert self._connection is not None
        ends = time.monotonic() + patience
        while not self._arrived and (left := ends - time.monotonic()) > 0:
            with suppress(socket.timeout):
                self._connection.drain_events(timeout=min(left, 0.5))
            if not self._arrived:
                self.look_after(self._connection)

    def _fall_silent(self) -> None:
        """Keep the message and say nothing more; the next delivery is another consumer's."""
        assert self._connection is not None
        self.abandon(self._connection)
        self._connection = self._consumer = None
        self._arrived.clear()

    def _fall_back(self) -> None:
        """Stop consuming, so that what comes next is for others."""
        if self._consumer is not None:
            self._consumer.cancel()
            channel: Any = self._consumer.channel
            channel.close()
        self._consumer = None
        self._arrived.clear()
