"""Endpoints whose receivers run in the test, for stacks whose workers send to them."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pydantic import SecretStr
from standardwebhooks import Webhook

from db import endpoint_edits, endpoints
from domain.endpoints import EndpointId, Overrides, Terms
from domain.signing import HmacKey
from gateways.vault import Vault
from tasks.sending import sealed
from tests.gateways.receiver import Behaviour, Receiver, Request, Talk, answer, receiving
from tests.system.conftest import System

VAULT_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
AT_ONCE = (timedelta(0), timedelta(milliseconds=200))
HOOKS: dict[str, Any] = {
    "vault_keys": SecretStr(VAULT_KEY),
    "dangerous_webhook_targets": True,
    "webhook_deadline": timedelta(seconds=2),
    "webhook_lease": timedelta(seconds=3),
    "webhook_breaker_failures": 1000,
}
"""Short leases, and no breaker: it has tests of its own."""


class Subscriber:
    """An endpoint, its secret, and what its receiver got."""

    def __init__(self, running: System, name: str, receiver: Receiver, key: HmacKey) -> None:
        self.running, self.name, self.receiver = running, name, receiver
        self._reference = Webhook(key.reveal())

    @property
    def requests(self) -> list[Request]:
        return list(self.receiver.requests)

    def ids(self) -> Counter[str]:
        """How often each event came."""
        return Counter(request.headers["webhook-id"] for request in self.requests)

    def delivered(self) -> int:
        return self.running.desk.count("deliveries", f"endpoint_id = '{self.name}' AND state = 'delivered'")

    def under_way(self) -> int:
        """Attempts on record of which nobody has recorded the end."""
        return self.running.desk.count("attempts", f"endpoint_id = '{self.name}' AND duration IS NULL")

    def attempts(self) -> list[tuple[int, int]]:
        """How many deliveries were attempted how often."""
        rows = self.running.desk.sql(
            "SELECT attempts, count(*) FROM deliveries WHERE endpoint_id = :name GROUP BY 1 ORDER BY 1", name=self.name
        )
        return [(row[0], row[1]) for row in rows]

    def assert_true_to_what_is_stored(self) -> None:
        """Each request verifies, and has the bytes that stand in its event's row."""
        rows = self.running.desk.sql("SELECT event_id, body FROM events")
        stored = {row[0]: bytes(row[1]) for row in rows}
        for request in self.requests:
            self._reference.verify(request.body, request.headers)
            assert request.body == stored[request.headers["webhook-id"]]


@contextmanager
def subscriber(running: System, name: str, behave: Behaviour, **terms: Any) -> Iterator[Subscriber]:
    """An endpoint at a receiver on loopback."""
    with receiving(behave) as receiver:
        key = subscribe(running, name, receiver.url, **terms)
        try:
            yield Subscriber(running, name, receiver, key)
        finally:
            with running.database.transaction() as tx:
                endpoints.delete(tx, EndpointId(name))


def subscribe(running: System, name: str, url: str, **terms: Any) -> HmacKey:
    key = HmacKey.generate()
    endpoint = EndpointId(name)
    wanted = Terms(**{"url": url, "overrides": Overrides(waits=AT_ONCE), **terms})
    with running.database.transaction() as tx:
        endpoint_edits.make(tx, endpoint, wanted, sealed(Vault([VAULT_KEY]), endpoint, key))
    return key


def accepting(talk: Talk, _: Request) -> None:
    talk.say(answer(200))


class Gate:
    """Keeps each request until it is opened, then answers 200."""

    def __init__(self) -> None:
        self.came, self.open = threading.Event(), threading.Event()

    def __call__(self, talk: Talk, _: Request) -> None:
        self.came.set()
        self.open.wait(60)
        talk.say(answer(200))


def kill_the_worker(running: System) -> None:
    before = running.stack.pid("worker-webhooks")
    running.stack.kill("worker-webhooks")
    running.until(lambda: running.stack.pid("worker-webhooks") not in {before, None}, "the worker is back")
