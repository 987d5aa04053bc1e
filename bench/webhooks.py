"""Webhooks delivered per second, beside bare requests and a plain Celery project; and how endpoints share the lane.

    python -m bench.webhooks [--deliveries 6000] [--rounds 3] [--only abcdefg] [--scale 1.0]

(a) N due deliveries through Postgres, Valkey, beat and the webhook worker of the local stack, every attempt on record,
    to one endpoint and to ten; the receiver is Granian, in a process of its own;
(b) the same POSTs by bare `requests` sessions, same processes, threads and cap per endpoint, no database: the ceiling;
(c) what a plain Celery project does: a task per event, `requests.post`, retry by countdown, same pool, flags, threads;
(d) from an event to its 2xx at 200 events/s; (e) one endpoint hangs beside another; (f) 100,000 rows beside ten;
(g) the worker's memory under hostile answers. Rounds alternate (a) and (b); figures are medians.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import requests
from celery import Celery
from pydantic import SecretStr
from sqlalchemy import text

from bench import harness
from cli.local.answers import free_port
from cli.local.programs import LANES, Program, node, worker
from cli.local.stack import Stack
from db import endpoint_edits, holds, slots
from db.engine import Database
from domain.endpoints import EndpointId, Overrides, Terms
from domain.identity import HoldId
from domain.paths import Carrier
from domain.signing import HmacKey, signed_headers
from domain.terms import For
from domain.terms import Terms as HoldTerms
from gateways.vault import Vault
from settings import ROOT, Settings
from tasks.sending import sealed
from tests.gateways.receiver import HOSTILE

LANE = next(lane for lane in LANES if lane.queue == "webhooks")
CAP = Terms(url="https://example.com/").slots
WORKER = "worker-webhooks"
VAULT_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="  # of the benchmark, and of nobody else
BODY = (
    b'{"type":"reservation.placed","timestamp":"2026-01-01T12:00:00Z","data":{"reservation_id":"b-000000001",'
    b'"version":1,"resource":"slot-001","expires_at":"2026-01-01T12:30:00Z"}}'
)
CHUNK = 50
"""Requests of (b) after which a thread looks for another endpoint."""

plain = Celery("plain", config_source="celeryconfig")
"""(c): `celery -A bench.webhooks:plain worker`."""


@plain.task(name="webhook.post", bind=True, max_retries=10)
def post(task: Any, url: str, headers: dict[str, str], body: str) -> None:
    """Send one event; on any failure again in 5 s."""
    try:
        requests.post(url, data=body.encode(), headers=headers, timeout=15).raise_for_status()
    except requests.RequestException as error:
        raise task.retry(countdown=5, exc=error) from error


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

_DELIVERED = text("""
SELECT count(*) AS n, coalesce(extract(epoch FROM max(d.settled_at) - (SELECT min(started_at) FROM attempts)), 0) AS s
FROM deliveries AS d WHERE d.state = 'delivered'
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


