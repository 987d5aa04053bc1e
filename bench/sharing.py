"""How endpoints share the webhook lane: with traffic, beside hangs, beside a backlog, under hostile answers."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psutil
from sqlalchemy import text

from bench import harness
from bench.loopback import HOSTILE
from bench.stage import WORKER, Bench, bench, until
from db import holds
from domain.endpoints import Overrides
from domain.identity import HoldId
from domain.paths import Carrier
from domain.terms import For, Terms
from settings import ROOT


def commit_to_2xx(seconds: float, rate: int = 200) -> float:
    """(d): the 95th percentile in seconds, while holds are placed at this rate by two writers."""
    with bench() as at:
        endpoint = at.subscribe("ep", f"{at.receiver}/0")
        at.tick()
        count = int(seconds * rate)
        began = time.monotonic()

        def write(half: int) -> None:
            wanted = Terms(resource="r", customer="c", lasting=For(timedelta(hours=1)))
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


def beside_hangs(count: int) -> float:
    """(e), (e2): the 95th percentile of 20 deliveries of an endpoint beside so many that never answer 200 each."""
    with bench() as at:
        hanging = [at.subscribe(f"hangs-{number}", f"{at.receiver}/hang") for number in range(count)]
        well = at.subscribe("well", f"{at.receiver}/0")
        at.tick()
        for endpoint in hanging:
            at.fill(endpoint, 200)
        until(lambda: all(at.under_way(endpoint) for endpoint in hanging), 60)
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
    """A receiver of every odd behaviour, in a process of its own."""
    command = [sys.executable, "-m", "bench.loopback"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.communicate("", timeout=30)
