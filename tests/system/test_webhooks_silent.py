"""Name servers that say nothing: whoever depends on them waits, and nobody else does."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.hooks import fill_backlog
from tests.system.conftest import System, system
from tests.system.subscribers import HOOKS, accepting, subscribe, subscriber

pytestmark = pytest.mark.system

BOUNDS = {
    "webhook_deadline": timedelta(seconds=1),
    "webhook_lease": timedelta(seconds=4),
    "webhook_breaker_failures": 2,
}
SILENT = 40
"""Endpoints, each with a name of its own."""


@pytest.fixture(scope="module")
def unheard() -> Iterator[System]:
    with system(app="tests.system.silent_names", **HOOKS | BOUNDS) as started:
        yield started


def test_while_many_name_servers_are_silent_an_endpoint_with_another_is_served_at_the_first_attempt(
    unheard: System,
) -> None:
    for number in range(SILENT):
        name = f"silent-{number}"
        subscribe(unheard, name, f"http://{name}.silent.example/", types=("endpoint.failing",))
        fill_backlog(unheard.desk, 5, name, name)
    failed = "SELECT count(DISTINCT endpoint_id) FROM attempts WHERE failure IS NOT NULL"
    unheard.until(lambda: unheard.desk.sql(failed) == [(SILENT,)], "each silent one has failed")
    with subscriber(unheard, "well", accepting) as receiver:
        fill_backlog(unheard.desk, 20, "well", "well")
        unheard.until(lambda: receiver.delivered() == 20, "the well one is served")
        assert receiver.attempts() == [(1, 20)]
    unheard.until(lambda: unheard.desk.count("endpoints", "breaker_until IS NOT NULL"), "a breaker opens")
    seen = unheard.desk.sql(
        "SELECT DISTINCT failure, status FROM attempts WHERE duration IS NOT NULL AND status IS NULL"
    )
    assert [tuple(row) for row in seen] == [("ours", None)]
    assert unheard.desk.count("endpoints", "failures > 0 OR failing_since IS NOT NULL OR state = 'disabled'") == 0
    assert unheard.desk.count("deliveries", "endpoint_id <> 'well' AND state <> 'pending'") == 0