def through_the_stack(deliveries: int, count: int) -> float:
    """(a): deliveries per second to so many endpoints, from the first attempt's begin to the last one's settling."""
    with bench() as at:
        for number in range(count):
            at.fill(at.subscribe(f"ep-{number}", f"{at.receiver}/{number}"), deliveries // count)
        harness.settle(at.db)
        at.stack.start_program("beat")
        rows: list[Any] = []

        def done() -> bool:
            with at.db.transaction() as tx:
                rows[:] = [tx.execute(_DELIVERED).one()]
            return bool(rows[0].n >= deliveries // count * count)

        until(done)
        with at.db.transaction() as tx:
            recorded = tx.execute(text("SELECT count(*) FROM attempts WHERE status = 200")).scalar_one()
        assert recorded == rows[0].n, "every attempt is on record, and there is one for each"
        return float(rows[0].n / rows[0].s)


def bare_requests(deliveries: int, count: int) -> float:
    """(b): POSTs per second by bare sessions in a process of their own."""
    with granian() as url:
        command = [
            sys.executable,
            "-c",
            f"from bench.webhooks import post_all; post_all({url!r}, {deliveries}, {count})",
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        return received(url, deliveries)


def received(url: str, expected: int) -> float:
    """Requests per second, by the receiver."""
    with requests.Session() as session:
        told = session.get(url + "/count", timeout=5).json()
    assert told["requests"] == expected, told
    return float((told["requests"] - 1) / (told["last"] - told["first"]))


def post_all(url: str, deliveries: int, count: int) -> None:
    """(b)'s process: the lane's threads, each endpoint's cap, one session for each place under the cap."""
    left = [iter(range(deliveries // count)) for _ in range(count)]
    free = [(number, requests.Session()) for _ in range(CAP) for number in range(count)]
    lock = threading.Lock()
    headers = {"Content-Type": "application/json"} | signed_headers(
        [HmacKey.generate()], "reservation-placed:b-000000001:1", int(time.time()), BODY
    )

    def work() -> None:
        while True:
            with lock:
                if not free:
                    return
                number, session = free.pop(0)
            for _ in range(CHUNK):
                with lock:
                    if next(left[number], None) is None:
                        break
                session.post(f"{url}/{number}", data=BODY, headers=headers, timeout=15).raise_for_status()
            else:
                with lock:
                    free.append((number, session))

    threads = [threading.Thread(target=work) for _ in range(LANE.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def plain_celery(deliveries: int) -> float:
    """(c): the same worker command with another app; all is published before it starts."""
    program = Program("plain", worker(LANE, app="bench.webhooks:plain"), autostart=False, node=node(LANE))
    with bench([program]) as at:
        headers = {"Content-Type": "application/json"} | signed_headers(
            [HmacKey.generate()], "reservation-placed:b-000000001:1", int(time.time()), BODY
        )
        with plain.connection_for_write(at.stack.broker_url) as connection:
            options: dict[str, Any] = {"connection": connection}
            for _ in range(deliveries):
                post.apply_async(args=(f"{at.receiver}/0", headers, BODY.decode()), **options)
            at.stack.start_program("plain")
            with connection.channel() as opened:
                channel: Any = opened
                until(lambda: not channel.client.llen("webhooks") and not channel.client.hlen("unacked"))
        return received(at.receiver, deliveries)


def commit_to_2xx(seconds: float, rate: int = 200) -> float:
    """(d): the 95th percentile in seconds, while holds are placed at this rate by two writers."""
    with bench() as at:
        endpoint = at.subscribe("ep", f"{at.receiver}/0")
        at.tick()
        count = int(seconds * rate)
        began = time.monotonic()

        def write(half: int) -> None:
            wanted = HoldTerms(resource="r", customer="c", lasting=For(timedelta(hours=1)))
            by = Carrier(message_id="bench", path=None, run=None, worker="bench")
            for number in range(half, count, 2):
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
                with at.db.transaction() as tx:
                    holds.place(tx, HoldId(f"d-{number}"), wanted, by)

        writers = [threading.Thread(target=write, args=(half,)) for half in (0, 1)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        until(lambda: at.delivered(endpoint) == count, 60)
        return harness.quantile(at.latencies(endpoint), 0.95)


def beside_a_hang() -> float:
    """(e): the 95th percentile of 20 deliveries beside 200 of an endpoint that never answers."""
    with bench() as at:
        hangs, well = at.subscribe("hangs", f"{at.receiver}/hang"), at.subscribe("well", f"{at.receiver}/0")
        at.tick()
        at.fill(hangs, 200)
        until(lambda: at.under_way(hangs) == CAP, 60)
        at.fill(well, 20)
        until(lambda: at.delivered(well) == 20, 60)
        return harness.quantile(at.latencies(well), 0.95)


def beside_a_backlog(rows: int) -> float:
    """(f): seconds until 10 deliveries are done that come while another endpoint has so many waiting."""
    with bench() as at:
        big, small = at.subscribe("big", f"{at.receiver}/1"), at.subscribe("small", f"{at.receiver}/0")
        at.fill(big, rows)
        harness.settle(at.db)
        at.tick()
        until(lambda: at.delivered(big) > 0, 60)
        at.fill(small, 10)
        until(lambda: at.delivered(small) == 10, 60)
        assert at.delivered(big) < rows, "there was a backlog all the time"
        return max(at.latencies(small))


def hostile_growth_mb(attempts: int) -> float:
    """(g): how much the worker's memory grows under so many hostile answers, over what it was after the first few."""
    with bench(webhook_breaker_failures=1_000_000) as at, hostile_receiver() as url:
        once = Overrides(max_attempts=1)
        chosen = [at.subscribe(f"h-{name}", f"{url}/{name}", overrides=once) for name in HOSTILE]
        at.tick()
        for endpoint in chosen:
            at.fill(endpoint, 10, "warm")
        until(lambda: _nothing_waits(at))
        process = psutil.Process(at.stack.pid(WORKER))
        idle = peak = process.memory_info().rss
        for endpoint in chosen:
            at.fill(endpoint, attempts // len(chosen), "flood")
        while not _nothing_waits(at):
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.05)
        assert at.stack.pid(WORKER) == process.pid, "the worker lives"
        return round((peak - idle) / 2**20, 1)


def _nothing_waits(at: Bench) -> bool:
    with at.db.transaction() as tx:
        return not tx.execute(text("SELECT EXISTS (SELECT FROM deliveries WHERE state = 'pending')")).scalar_one()


@contextmanager
def hostile_receiver() -> Iterator[str]:
    """The tests' receiver of every odd behaviour, in a process of its own."""
    command = [sys.executable, "-m", "tests.gateways.receiver"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.communicate("", timeout=30)


def throughput(deliveries: int, rounds: int) -> tuple[dict[str, object], dict[str, float]]:
    """(a) and (b) in turn, for one endpoint and for ten."""
    figures: dict[str, object] = {"deliveries": deliveries}
    ratios: dict[str, float] = {}
    for count, name in ((1, "one"), (10, "ten")):
        pairs = []
        for _ in range(rounds):
            pairs.append((through_the_stack(deliveries, count), bare_requests(deliveries, count)))
            ours, ceiling = pairs[-1]
            print(f"{name}: (a) {ours:,.0f}/s  (b) {ceiling:,.0f}/s  a/b {ours / ceiling:.2f}", flush=True)
        figures |= {
            f"a_{name}_per_s": round(median(ours for ours, _ in pairs)),
            f"b_{name}_per_s": round(median(ceiling for _, ceiling in pairs)),
            f"rounds_{name}": [[round(rate) for rate in pair] for pair in pairs],
        }
        ratios[f"vs_ceiling_{name}"] = round(median(ours / ceiling for ours, ceiling in pairs), 3)
    ratios["vs_ceiling"] = min(ratios.values())
    return figures, ratios


def main() -> None:
    """Measure, print, write bench/out/webhooks.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.webhooks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--deliveries", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="abcdefg", help="the letters of what to measure; (a) and (b) go together")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink or grow the numbers of deliveries")
    options = parser.parse_args()
    many = max(200, int(options.deliveries * options.scale))
    figures: dict[str, object] = {"receiver": f"granian {version('granian')}", "threads": LANE.at_once, "cap": CAP}
    ratios: dict[str, float] = {}
    chosen = set(options.only)
    if chosen & {"a", "b"}:
        more, ratios = throughput(many, options.rounds)
        figures |= more
    if "c" in chosen:
        plainly = plain_celery(many // 2)
        figures["c_plain_celery_per_s"] = round(plainly)
        if "a_one_per_s" in figures:
            ratios["vs_plain_celery"] = round(float(str(figures["a_one_per_s"])) / plainly, 2)
            ratios["vs_plain_celery_ten"] = round(float(str(figures["a_ten_per_s"])) / plainly, 2)
    others: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("d", "commit_to_2xx_p95_s", lambda: commit_to_2xx(max(2.0, 15 * options.scale))),
        ("e", "healthy_p95_beside_hang_s", beside_a_hang),
        ("f", "ten_beside_a_backlog_s", lambda: beside_a_backlog(max(1000, int(100_000 * options.scale)))),
        ("g", "hostile_growth_mb", lambda: hostile_growth_mb(max(240, int(2400 * options.scale)))),
    )
    for letter, name, measure in others:
        if letter in chosen:
            figures[name] = round(measure(), 3)
            print(f"({letter}) {name} {figures[name]}", flush=True)
    harness.write("webhooks", figures, ratios)


if __name__ == "__main__":
    main()
