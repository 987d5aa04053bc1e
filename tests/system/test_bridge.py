"""Real workers on each path: cohorts move while holds come due, the bridge's worker is killed, each expires once."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Event, Thread

import pytest

from comparison.infrai_server.serve import LocalInfrai, running
from db import cohorts
from domain.paths import Path
from tests.bridged import ready_client
from tests.system.conftest import System, system

pytestmark = pytest.mark.system

ALL = range(100)


@pytest.fixture(scope="module")
def service() -> Iterator[LocalInfrai]:
    with running() as local, ready_client(local):
        yield local


@pytest.fixture(scope="module")
def bridged(service: LocalInfrai) -> Iterator[System]:
    with system(
        environment={"INFRAI_API_KEY": service.key},
        infrai_url=service.url,
        bridge_lease=timedelta(seconds=4),
        bridge_tick=timedelta(milliseconds=250),
    ) as started:
        yield started


def paths(system_: System, prefix: str) -> dict[str, int]:
    rows = system_.desk.sql(
        """SELECT r.path, count(*) AS holds FROM effects AS e JOIN receipts AS r ON r.id = e.receipt
           WHERE e.kind = 'expired' AND e.hold_id LIKE :prefix GROUP BY r.path""",
        prefix=f"{prefix}-%",
    )
    return {row.path: row.holds for row in rows}


def test_holds_on_the_bridge_expire_by_it_also_when_its_worker_is_killed(bridged: System) -> None:
    cohorts.route(bridged.database, ALL, Path.INFRAI)
    bridged.place(40, "b", seconds=2)
    bridged.until(lambda: bridged.expired("b") > 0, "a first one expired")
    bridged.stack.kill("worker-bridge")
    bridged.place(40, "c", seconds=2)
    bridged.until(lambda: bridged.expired("b") + bridged.expired("c") == 80, "all expired")
    for prefix in ("b", "c"):
        bridged.assert_expired_once(prefix, 40)
        assert paths(bridged, prefix) == {"infrai": 40}


def test_cohorts_move_to_and_fro_under_load(bridged: System) -> None:
    placed = Event()

    def place() -> None:
        for batch in range(12):
            bridged.place(10, f"m{batch:02}", seconds=1 + batch % 3)
        placed.set()

    writer = Thread(target=place)
    writer.start()
    move = 0
    while not placed.is_set() or move < 6:
        target = (Path.SWEEP, Path.INFRAI, Path.SCANNER)[move % 3]
        cohorts.route(bridged.database, range(move % 2, 100, 2), target)
        if move == 3:
            bridged.until(lambda: bridged.alive("worker-bridge"), "the bridge's worker is back")
            bridged.stack.kill("worker-bridge")
        move += 1
    writer.join()
    cohorts.route(bridged.database, ALL, Path.INFRAI)
    bridged.until(
        lambda: bridged.desk.count("holds", "id LIKE 'm%' AND status = 'expired'") == 120, "all expired", seconds=90
    )
    assert bridged.desk.count("effects", "hold_id LIKE 'm%' AND kind = 'expired'") == 120
    assert bridged.desk.count("receipts", "path = 'rescue'") == 0
    bridged.assert_reconciled()
