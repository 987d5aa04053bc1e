"""A database that is away when an answer has come: it is settled as soon as it is back, and not sent again."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from cli.local.engines import Postgres
from db import schema
from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId
from domain.webhooks import Result
from tasks.delivery import Drain, Drained
from tests.conftest import running
from tests.hooks import BOUNDS, BROKEN, LEASE, OK, Hooks, fill_backlog


class Server:
    """A Postgres that the test stops and starts."""

    def __init__(self, home: Path) -> None:
        self._postgres = Postgres(home / "data", home / "run", {"fsync": "off"})
        self._run: AbstractContextManager[Postgres] | None = None
        self.start()
        self.database = Database(self._postgres.url)
        with self.database.transaction() as tx:
            schema.migrate(tx)

    def start(self) -> None:
        self._run = running(self._postgres)
        self._run.__enter__()

    def stop(self) -> None:
        if self._run is not None:
            self._run.__exit__(None, None, None)
        self._run = None


@contextmanager
def own_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        server = Server(Path(home))
        try:
            yield server
        finally:
            server.database.close()
            server.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for this module: each test uses holds of its own, and leaves it running."""
    with own_server() as started:
        yield started


class Away:
    """Sends by stopping the server; it is back at the wait of this number. The clock moves by the waits alone."""

    def __init__(self, server: Server, result: Result, back_at: int) -> None:
        self._server, self._result, self._back_at = server, result, back_at
        self.sent: list[Taken] = []
        self.waits: list[float] = []

    def send(self, taken: Taken, asked_at: float) -> Result:
        self.sent.append(taken)
        if len(self.sent) == 1:
            self._server.stop()
        return self._result

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == self._back_at:
            self._server.start()

    def drain(self, name: str) -> Drained:
        known = {"worker": "w", "clock": lambda: sum(self.waits), "wait": self.wait}
        return Drain(db=self._server.database, send=self.send, policy=BOUNDS, **known)(EndpointId(name))  # type: ignore[arg-type]  # a test's shorthand


def states(hooks: Hooks, name: str) -> list[tuple[object, ...]]:
    return hooks.rows(
        "SELECT state, attempts, lease_token FROM deliveries WHERE endpoint_id = :n ORDER BY event_id", n=name
    )


def answers(hooks: Hooks, name: str) -> list[tuple[object, ...]]:
    return hooks.rows("SELECT number, status FROM attempts WHERE endpoint_id = :n ORDER BY event_id", n=name)


@pytest.mark.parametrize(("result", "state", "status"), [(OK, "delivered", 200), (BROKEN, "pending", 500)])
def test_an_answer_that_came_while_the_database_was_away_is_settled_with_its_record_when_it_is_back(
    server: Server, result: Result, state: str, status: int
) -> None:
    hooks, name = Hooks(server.database), f"ep-{status}"
    hooks.endpoint(name)
    fill_backlog(hooks, 2, name, name)
    away = Away(server, result, back_at=3)
    assert away.drain(name) == Drained(1)
    assert [round(wait, 1) for wait in away.waits] == [0.1, 0.2, 0.4]
    assert len(away.sent) == 1
    assert states(hooks, name) == [(state, 1, None), ("pending", 0, None)]
    assert answers(hooks, name) == [(1, status)]
    assert hooks.count("endpoint_slots", f"endpoint_id = '{name}' AND lease_until IS NOT NULL") == 0


def test_a_database_that_is_away_for_longer_than_the_lease_is_waited_for_no_longer(server: Server) -> None:
    hooks = Hooks(server.database)
    hooks.endpoint("long")
    fill_backlog(hooks, 1, "long", "long")
    away = Away(server, OK, back_at=-1)
    with pytest.raises(DBAPIError):
        away.drain("long")
    assert LEASE - timedelta(seconds=2) < timedelta(seconds=sum(away.waits)) < LEASE
    assert max(away.waits) == 1.6
    server.start()
    [(state, attempts, token)] = states(hooks, "long")
    assert (state, attempts, token == away.sent[0].token) == ("pending", 1, True)
