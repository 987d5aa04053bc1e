"""From the row to the wire: the tasks themselves, a real request, and what is verified at the other end."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from db import endpoint_keys, endpoints
from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId
from domain.signing import HmacKey, sign
from domain.webhooks import Result
from gateways import webhook as gateway
from gateways.exchange import uptime
from gateways.vault import Vault
from settings import settings
from tasks import sending, webhooks
from tasks.delivery import Drain
from tasks.lane import BrokerUnavailable
from tests.hooks import NO_WAIT, Hooks, fill_backlog

VAULT_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
EP = EndpointId("ep")


class Got:
    """A receiver on loopback that keeps what it got and answers 204."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def got() -> Iterator[Got]:
    receiver = Got()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


CACHES = (settings, sending.vault, sending.sender, sending._opened, webhooks.policy)


@pytest.fixture
def hooks(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    """The tasks' own settings, database and sender; no broker."""
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", VAULT_KEY)
    monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "true")
    for cached in CACHES:
        cached.cache_clear()
    monkeypatch.setattr(webhooks, "database", lambda: database)
    monkeypatch.setattr(webhooks, "worker_name", lambda: "webhooks@here")
    yield Hooks(database)
    sending.sender().close()
    for cached in CACHES:
        cached.cache_clear()


def with_key(hooks: Hooks, url: str, key: HmacKey, vault_key: str = VAULT_KEY) -> None:
    hooks.endpoint(url=url)
    hooks.call(endpoint_keys.rotate, "ep", sending.sealed(Vault([vault_key]), EP, key), grace=NO_WAIT)


def test_a_tick_and_its_message_bring_a_signed_event_to_the_receiver(
    hooks: Hooks, got: Got, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = HmacKey.generate()
    with_key(hooks, got.url, key)
    hooks.placed("h")
    messages: list[str] = []
    monkeypatch.setattr(webhooks, "publish", messages.append)
    assert (webhooks.sweep_webhooks.run(), messages) == (1, ["ep"])
    assert webhooks.drain.run(endpoint="ep") == 1
    [(headers, body)] = got.requests
    assert body == hooks.rows("SELECT body FROM events")[0][0]
    assert headers["webhook-id"] == "reservation-placed:h:1"
    timestamp = int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == sign([key], "reservation-placed:h:1", timestamp, body)
    [attempt] = hooks.attempts()
    assert (timestamp, attempt.status, attempt.worker) == (int(attempt.started_at.timestamp()), 204, "webhooks@here")
    assert attempt.key_ids == [key.key_id]
    assert hooks.delivery().state == "delivered"


def test_a_secret_that_cannot_be_opened_is_a_fault_of_ours_and_nothing_is_sent(hooks: Hooks, got: Got) -> None:
    with_key(hooks, got.url, HmacKey.generate(), vault_key="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    hooks.placed("h")
    webhooks.drain.run(endpoint="ep")
    assert got.requests == []
    assert (hooks.delivery().state, hooks.delivery().spared, hooks.attempts()[0].failure) == ("pending", 1, "ours")


def test_a_worker_that_was_frozen_since_it_took_a_delivery_sends_nothing(
    hooks: Hooks, got: Got, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_key(hooks, got.url, HmacKey.generate())
    for hold in ("h1", "h2"):
        hooks.placed(hold)
    frozen = iter((0.0, 60.0))

    def send(taken: Taken, asked_at: float) -> Result:
        later = uptime() + next(frozen)
        monkeypatch.setattr(gateway, "uptime", lambda: later)
        return sending.send(taken, asked_at)

    policy = webhooks.policy()
    Drain(db=hooks.database, send=send, policy=policy, worker="w", budget=timedelta(seconds=60))(EP)
    assert len(got.requests) == 1
    attempts = hooks.rows("SELECT status, failure, detail FROM attempts ORDER BY started_at")
    stood_still = "this worker stood still since it took the delivery"
    assert [tuple(row) for row in attempts] == [(204, None, ""), (None, "ours", stood_still)]
    assert hooks.count("deliveries", "state = 'pending' AND spared = 1") == 1


def test_a_worker_without_keys_takes_nothing(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    with_key(hooks, "http://127.0.0.1:9/", HmacKey.generate())
    hooks.placed("h")
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", "")
    settings.cache_clear()
    sending.vault.cache_clear()
    with pytest.raises(ValueError, match="vault keys: there is none"):
        webhooks.drain.run(endpoint="ep")
    assert (hooks.delivery().attempts, hooks.count("endpoint_slots", "token IS NOT NULL")) == (0, 0)


def test_a_broker_that_is_away_costs_no_attempt(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    with_key(hooks, "http://127.0.0.1:9/", HmacKey.generate())
    hooks.placed("h")

    def away(**_: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(webhooks.drain, "apply_async", away)
    with pytest.raises(BrokerUnavailable):
        webhooks.sweep_webhooks.run()
    [(mark,)] = hooks.rows("SELECT max(dispatched_until) - now() FROM endpoint_slots")
    assert timedelta(0) < mark <= timedelta(seconds=5)
    assert (hooks.delivery().attempts, hooks.count("attempts")) == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_tidying_cancels_all_that_waits_for_deleted_endpoints_in_batches(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    hooks.endpoint()
    fill_backlog(hooks, count)
    hooks.sql("UPDATE endpoints SET state = 'deleted'")
    monkeypatch.setattr(endpoints, "CANCEL_BATCH", 3)
    monkeypatch.setattr(endpoints, "cancel_of_deleted", partial(endpoints.cancel_of_deleted, limit=3))
    assert webhooks.tidy.run() == {"cancelled": count, "keys": 0}
    assert hooks.count("deliveries", "state = 'cancelled'") == count


def test_a_tidying_has_a_bound_and_the_next_one_goes_on(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 5)
    hooks.sql("UPDATE endpoints SET state = 'deleted'")
    monkeypatch.setattr(webhooks, "_MOST_BATCHES", 2)
    monkeypatch.setattr(endpoints, "CANCEL_BATCH", 2)
    monkeypatch.setattr(endpoints, "cancel_of_deleted", partial(endpoints.cancel_of_deleted, limit=2))
    assert [webhooks.tidy.run()["cancelled"] for _ in range(3)] == [4, 1, 0]
