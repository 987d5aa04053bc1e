"""The candidates there are, and how one is made from what the command was given. Its module is imported when it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from comparison.candidate import Candidate


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
    module: str
    """Below comparison.candidates; it has `make`."""

    def make(self, place: Place) -> Candidate:
        """The candidate, not started."""
        made: Candidate = import_module(f"comparison.candidates.{self.module}").make(place)
        return made


REGISTRY: Mapping[str, Entry] = {
    "celery-redis": Entry("Celery on Redis", "celery_redis"),
    "celery-rabbitmq": Entry("Celery on RabbitMQ", "celery_rabbitmq"),
    "infrai": Entry("Infrai", "infrai"),
    "sweep": Entry("Plain cron sweep", "sweep"),
}
