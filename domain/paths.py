"""Which path drives a cohort, and who carried one message."""

from dataclasses import dataclass
from enum import StrEnum


class Path(StrEnum):
    """What may drive a cohort, and `rescue`: the sweep acting for a path that lost a message."""

    SWEEP = "sweep"
    INFRAI = "infrai"
    SCANNER = "scanner"
    RESCUE = "rescue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One message on one attempt: what a receipt says of it.

    `path` None makes no cohort check: an operator's own hand, or a door that stands for every path.
    """

    message_id: str
    path: Path | None
    run: int | None
    worker: str
    retries: int = 0
    redelivered: bool = False
