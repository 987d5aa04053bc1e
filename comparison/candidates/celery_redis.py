"""Celery on Redis, or on Valkey, which speaks its protocol."""

import secrets
from collections.abc import Mapping
from typing import Any

from kombu import Connection
from redis import Redis

from comparison.candidate import Ability, Description, Engine, Limit, Standing
from comparison.candidates.celery_transport import CeleryTransport, celery_with
from comparison.registry import Place

_VISIBILITY = 2.0
"""Seconds after which an unacknowledged message comes back here; in production it is minutes."""
_DOCS = "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html"


class CeleryOnRedis(CeleryTransport):
    """Every key of this run begins with its token, and all of them go with it."""

    module = __name__

    def __init__(self, broker: str, token: str | None = None) -> None:
        token = token or secrets.token_hex(4)
        self._prefix = f"holdfast-compare-{token}:"
        options = {
            "global_keyprefix": self._prefix,
            "visibility_timeout": _VISIBILITY,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "polling_interval": 0.2,
        }
        super().__init__(broker, options, token)
        self._engine: Engine | None = None

    def prepare(self, connection: Connection) -> None:
        """Ask who it is, too."""
        super().prepare(connection)
        channel: Any = connection.channel()
        with channel:
            self._engine = _engine(channel.client.info("server"))

    def describe(self) -> Description:
        """Which server answered, and what Redis does not do."""
        assert self._engine is not None
        no_delay = (
            "Celery's countdown is kept in a worker's memory, and Redis delivers again what is not acknowledged within "
            f"the visibility timeout, 1 hour by default ({_DOCS})"
        )
        return Description(
            name="celery-redis",
            title="Celery on Redis",
            engine=self._engine,
            redelivery=f"after the visibility timeout, {_VISIBILITY:g} s here, by whoever consumes next",
            comes_back=_VISIBILITY + 1,
            payload=Limit(
                536_870_912, "a Redis string holds 512 MB", "https://redis.io/docs/latest/develop/data-types/strings/"
            ),
            delay=Limit(None, no_delay, _DOCS),
            client=celery_with("redis"),
            cron="Celery beat",
            lacks={Ability.DELAY: no_delay},
        )

    def look_after(self, connection: Connection) -> None:
        """Look for messages that nobody has acknowledged in time: the transport's own search, by a worker's timer."""
        transport: Any = connection.transport
        transport.cycle.maybe_restore_messages()

    def clean(self, connection: Connection) -> None:
        """Delete this run's keys, found by their prefix."""
        channel: Any = connection.channel()
        with channel:
            server = Redis(connection_pool=channel.client.connection_pool)  # without the prefix that kombu adds
            for key in server.scan_iter(match=f"{self._prefix}*", count=1000):
                server.delete(key)


def _engine(info: Mapping[str, Any]) -> Engine:
    if "valkey_version" in info:
        return Engine("Valkey", str(info["valkey_version"]), Standing.PROTOCOL)
    return Engine("Redis", str(info.get("redis_version", "unknown")), Standing.REAL)


def make(place: Place) -> CeleryOnRedis:
    """The candidate at this place."""
    return CeleryOnRedis(place.redis)


def attach(address: Mapping[str, Any]) -> CeleryOnRedis:
    """The same run, in another process."""
    return CeleryOnRedis(address["broker"], address["token"])
