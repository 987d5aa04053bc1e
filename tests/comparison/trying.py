"""Experiments side by side, each on a database of its own: most of their time is waiting for a redelivery."""

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from cli.local.engines import Postgres
from comparison.experiment import Grounds
from comparison.ground import Ground
from comparison.result import Report
from db.engine import Database
from tests.conftest import libpq

Waiting = Future[Report]
"""A report that is still being found."""

Name = TypeVar("Name", bound=Hashable)

_numbers = itertools.count(1)
_AT_ONCE = 6


def grounds_of(database: Database) -> Grounds:
    """The test's own database, as the experiment asks for one."""

    @contextmanager
    def ground() -> Iterator[Ground]:
        yield Ground(database)

    return ground


@contextmanager
def at_once(
    postgres: Postgres, template: str, jobs: Mapping[Name, Callable[[Database], Report]]
) -> Iterator[Mapping[Name, Waiting]]:
    """Each job's report once it is there; a job's failure is its test's."""
    databases = [f"holdfast_try_{next(_numbers)}" for _ in jobs]
    with psycopg.connect(libpq(postgres.url), autocommit=True) as admin:
        for name in databases:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield {
                job: pool.submit(_on, postgres.database(name), tried)
                for name, (job, tried) in zip(databases, jobs.items(), strict=True)
            }
        for name in databases:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _on(url: str, tried: Callable[[Database], Report]) -> Report:
    database = Database(url)
    try:
        return tried(database)
    finally:
        database.close()
