"""Holds carried over the local contract server and back, beside one call at a time, and beside the sweep.

    python -m bench.bridge [--holds 20000] [--one-by-one 4000] [--slices 4] [--live 1000000] [--connections 4]

(a) due holds through `bridge.publish` and `bridge.consume`: 100 a publication, 100 a consumption and transaction, one
acknowledgement a message, which the contract bounds;
(b) the same client, keys and connections, with one publication, consumption, transaction and acknowledgement a hold;
(c) the path `sweep`, through Valkey and the workers of the local stack.
Slices of (a) and (b) alternate. The contract server is a process of its own, on the same machine: it is not Infrai, so
the figures are about the client and the database, not about a service. Last, an idle `bridge.publish` beside a
million messages that wait for the horizon.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import SecretStr
from sqlalchemy import event, text

from bench import expiry as through_workers
from bench import harness
from cli.local.stack import Stack
from db import cohorts, expiry
from db.engine import Database
from domain.outcomes import Outcome
from domain.paths import Carrier
from domain.paths import Path as DrivenBy
from domain.references import Reference, parse_reference
from gateways.infrai import Infrai
from gateways.infrai_terms import Outgoing, QueueTerms
from settings import ROOT, Settings
from tasks.app import policy
from tasks.bridging import Bridge

QUEUE = "bench"
LEASE = timedelta(minutes=10)
ALL = range(100)
IDLE_TICKS = 200
_AT_ONCE = timedelta(0)

_SERVER = "import sys; from cli.main import run; sys.exit(run(['infrai-server', '--port', '0', '--json']))"

_WAITING = text("""
INSERT INTO bridge_messages (hold_id, version, expires_at, publish_at)
SELECT 'w-' || n, 1, date_trunc('second', now()) + interval '30 days', now() + interval '23 days'
FROM generate_series(1, CAST(:count AS integer)) AS n
""")


@dataclass
class Counted:
    """Calls by capability, and the seconds they took, all connections together."""

    calls: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def watch(self, client: Infrai) -> None:
        """Count the calls of this client from now on."""
        call = client._call  # noqa: SLF001 - the benchmark looks inside

        def counted(capability: str, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(capability, **options)
            finally:
                with self.lock:
                    self.calls[capability] += 1
                    self.seconds[capability] += time.perf_counter() - began  # type: ignore[assignment]

        client._call = counted  # type: ignore[method-assign]  # noqa: SLF001 - the same


@contextmanager
def service(connections: int) -> Iterator[Infrai]:
    """A contract server in a process of its own, and a client with a queue there."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        with Infrai(told["url"], SecretStr(told["key"]), connections=connections * 2) as client:
            client.create_queue(QUEUE, QueueTerms(max_retries=10, retention_days=14))
            yield client
        server.terminate()


def over_the_bridge(bridge: Bridge, count: int) -> float:
    """Seconds until so many due holds were published, consumed, expired and acknowledged."""
    began = time.perf_counter()
    published = acknowledged = 0
    while acknowledged < count:
        if published < count:
            published += bridge.publish(apart=_AT_ONCE).messages
        done = bridge.consume(apart=_AT_ONCE)
        assert done.error is None, done.error
        acknowledged += done.acknowledged
    return time.perf_counter() - began


def one_by_one(db: Database, client: Infrai, references: list[Reference], connections: int) -> float:
    """Seconds for the same holds with a call and a transaction for each step of each."""
    by = Carrier(message_id="bench", path=DrivenBy.INFRAI, run=None, worker="bench")

    def publish(reference: Reference) -> None:
        client.publish(QUEUE, Outgoing(payload=reference.as_data()), intent=reference.job_id)

    def consume(_: Reference) -> None:
        [message] = client.consume(QUEUE, most=1, lease=LEASE)
        with db.transaction() as tx:
            outcomes = expiry.expire(tx, [parse_reference(message.payload)], by, grace=policy().grace)
        assert outcomes == [Outcome.EXPIRED]
        client.ack(QUEUE, message.message_id)

    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(publish, references))
        list(pool.map(consume, references))
    return time.perf_counter() - began


def due(db: Database, count: int, first: int) -> list[Reference]:
    """Holds that are due; the sweep must not be running."""
    with db.transaction() as tx:
        harness.fill(tx, count, "interval '-1 minute'", first=first)
        rows = tx.execute(
            text("SELECT id, version, expires_at FROM holds WHERE status = 'held' AND expires_at <= now() ORDER BY id")
        )
        return [Reference.to(row.id, row.version, row.expires_at) for row in rows]


