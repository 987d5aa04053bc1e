"""How late holds expire, and how long `place` takes, with a million live holds.

    python -m bench.latency [--live 1000000] [--due 500] [--seconds 60] [--places 100] [--scale 1.0]

A million live holds; on top of them 500 come due in each second for a minute, while `place` is called 100 times a
second on connections of its own. Lateness is the expiry's commit minus its deadline, read from the server's own record
of commits (track_commit_timestamp, switched on for this run alone). `place` is timed from the instant it was due to be
called, so that a stall is charged to every call behind it. The idle tick is timed at the client, so it is an upper
bound of its database time; the server's own measure of its look at the holds stands beside it.
"""

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from bench import harness
from cli.local.stack import Stack
from db import holds, sweeps
from db.engine import Database, by_index
from domain.identity import new_hold_id
from domain.paths import Carrier
from domain.paths import Path as DrivenBy
from domain.terms import For, Terms
from settings import Settings
from tasks.app import policy

_PLACERS = 8
_AHEAD = 20
"""Seconds between filling and the first deadline: filling must be over by then."""
_TICKS = 300
_HALF_AN_INTERVAL = timedelta(0)

_LATENESS = text("""
SELECT extract(epoch FROM pg_xact_commit_timestamp(e.xmin) - e.expires_at) AS late
FROM effects AS e WHERE e.kind = 'expired'
""")
_SET_ASIDE = text("""
UPDATE holds SET set_aside = true, expires_at = expires_at - interval '9 days'
WHERE id IN (SELECT id FROM holds ORDER BY id LIMIT 10000)
""")
_MAKE_LIVE = text("UPDATE holds SET set_aside = false, expires_at = expires_at + interval '9 days' WHERE set_aside")
_LIVE = "interval '1 day' + interval '1 second' * (n % 86400)"


def idle_ticks(db: Database) -> dict[str, float]:
    """Milliseconds of a tick that finds nothing due: at the client, and the server's share of it."""
    clients = []
    for _ in range(_TICKS):
        began = time.perf_counter()
        with db.transaction() as tx:
            assert sweeps.begin(tx, DrivenBy.SWEEP, policy(), apart=_HALF_AN_INTERVAL) == sweeps.Idle()
        clients.append((time.perf_counter() - began) * 1000)
    explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {sweeps.ANYTHING_DUE.text}")
    servers = []
    for _ in range(_TICKS // 10):
        with db.transaction() as tx:
            by_index(tx)
            (plan,) = tx.execute(explain, {"path": "sweep", "grace": policy().grace}).scalar_one()
        servers.append(plan["Planning Time"] + plan["Execution Time"])
    return {
        "idle_tick_ms": round(harness.quantile(clients, 0.5), 3),
        "idle_tick_p99_ms": round(harness.quantile(clients, 0.99), 3),
        "idle_look_server_ms": round(harness.quantile(servers, 0.5), 3),
    }


class Placers:
    """Calls `place` at a steady rate on connections of their own, and keeps how long each took."""

    def __init__(self, url: str, rate: int) -> None:
        self._db = Database(url, pool=_PLACERS)
        self._rate = rate
        self._stop = threading.Event()
        self.milliseconds: list[float] = []

    def run(self) -> None:
        """Call until stopped; a call that is late is charged from the instant it was due."""
        with ThreadPoolExecutor(_PLACERS) as pool:
            began = time.perf_counter()
            number = 0
            while not self._stop.is_set():
                due = began + number / self._rate
                self._stop.wait(max(0.0, due - time.perf_counter()))
                pool.submit(self._place, due)
                number += 1
        self._db.close()

    def _place(self, due: float) -> None:
        terms = Terms(
            resource="seat", customer="customer", lasting=For(timedelta(days=2)), amount=1250, currency="EUR",
        )  # fmt: skip
        by = Carrier(message_id="bench", path=None, run=None, worker="bench")
        with self._db.transaction() as tx:
            holds.place(tx, new_hold_id(), terms, by)
        self.milliseconds.append((time.perf_counter() - due) * 1000)

    def stop(self) -> None:
        """End after the calls that are under way."""
        self._stop.set()


def measure(running: Stack, options: argparse.Namespace) -> tuple[dict[str, object], dict[str, str]]:
    """Fill, tick idly, then let holds come due while others are placed."""
    db = Database(running.database_url, statement_timeout=None)
    live, due = int(options.live * options.scale), int(options.due * options.seconds)
    running.stop_program("beat")
    running.stop_program("flower")
    with db.transaction() as tx:
        durability = harness.durability(tx)
        harness.fill(tx, live, _LIVE)
    harness.settle(db)
    figures: dict[str, object] = {"live": live, **idle_ticks(db)}
    figures |= {f"{name}_with_10k_set_aside": value for name, value in _with_set_aside(db).items()}
    with db.transaction() as tx:
        coming = f"interval '{_AHEAD} seconds' + interval '1 second' * ((n - {live + 1}) / {options.due})"
        harness.fill(tx, due, coming, first=live + 1)
    harness.settle(db)
    running.start_program("beat")
    placers = Placers(running.database_url, options.places)
    placing = threading.Thread(target=placers.run)
    placing.start()
    _until_expired(db, due)
    placers.stop()
    placing.join()
    with db.transaction() as tx:
        late = [float(row.late) for row in tx.execute(_LATENESS)]
    db.close()
    return figures | {
        "due_per_s": options.due,
        "expired": len(late),
        "lateness_p50_s": round(harness.quantile(late, 0.5), 3),
        "lateness_p99_s": round(harness.quantile(late, 0.99), 3),
        "lateness_max_s": round(max(late), 3),
        "lateness_min_s": round(min(late), 3),
        "places": len(placers.milliseconds),
        "place_p50_ms": round(harness.quantile(placers.milliseconds, 0.5), 2),
        "place_p99_ms": round(harness.quantile(placers.milliseconds, 0.99), 2),
        "place_max_ms": round(max(placers.milliseconds), 2),
    }, durability


def _with_set_aside(db: Database) -> dict[str, float]:
    """Idle ticks with 10,000 overdue holds set aside; they are made live again afterwards."""
    with db.transaction() as tx:
        tx.execute(_SET_ASIDE)
    harness.settle(db)
    ticks = idle_ticks(db)
    with db.transaction() as tx:
        tx.execute(_MAKE_LIVE)
    return ticks


def _until_expired(db: Database, due: int) -> None:
    done = text("SELECT coalesce(sum(n::int), 0) FROM receipts, jsonb_each_text(tally -> 'expired') AS t(c, n)")
    for _ in range(600):
        with db.transaction() as tx:
            if tx.execute(done).scalar_one() >= due:
                return
        time.sleep(0.5)
    raise TimeoutError("not all expired in five minutes")


def main() -> None:
    """Measure, print, write bench/out/latency.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=500, help="holds coming due in each second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--places", type=int, default=100, help="calls of place per second")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink or grow the number of live holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        with Stack(
            Settings(home=Path(home)),
            environment={"HOLDFAST_LOG_LEVEL": "WARNING"},
            postgres_options={"track_commit_timestamp": "on"},
        ) as running:
            figures, durability = measure(running, options)
    ratios = {name: float(str(figures[name])) for name in ("lateness_p99_s", "place_p99_ms", "idle_tick_ms")}
    harness.write("latency", figures, ratios, durability=durability)


if __name__ == "__main__":
    main()
