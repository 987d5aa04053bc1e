"""The expiry lane as the sweep sees it: how many messages wait there, and a way to add one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import KombuError

from domain.errors import HoldfastError
from domain.paths import Path
from domain.references import Reference
from settings import settings
from tasks.app import app
from tasks.expiry import expire


class BrokerUnavailable(HoldfastError):
    """The broker took no message. Nothing is lost: the next run claims the same holds again."""


@contextmanager
def _broker_faults() -> Iterator[None]:
    faults: tuple[type[BaseException], ...] = (KombuError, OSError, *app.connection_for_write().connection_errors)
    try:
        yield
    except faults as fault:
        raise BrokerUnavailable(f"the broker is not available ({type(fault).__name__})") from fault


def depth() -> int:
    """Messages waiting in the expiry lane.

    Raises:
        BrokerUnavailable: it cannot be asked.
    """
    queue = app.amqp.queues[settings().queue_prefix + "expiry"]
    with _broker_faults(), app.connection_or_acquire() as connection, connection.channel() as channel:
        # not passive: an empty list does not exist in Redis, and would be reported as missing
        declared: Any = queue(channel).queue_declare()
        return int(declared.message_count)


def publish(run: int, path: Path, references: Sequence[Reference]) -> None:
    """Hand these references to the expiry lane, in one message.

    Raises:
        BrokerUnavailable: the broker did not say that it took it.
    """
    kwargs = {"run": run, "path": path.value, "refs": [reference.as_data() for reference in references]}
    shown_in_flower: dict[str, Any] = {"kwargsrepr": f"run {run}, path {path}, {len(references)} references"}
    with _broker_faults():
        expire.apply_async(kwargs=kwargs, **shown_in_flower)
