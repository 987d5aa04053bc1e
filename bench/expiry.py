"""Holds expired per second: through real messages, beside the bare transaction, beside one message per hold.

    python -m bench.expiry [--holds 200000] [--plain 10000] [--rounds 3] [--scale 1.0]

(a) N due holds with amounts, from the first tick to the last commit, through Postgres, Valkey, beat, the sweep and two
    expiry processes of the local stack, nothing changed but that Flower is off;
(b) the same production transaction alone, from two processes with chunks of 1,000: the ceiling of any way to carry it;
(c) (a) with one message per hold, same flags: what a plain Celery project does.
Rounds alternate (a) and (b); figures are medians. Every round ends with every hold expired and the ledger closed.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

import psutil
import redis
from sqlalchemy import text

from bench import harness
from cli.local.stack import Stack
from db import expiry, schema
from db.engine import Database
from domain.identity import HoldId
from domain.paths import Carrier
from domain.paths import Path as DrivenBy
from domain.references import Reference
from settings import Settings

_DUE = "interval '-1 second' * (1 + n % 240)"
"""Deadlines of the last four minutes: overdue, and within the grace time."""
_CEILING_CHUNK = 1000


@dataclass(frozen=True)
class Run:
    """One measured run through the whole stack."""

    holds: int
    seconds: float
    wal_bytes: int
    worker_mb: float
    sweeper_mb: float
    valkey_mb: float
    messages: int

    @property
    def rate(self) -> float:
        """Holds per second."""
        return self.holds / self.seconds


@contextmanager
def stack(chunk: int | None) -> Iterator[Stack]:
    """A stack of its own, with beat waiting and Flower off."""
    environment = {"HOLDFAST_LOG_LEVEL": "WARNING"} | ({} if chunk is None else {"HOLDFAST_CHUNK": str(chunk)})
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        with Stack(Settings(home=Path(home)), environment=environment) as running:
            running.stop_program("beat")
            running.stop_program("flower")
            yield running


def through_messages(running: Stack, holds: int) -> Run:
    """Expire so many holds through the stack, and look at what it took."""
    db = Database(running.database_url, statement_timeout=None)
    with db.transaction() as tx:
        harness.fill(tx, holds, _DUE)
    harness.settle(db)
    before = _wal(db)
    running.start_program("beat")
    seconds = _until_expired(db, holds)
    wal = _wal(db) - before
    with db.transaction() as tx:
        messages = int(tx.execute(text("SELECT count(*) FROM receipts")).scalar_one())
        closed = int(tx.execute(text("SELECT count(*) FROM ledger WHERE side = 'close'")).scalar_one())
    assert closed == holds, f"{closed} of {holds} closed"
    db.close()
    return Run(
        holds, seconds, wal, _peak_mb(running, "worker-expiry"), _peak_mb(running, "worker-sweeps"),
        _valkey_peak_mb(running), messages,
    )  # fmt: skip


def _until_expired(db: Database, holds: int) -> float:
    """Seconds from the first run's start to the moment at which all receipts are seen to add up."""
    progress = text("""
        SELECT (SELECT min(started_at) FROM sweep_runs) AS began, clock_timestamp() AS now,
               (SELECT coalesce(sum(n::int), 0) FROM receipts, jsonb_each_text(tally -> 'expired') AS t(c, n)) AS done
    """)
    for _ in range(20 * 600):
        with db.transaction() as tx:
            row = tx.execute(progress).one()
        if row.done >= holds:
            return float((row.now - row.began).total_seconds())
        time.sleep(0.05)
    raise TimeoutError(f"{row.done} of {holds} expired in ten minutes")


def _wal(db: Database) -> int:
    with db.transaction() as tx:
        return int(tx.execute(text("SELECT pg_current_wal_lsn() - '0/0'")).scalar_one())


def _peak_mb(running: Stack, program: str) -> float:
    pid = running.pid(program)
    assert pid is not None
    family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return max(harness.peak_memory_mb(member) for member in family)


