"""What the tests of the bridge share: a contract server, a client with its queues, and a database on path infrai."""

from collections.abc import Iterator

import pytest

from comparison.infrai_server.serve import LocalInfrai, running
from db.engine import Database
from gateways.infrai import Infrai
from tasks.bridging import Bridge
from tests.bridged import bridge_to, drive_by_bridge, ready_client
from tests.helpers import Desk


@pytest.fixture
def server() -> Iterator[LocalInfrai]:
    with running() as server:
        yield server


@pytest.fixture
def client(server: LocalInfrai) -> Iterator[Infrai]:
    with ready_client(server) as client:
        yield client


@pytest.fixture
def bridged_desk(database: Database) -> Desk:
    desk = Desk(database)
    drive_by_bridge(desk)
    return desk


@pytest.fixture
def over(bridged_desk: Desk, database: Database, client: Infrai) -> Bridge:
    return bridge_to(database, client)