def compare(db: Database, client: Infrai, options: argparse.Namespace) -> dict[str, object]:
    """(a) and (b) by turns, on holds of their own."""
    bridge = Bridge(
        db=db, client=client, queue=QUEUE, bounds=policy(), worker="bench", lease=LEASE,
        budget=timedelta(minutes=5), connections=options.connections,
    )  # fmt: skip
    counted, bridged, single = Counted(), 0.0, 0.0
    many, few = options.holds // options.slices, options.one_by_one // options.slices
    first = options.holds + 1
    watched = client._call  # noqa: SLF001 - restored between the turns
    for _ in range(options.slices):
        due(db, many, first)
        cohorts.route(db, ALL, DrivenBy.INFRAI)
        harness.settle(db)
        counted.watch(client)
        bridged += over_the_bridge(bridge, many)
        client._call = watched  # type: ignore[method-assign]  # noqa: SLF001 - the same
        references = due(db, few, first + many)
        harness.settle(db)
        single += one_by_one(db, client, references, options.connections)
        first += many + few
    holds = many * options.slices
    calls, spent = sum(counted.calls.values()), sum(counted.seconds.values())
    return {
        "bridge_holds_per_s": round(holds / bridged),
        "one_by_one_holds_per_s": round(few * options.slices / single),
        "calls_per_hold": round(calls / holds, 3),
        "calls": dict(counted.calls),
        "acks_share_of_calls": round(counted.calls["queue.ack"] / calls, 3),
        "acks_share_of_call_time": round(counted.seconds["queue.ack"] / spent, 3),
    }


def idle(db: Database, client: Infrai, live: int) -> dict[str, float]:
    """Milliseconds of the database in a tick that finds nothing within the horizon, at the client."""
    with db.transaction() as tx:
        tx.execute(_WAITING, {"count": live})
    harness.settle(db)
    bridge = Bridge(
        db=db, client=client, queue=QUEUE, bounds=policy(), worker="bench", lease=LEASE, budget=timedelta(seconds=1)
    )
    spent: list[float] = []
    began = [0.0]
    event.listen(db.engine, "before_cursor_execute", lambda *_: began.__setitem__(0, time.perf_counter()))
    event.listen(
        db.engine, "after_cursor_execute", lambda *_: spent.append((time.perf_counter() - began[0]) * 1000)
    )  # fmt: skip
    ticks = []
    for _ in range(IDLE_TICKS):
        spent.clear()
        assert bridge.publish(apart=timedelta(microseconds=-1)).run is None
        ticks.append(sum(spent))
    return {
        "waiting_messages": live,
        "idle_publish_database_ms": round(harness.quantile(ticks, 0.5), 3),
        "idle_publish_database_p99_ms": round(harness.quantile(ticks, 0.99), 3),
    }


def measure(options: argparse.Namespace) -> tuple[dict[str, object], dict[str, str]]:
    """Everything, on a stack of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        environment = {"HOLDFAST_LOG_LEVEL": "WARNING"}
        with (
            Stack(Settings(home=Path(home)), environment=environment) as running,
            service(options.connections) as infrai,
        ):
            running.stop_program("beat")
            running.stop_program("flower")
            swept = through_workers.through_messages(running, options.holds)
            running.stop_program("beat")
            db = Database(running.database_url, statement_timeout=None, pool=16)
            with db.transaction() as tx:
                durability = harness.durability(tx)
            figures = compare(db, infrai, options)
            figures["sweep_holds_per_s"] = round(swept.holds / swept.seconds)
            figures |= idle(db, infrai, options.live)
            db.close()
    return figures, durability


def main() -> None:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description="holds carried over the bridge per second")
    parser.add_argument("--holds", type=int, default=20_000, help="of (a) and (c)")
    parser.add_argument("--one-by-one", type=int, default=4_000, help="of (b)")
    parser.add_argument("--slices", type=int, default=4, help="turns of (a) and (b)")
    parser.add_argument("--live", type=int, default=1_000_000, help="messages that wait beside an idle tick")
    parser.add_argument("--connections", type=int, default=4, help="to the service, for (a) and (b) alike")
    options = parser.parse_args()
    figures, durability = measure(options)
    ratio = float(figures["bridge_holds_per_s"]) / float(figures["one_by_one_holds_per_s"])  # type: ignore[arg-type]
    harness.write(
        "bridge", figures, {"vs_one_by_one": round(ratio, 2)}, durability=durability, parameters=vars(options)
    )


if __name__ == "__main__":
    main()