def _valkey_peak_mb(running: Stack) -> float:
    with redis.Redis(unix_socket_path=running.broker_url.removeprefix("redis+socket://")) as client:
        return round(int(client.info("memory")["used_memory_peak"]) / 2**20, 1)


def ceiling(running: Stack, holds: int) -> float:
    """Holds per second of the bare transaction from two processes, in a database of its own on the same server."""
    assert running.postgres is not None
    admin = Database(running.database_url)
    with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("DROP DATABASE IF EXISTS ceiling WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE ceiling"))
    admin.close()
    url = running.postgres.database("ceiling")
    db = Database(url, statement_timeout=None)
    with db.transaction() as tx:
        schema.migrate(tx)
        harness.fill(tx, holds, _DUE)
    harness.settle(db)
    with db.transaction() as tx:
        rows = tx.execute(text("SELECT id, expires_at FROM holds ORDER BY expires_at, id")).all()
    references = [Reference.to(HoldId(row.id), 1, row.expires_at) for row in rows]
    chunks = [references[n : n + _CEILING_CHUNK] for n in range(0, len(references), _CEILING_CHUNK)]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    workers = [context.Process(target=_apply_all, args=(url, chunks[half::2], barrier)) for half in (0, 1)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - began
    with db.transaction() as tx:
        left = tx.execute(text("SELECT count(*) FROM holds WHERE status = 'held'")).scalar_one()
    assert left == 0, f"{left} holds left"
    db.close()
    return holds / seconds


def _apply_all(url: str, chunks: Sequence[Sequence[Reference]], barrier: Barrier) -> None:
    db = Database(url)
    with db.transaction() as tx:
        tx.execute(text("SELECT 1"))
    barrier.wait()
    for number, chunk in enumerate(chunks):
        by = Carrier(message_id=str(number), path=DrivenBy.SWEEP, run=None, worker="ceiling")
        with db.transaction() as tx:
            expiry.expire(tx, chunk, by, grace=timedelta(minutes=5))
    db.close()


def main() -> None:
    """Measure, print, write bench/out/expiry.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.expiry", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--holds", type=int, default=200_000)
    parser.add_argument("--plain", type=int, default=10_000, help="holds of (c)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink or grow the numbers of holds")
    options = parser.parse_args()
    holds, plain = (max(1000, int(n * options.scale)) for n in (options.holds, options.plain))
    runs: list[Run] = []
    ceilings: list[float] = []
    for _ in range(options.rounds):
        with stack(None) as running:
            db = Database(running.database_url)
            with db.transaction() as tx:
                durability = harness.durability(tx)
            db.close()
            runs.append(through_messages(running, holds))
            running.stop_program("beat")
            ceilings.append(ceiling(running, holds))
        print(f"(a) {runs[-1].rate:,.0f}/s  (b) {ceilings[-1]:,.0f}/s  a/b {runs[-1].rate / ceilings[-1]:.2f}")
    with stack(1) as running:
        one_each = through_messages(running, plain)
    a, b = median(run.rate for run in runs), median(ceilings)
    figures = {
        "holds": holds,
        "a_holds_per_s": round(a),
        "a_rounds": [round(run.rate) for run in runs],
        "b_ceiling_holds_per_s": round(b),
        "b_rounds": [round(rate) for rate in ceilings],
        "c_one_message_per_hold_holds_per_s": round(one_each.rate, 1),
        "c_holds": plain,
        "a_messages": runs[-1].messages,
        "c_messages": one_each.messages,
        "wal_bytes_per_hold": round(median(run.wal_bytes / run.holds for run in runs)),
        "worker_peak_mb": max(run.worker_mb for run in runs),
        "sweeper_peak_mb": max(run.sweeper_mb for run in runs),
        "valkey_peak_mb": max(run.valkey_mb for run in runs),
    }
    ratios = {
        "vs_ceiling": round(median(run.rate / rate for run, rate in zip(runs, ceilings, strict=True)), 3),
        "vs_plain_celery": round(a / one_each.rate, 1),
    }
    harness.write("expiry", figures, ratios, durability=durability)


if __name__ == "__main__":
    main()
