"""What commands share: the database they talk to, and who they are in a receipt."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from db.engine import Database
from domain.paths import Carrier, Path
from settings import settings

PATIENT = None
"""No limit on a statement: an operator is watching."""


@contextmanager
def database(statement_timeout: timedelta | None = timedelta(seconds=30)) -> Iterator[Database]:
    """The database of the settings, closed afterwards.

    Raises:
        InvalidSetting: its address cannot be read.
    """
    opened = Database(settings().database, statement_timeout=statement_timeout)
    try:
        yield opened
    finally:
        opened.close()


def worker_name() -> str:
    """Who this process is in a receipt."""
    return f"cli@{socket.gethostname()}"


def by_hand(path: Path | None = None) -> Carrier:
    """A message this process carries itself."""
    return Carrier(message_id=f"cli:{secrets.token_hex(8)}", path=path, run=None, worker=worker_name())
