"""Databases for one candidate each, made on a server that belongs to the experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count

from sqlalchemy import create_engine, make_url, text

from comparison.experiment import Grounds
from comparison.ground import Ground
from db import holds, schema
from db.engine import Database

_numbers = count(1)


def grounds_on(server: str) -> Grounds:
    """Makes a migrated database on this server, and drops it afterwards. The server's own database stays empty."""

    @contextmanager
    def fresh() -> Iterator[Ground]:
        name = f"holdfast_compare_{next(_numbers)}"
        _administer(server, f"CREATE DATABASE {name}")
        url = make_url(server).set(database=name)
        database = Database(url.render_as_string(hide_password=False))
        try:
            with database.transaction() as tx:
                schema.migrate(tx)
            yield Ground(database)
        finally:
            database.close()
            _administer(server, f"DROP DATABASE {name} WITH (FORCE)")

    return fresh


def clock(server: str) -> datetime:
    """This instant by the server's clock."""
    database = Database(server)
    try:
        with database.transaction() as tx:
            return holds.clock(tx)
    finally:
        database.close()


def _administer(server: str, statement: str) -> None:
    """One statement outside any transaction, as databases are made and dropped."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()
