"""Celery on RabbitMQ: a classic queue, and Celery's native delayed delivery under a prefix of this run's own."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from math import ceil
from typing import Any

from kombu import Connection, Exchange, Queue
from kombu.transport import native_delayed_delivery

from comparison.candidate import Description, Engine, Limit, PublishRefused, Standing
from comparison.candidates.celery_transport import TASK, CeleryTransport, celery_with
from comparison.registry import Place

_native: Any = native_delayed_delivery
"""Its types do not know prefixes yet."""
_LONGEST = 2**_native.MAX_NUMBER_OF_BITS_TO_USE - 1
_KOMBU = "https://docs.celeryq.dev/projects/kombu/en/stable/reference/kombu.transport.native_delayed_delivery.html"


class CeleryOnRabbitMQ(CeleryTransport):
    """Queues and exchanges carry this run's token, and all of them go with it."""

    module = __name__
    prefetch = 50  # with one, each message would wait 40 ms for a network packet to be acknowledged

    def __init__(self, broker: str, token: str | None = None) -> None:
        super().__init__(broker, {"confirm_publish": False}, token)
        self._delays = f"holdfast-compare-{self.token}"
        self._engine: Engine | None = None
        self._delayed = False

    def _queue(self, name: str) -> Queue:
        """Bound to a topic exchange of its own: a delayed message comes back through one."""
        return Queue(name, Exchange(name, type="topic"), routing_key=name)

    def prepare(self, connection: Connection) -> None:
        """Ask who it is, too."""
        super().prepare(connection)
        told = connection.connection.server_properties
        self._engine = Engine(
            str(told.get("product", "an AMQP broker")), str(told.get("version", "unknown")), Standing.REAL
        )

    def describe(self) -> Description:
        """Which server answered, and its limits."""
        assert self._engine is not None
        return Description(
            name="celery-rabbitmq",
            title="Celery on RabbitMQ",
            engine=self._engine,
            redelivery="at once, when the channel or connection of its consumer is gone",
            comes_back=0.0,
            payload=Limit(
                134_217_728 if self._engine.version.startswith("3.") else 16_777_216,
                "max_message_size: 128 MiB from 3.9 on, 16 MiB from 4.0 on",
                "https://rabbitgui.com/blog/rabbitmq-max-message-size",
            ),
            delay=Limit(
                _LONGEST,
                f"native delayed delivery counts in {_native.MAX_NUMBER_OF_BITS_TO_USE} bits: {_LONGEST:,} s. Celery "
                "takes it by itself on quorum queues only; on another queue, as here, a publisher addresses its levels",
                _KOMBU,
            ),
            client=celery_with("amqp"),
            cron="Celery beat",
        )

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        """At once, or into the levels of the native delay, in whole seconds rounded up: a message errs late only.

        Raises:
            PublishRefused: the delay has more bits than there are levels.
        """
        if not delay:
            super().publish(body)
            return
        seconds = ceil(delay.total_seconds())
        if seconds > _LONGEST:
            raise PublishRefused(f"a delay of {seconds:,} s is over {_LONGEST:,} s")
        self._declare_delays()
        self.app.send_task(
            TASK, kwargs={"body": body.decode()}, exchange_type="topic",
            exchange=_native.level_name(_native.MAX_LEVEL, self._delays),
            routing_key=_native.calculate_routing_key(seconds, self.queue.routing_key), declare=[],
        )  # fmt: skip

    def abandon(self, connection: Connection) -> None:
        """Cut the line without a word, as a machine that loses its power does."""
        line = connection.connection.transport.sock
        line.shutdown(socket.SHUT_RDWR)
        line.close()

    def clean(self, connection: Connection) -> None:
        """Delete this run's queues and exchanges, and the levels of its delays."""
        names = [self.queue.name, self.ticks.name]
        if self._delayed:
            names += [_native.level_name(level, self._delays) for level in range(_native.MAX_LEVEL + 1)]
        channel: Any = connection.channel()
        with channel:
            for name in names:
                with suppress(*connection.channel_errors):
                    channel.queue_delete(name)
                channel.exchange_delete(name)
            if self._delayed:
                channel.exchange_delete(f"{self._delays}_{_native.CELERY_DELAYED_DELIVERY_EXCHANGE}")

    def _declare_delays(self) -> None:
        """28 queues, declared with the first delay; no other application's."""
        if not self._delayed:
            self._delayed = True
            with self._connect() as connection:
                _native.declare_native_delayed_delivery_exchanges_and_queues(connection, "classic", self._delays)
                _native.bind_queue_to_native_delayed_delivery_exchange(connection, self.queue, self._delays)


def make(place: Place) -> CeleryOnRabbitMQ:
    """The candidate at this place."""
    return CeleryOnRabbitMQ(place.rabbitmq)


def attach(address: Mapping[str, Any]) -> CeleryOnRabbitMQ:
    """The same run, in another process."""
    return CeleryOnRabbitMQ(address["broker"], address["token"])
