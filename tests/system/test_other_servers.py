"""Servers that users already run, by address alone: PostgreSQL 15, Redis 7, RabbitMQ."""

import pytest

from tests.system.servers import OTHERS, system_on

pytestmark = pytest.mark.system


@pytest.mark.parametrize("servers", OTHERS)
def test_the_main_job_works_and_a_killed_worker_is_back(servers: str) -> None:
    with system_on(servers) as running:
        running.place(60, "o", seconds=2)
        running.until(lambda: running.expired("o") == 60, "all expired")
        running.stack.kill("worker-expiry")
        running.place(30, "p", seconds=1)
        running.until(lambda: running.expired("p") == 30, "all expired after a kill")
        running.stack.kill("beat")
        running.place(10, "q", seconds=1)
        running.until(lambda: running.expired("q") == 10, "all expired after beat was killed")
        running.assert_expired_once("o", 60)
