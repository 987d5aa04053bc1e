"""Servers that users already run, by address alone: PostgreSQL 15, Redis 7, RabbitMQ. What we make there we remove."""

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

from tests.system.conftest import System, system

pytestmark = pytest.mark.system

POSTGRES, REDIS, RABBITMQ = ("127.0.0.1", 5432), ("127.0.0.1", 6379), ("127.0.0.1", 5672)


def answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def absent(*addresses: tuple[str, int]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in addresses if not answers((host, port)))


@contextmanager
def database_of_its_own() -> Iterator[str]:
    """A database on the machine's PostgreSQL, dropped afterwards."""
    name = f"holdfast_test_{uuid4().hex[:12]}"
    admin = "postgresql://postgres@127.0.0.1:5432/postgres"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield f"postgresql://postgres@127.0.0.1:5432/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def works(running: System) -> None:
    """The main job: holds expire, a killed worker and a lost message delay nothing for long, all reconciles."""
    running.place(60, "o", seconds=2)
    running.until(lambda: running.expired("o") == 60, "all expired")
    running.stack.kill("worker-expiry")
    running.place(30, "p", seconds=1)
    running.until(lambda: running.expired("p") == 30, "all expired after a kill")
    running.assert_expired_once("o", 60)


@pytest.mark.skipif(absent(POSTGRES, REDIS) != "", reason="no PostgreSQL or Redis on their usual ports")
def test_postgresql_15_and_redis_7() -> None:
    prefix = f"holdfast-test-{uuid4().hex[:8]}:"
    with redis.Redis(db=0) as client:
        before = {key for key in client.scan_iter() if not key.startswith(prefix.encode())}
        try:
            with database_of_its_own() as url, system(
                database_url=SecretStr(url), broker_url=SecretStr("redis://127.0.0.1:6379/0"), key_prefix=prefix
            ) as running:  # fmt: skip
                works(running)
            after = {key for key in client.scan_iter() if not key.startswith(prefix.encode())}
            assert after - before == set(), "keys outside the prefix"
        finally:
            for key in client.scan_iter(f"{prefix}*"):
                client.delete(key)


@pytest.mark.skipif(absent(POSTGRES, RABBITMQ) != "", reason="no PostgreSQL or RabbitMQ on their usual ports")
def test_postgresql_15_and_rabbitmq() -> None:
    prefix = f"holdfast-test-{uuid4().hex[:8]}."
    broker = "amqp://guest:guest@127.0.0.1:5672//"
    try:
        with database_of_its_own() as url, system(
            database_url=SecretStr(url), broker_url=SecretStr(broker), queue_prefix=prefix
        ) as running:  # fmt: skip
            works(running)
    finally:
        with Celery(broker=broker).connection_for_write() as connection, connection.channel() as opened:
            channel: Any = opened
            for lane in ("sweeps", "expiry"):
                channel.queue_delete(prefix + lane)
                channel.exchange_delete(prefix + lane)
            for exchange in ("control.pidbox", "reply.control.pidbox", "events"):
                channel.exchange_delete(prefix + exchange)
