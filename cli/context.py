"""What commands share: the database they talk to, and who they are in a receipt."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from db.engine import Database
from domain.paths import Carrier, Path
from settings import InvalidSetting, settings

PATIENT = None
"""No limit on a statement: an operator is watching."""


@contextmanager
def database(statement_timeout: timedelta | None = timedelta(seconds=30)) -> Iterator[Database]:
    """The database of the settings, closed afterwards.

    Raises:
        InvalidSetting: its address cannot be read.
    """
    opened = Database(_address(), statement_timeout=statement_timeout)
    try:
        yield opened
    finally:
        opened.close()


def _address() -> str:
    """The database's address, if it can be read as one: a password in the wrong place must not end up in an error."""
    address = settings().database
    try:
        host = make_url(address).host or ""
    except (ArgumentError, ValueError):
        host = "@"
    if "@" in host:
        raise InvalidSetting(
            "HOLDFAST_DATABASE_URL cannot be read; write it like postgresql://user:password@host:5432/name, "
            "with @ : / ? # in a password as %40 %3A %2F %3F %23"
        )
    return address


def worker_name() -> str:
    """Who this process is in a receipt."""
    return f"cli@{socket.gethostname()}"


def by_hand(path: Path | None = None) -> Carrier:
    """A message this process carries itself."""
    return Carrier(message_id=f"cli:{secrets.token_hex(8)}", path=path, run=None, worker=worker_name())
