"""Lanes as the sweep sees them: how many messages wait there, and a way to add one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from kombu.exceptions import KombuError

from db.engine import Database
from domain.errors import HoldfastError
from domain.outcomes import Tally
from domain.paths import Carrier, Path
from domain.references import Reference
from domain.sweeping import ClaimPolicy
from settings import settings
from tasks.app import app
from tasks.expiry import apply, expire


class BrokerUnavailable(HoldfastError):
    """The broker took no message. Nothing is lost: the next run finds the same rows again."""


@contextmanager
def broker_faults() -> Iterator[None]:
    """Whatever a broker that is away raises, as BrokerUnavailable."""
    faults: tuple[type[BaseException], ...] = (KombuError, OSError, *app.connection_for_write().connection_errors)
    try:
        yield
    except faults as fault:
        raise BrokerUnavailable(f"the broker is not available ({type(fault).__name__})") from fault


def depth_of(lane: str, connection: Any = None) -> int:
    """Messages waiting in a lane's queue.

    Raises:
        BrokerUnavailable: it cannot be asked.
    """
    queue = app.amqp.queues[settings().queue_prefix + lane]
    with broker_faults(), app.connection_or_acquire(connection) as found:
        found.connect()  # one that failed goes back to its pool closed, and opens by no other call than this
        with found.channel() as channel:
            # not passive: an empty list does not exist in Redis, and would be reported as missing
            declared: Any = queue(channel).queue_declare()
            return int(declared.message_count)


class Lane(Protocol):
    """Where a sweep hands its references."""

    def depth(self) -> int:
        """Messages waiting there."""

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:
        """Hand these over, in one message."""


class ExpiryLane:
    """The queue that the expiry workers read, on the broker of the settings unless another's address is given."""

    def __init__(self, broker: str | None = None) -> None:
        self._other = None if broker is None else app.connection_for_write(broker)

    def depth(self) -> int:
        """Messages waiting in the queue.

        Raises:
            BrokerUnavailable: it cannot be asked.
        """
        return depth_of("expiry", self._other)

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:
        """Publish one message.

        Raises:
            BrokerUnavailable: the broker did not say that it took it.
        """
        kwargs = {"run": run, "path": path.value, "refs": [reference.as_data() for reference in references]}
        options: dict[str, Any] = {
            "connection": self._other,
            "kwargsrepr": f"run {run}, path {path}, {len(references)} references",  # what Flower shows
        }
        with broker_faults():
            expire.apply_async(kwargs=kwargs, **options)


class HereAndNow:
    """No queue: what is handed over is applied at once, in this process."""

    def __init__(self, db: Database, bounds: ClaimPolicy, worker: str) -> None:
        self._db, self._bounds, self._worker = db, bounds, worker
        self.tally = Tally()

    def depth(self) -> int:
        """Nothing ever waits."""
        return 0

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:
        """Apply them."""
        by = Carrier(message_id=f"here:{run}", path=path, run=run, worker=self._worker)
        self.tally += apply(self._db, references, by, self._bounds)
