"""Stacks on the suite's own engines, and on servers that users already run, by address alone.

What is made on a server of others is removed afterwards; where one is absent, its tests are skipped.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
from celery import Celery
from pydantic import SecretStr

from cli.local.programs import LANES
from tests.system.conftest import System, system

OWN, WITH_REDIS, WITH_RABBITMQ = "our own engines", "PostgreSQL 15 and Redis 7", "PostgreSQL 15 and RabbitMQ"

_POSTGRES, _REDIS, _RABBITMQ = ("127.0.0.1", 5432), ("127.0.0.1", 6379), ("127.0.0.1", 5672)
_ADMIN = "postgresql://postgres@127.0.0.1:5432/{}"
_AMQP = "amqp://guest:guest@127.0.0.1:5672//"


def _answer(*addresses: tuple[str, int]) -> bool:
    try:
        for address in addresses:
            socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def _needs(name: str, *addresses: tuple[str, int]) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(not _answer(*addresses), reason=f"no {name} here"))


OTHERS = [_needs(WITH_REDIS, _POSTGRES, _REDIS), _needs(WITH_RABBITMQ, _POSTGRES, _RABBITMQ)]
SERVERS = [OWN, *OTHERS]


@contextmanager
def system_on(servers: str, **options: Any) -> Iterator[System]:
    """A stack on these servers."""
    match servers:
        case "our own engines":
            with system(**options) as running:
                yield running
        case "PostgreSQL 15 and Redis 7":
            with _database() as url, _redis() as (broker, prefix), system(
                database_url=url, broker_url=broker, key_prefix=prefix, **options
            ) as running:  # fmt: skip
                yield running
        case _:
            with _database() as url, _rabbitmq() as (broker, prefix), system(
                database_url=url, broker_url=broker, queue_prefix=prefix, **options
            ) as running:  # fmt: skip
                yield running


@contextmanager
def _database() -> Iterator[SecretStr]:
    name = f"holdfast_test_{uuid4().hex[:12]}"
    with psycopg.connect(_ADMIN.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield SecretStr(_ADMIN.format(name))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _redis() -> Iterator[tuple[SecretStr, str]]:
    """A prefix of its own; every key outside it is as it was."""
    prefix = f"holdfast-test-{uuid4().hex[:8]}:"
    with redis.Redis(db=0) as client:
        before = {key for key in client.scan_iter() if not key.startswith(prefix.encode())}
        try:
            yield SecretStr("redis://127.0.0.1:6379/0"), prefix
            after = {key for key in client.scan_iter() if not key.startswith(prefix.encode())}
            assert after - before == set(), "keys outside the prefix"
        finally:
            for key in client.scan_iter(f"{prefix}*"):
                client.delete(key)


@contextmanager
def _rabbitmq() -> Iterator[tuple[SecretStr, str]]:
    prefix = f"holdfast-test-{uuid4().hex[:8]}."
    try:
        yield SecretStr(_AMQP), prefix
    finally:
        with Celery(broker=_AMQP).connection_for_write() as connection, connection.channel() as opened:
            channel: Any = opened
            for lane in LANES:
                channel.queue_delete(prefix + lane.queue)
                channel.exchange_delete(prefix + lane.queue)
            for exchange in ("control.pidbox", "reply.control.pidbox", "events"):
                channel.exchange_delete(prefix + exchange)
