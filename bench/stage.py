"""The stage of the webhook benchmarks: a local stack whose beat waits, and a receiver that is no bottleneck."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from pydantic import SecretStr
from sqlalchemy import text

from cli.local.answers import free_port
from cli.local.programs import LANES, Program
from cli.local.stack import Stack
from db import endpoint_edits, slots
from db.engine import Database
from domain.endpoints import EndpointId, Terms
from domain.signing import HmacKey
from gateways.vault import Vault
from settings import ROOT, Settings
from tasks.sending import sealed

LANE = next(lane for lane in LANES if lane.queue == "webhooks")
CAP = Terms(url="https://example.com/").slots
WORKER = "worker-webhooks"
VAULT_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="  # of the benchmark, and of nobody else
BODY = (
    b'{"type":"reservation.placed","timestamp":"2026-01-01T12:00:00Z","data":{"reservation_id":"b-000000001",'
    b'"version":1,"resource":"slot-001","expires_at":"2026-01-01T12:30:00Z"}}'
)

_FILL = text("""
WITH event AS (
    INSERT INTO events (event_id, hold_id, type, occurred_at, body)
    SELECT 'reservation-placed:' || hold || chr(58) || 1, hold, 'reservation.placed', clock_timestamp(), :body
    FROM generate_series(1, CAST(:count AS integer)) AS n,
         concat_ws('-', CAST(:endpoint AS text), CAST(:batch AS text), n) AS hold
    RETURNING event_id, occurred_at
)
INSERT INTO deliveries (event_id, endpoint_id, next_attempt_at, created_at, aging_since, still_before)
SELECT event_id, CAST(:endpoint AS text), occurred_at, occurred_at, occurred_at, '0' FROM event
""")

_LATENCIES = text("""
SELECT extract(epoch FROM a.started_at + a.duration - e.occurred_at)
FROM attempts AS a JOIN events AS e USING (event_id) WHERE a.endpoint_id = :endpoint AND a.status = 200
""")


@dataclass(frozen=True)
class Bench:
    """A stack with beat waiting and Flower off, and a receiver."""

    stack: Stack
    db: Database
    receiver: str

    def subscribe(self, name: str, url: str, **terms: Any) -> EndpointId:
        """An endpoint with a key."""
        endpoint, key = EndpointId(name), HmacKey.generate()
        with self.db.transaction() as tx:
            endpoint_edits.make(tx, endpoint, Terms(url=url, **terms), sealed(Vault([VAULT_KEY]), endpoint, key))
        return endpoint

    def tick(self) -> None:
        """Start beat, and wait for its first ticks."""
        self.stack.start_program("beat")
        until(self._has_ticked, 60)

    def _has_ticked(self) -> bool:
        with self.db.transaction() as tx:
            query = text("SELECT count(*) FROM sweeps WHERE name = :name AND ticks > 4")
            return bool(tx.execute(query, {"name": slots.SWEEP}).scalar_one())

    def fill(self, endpoint: EndpointId, count: int, batch: str = "b") -> None:
        """So many due deliveries for it alone."""
        with self.db.transaction() as tx:
            tx.execute(_FILL, {"endpoint": endpoint, "count": count, "body": BODY, "batch": batch})

    def delivered(self, endpoint: EndpointId) -> int:
        """How many of its deliveries are done."""
        with self.db.transaction() as tx:
            query = text("SELECT count(*) FROM deliveries WHERE endpoint_id = :id AND state = 'delivered'")
            return int(tx.execute(query, {"id": endpoint}).scalar_one())

    def under_way(self, endpoint: EndpointId) -> int:
        """How many of its requests have no end on record."""
        with self.db.transaction() as tx:
            query = text("SELECT count(*) FROM attempts WHERE endpoint_id = :id AND duration IS NULL")
            return int(tx.execute(query, {"id": endpoint}).scalar_one())

    def latencies(self, endpoint: EndpointId) -> list[float]:
        """Seconds from each event's instant, which lies before its commit, to its 2xx."""
        with self.db.transaction() as tx:
            return [float(value) for value in tx.execute(_LATENCIES, {"endpoint": endpoint}).scalars()]


def until(reached: Callable[[], Any], seconds: float = 600) -> None:
    """Watch the worker until something is so."""
    ends = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.05)


@contextmanager
def granian() -> Iterator[str]:
    """The receiver's address; it runs as long as the context."""
    port = free_port(0)
    command = [
        str(Path(sys.executable).parent / "granian"), "--interface", "rsgi", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--no-ws", "--http", "1", "--backpressure", "512", "--log-level", "warning",
        "bench.receiver:app",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, cwd=ROOT) as process, requests.Session() as session:
        try:
            until(lambda: _answers(session, url), 20)
            yield url
        finally:
            process.terminate()


def _answers(session: requests.Session, url: str) -> bool:
    try:
        return session.get(url + "/count", timeout=5).ok
    except requests.ConnectionError:
        return False


@contextmanager
def bench(programs: Sequence[Program] | None = None, **settings: Any) -> Iterator[Bench]:
    """Everything that one measurement needs, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home, granian() as url:
        Path(home).chmod(0o755)
        chosen = Settings(
            home=Path(home), vault_keys=SecretStr(VAULT_KEY), dangerous_webhook_targets=True, log_level="WARNING",
            **settings,
        )  # fmt: skip
        with Stack(chosen, programs=programs) as running:
            for program in ("beat", "flower"):
                if programs is None:
                    running.stop_program(program)
            db = Database(running.database_url, statement_timeout=None)
            try:
                yield Bench(running, db, url)
            finally:
                db.close()
