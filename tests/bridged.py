"""A bridge to the local contract server, for tests that carry holds over it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from pydantic import SecretStr

from comparison.infrai_server.serve import LocalInfrai
from db.engine import Database
from gateways.infrai import Infrai
from gateways.infrai_calls import Patience
from gateways.infrai_terms import QueueTerms
from tasks.bridging import Bridge
from tests.helpers import POLICY, Desk

QUEUE = "holdfast-expiry"
LEASE = timedelta(seconds=60)
NO_WAIT = timedelta(0)
FEW_TRIES = Patience(deadline=timedelta(seconds=3), attempts=2)


def drive_by_bridge(desk: Desk) -> None:
    """Let the path `infrai` drive every cohort from the start."""
    desk.sql("UPDATE cohort_paths SET path = 'infrai', routed_at = now(), bridged_at = now()")


def make_queues(client: Infrai, *, max_retries: int = 10) -> None:
    client.create_queue(f"{QUEUE}-dlq", QueueTerms(retention_days=14))
    terms = QueueTerms(dead_letter_queue=f"{QUEUE}-dlq", max_retries=max_retries, retention_days=14, lease=LEASE)
    assert client.create_queue(QUEUE, terms)


@contextmanager
def client_of(url: str, key: str, patience: Patience = FEW_TRIES) -> Iterator[Infrai]:
    with Infrai(url, SecretStr(key), patience=patience, verify=False) as client:
        yield client


def bridge_to(database: Database, client: Infrai, *, budget: timedelta = timedelta(seconds=10)) -> Bridge:
    return Bridge(
        db=database, client=client, queue=QUEUE, bounds=POLICY, worker="worker@test", lease=LEASE, budget=budget
    )


@contextmanager
def ready_client(local: LocalInfrai) -> Iterator[Infrai]:
    """A client of a local server, with its queues made."""
    with client_of(local.url, local.key) as client:
        make_queues(client)
        yield client
