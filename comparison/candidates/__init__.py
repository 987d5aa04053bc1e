"""The candidates there are, each a module; how one is made from what the command was given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from comparison.candidate import Candidate
from comparison.candidates import celery_rabbitmq, celery_redis, infrai, sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where engines are found, as addresses in kombu's and SQLAlchemy's form. They may hold passwords."""

    database: str
    redis: str
    rabbitmq: str
    infrai_url: str = ""
    """Unset: our own contract server."""
    infrai_key: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate before it is started."""

    title: str
    make: Callable[[Place], Candidate]


REGISTRY: Mapping[str, Entry] = {
    "celery-redis": Entry("Celery on Redis", lambda place: celery_redis.CeleryOnRedis(place.redis)),
    "celery-rabbitmq": Entry("Celery on RabbitMQ", lambda place: celery_rabbitmq.CeleryOnRabbitMQ(place.rabbitmq)),
    "infrai": Entry("Infrai", lambda place: infrai.OnInfrai(place.infrai_url, place.infrai_key)),
    "sweep": Entry("Plain cron sweep", lambda place: sweep.PlainSweep(place.database)),
}
