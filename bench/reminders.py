"""Reminders sent per second, beside what 16 threads can send at all; and an idle tick before a million of them.

    python -m bench.reminders [--reminders 10000] [--rounds 1] [--scheduled 1000000] [--only abc]

(a) N due reminders, half of them emails and half SMS, through Postgres, Valkey, beat and the reminders worker of the
    local stack, every attempt on record; the providers are stand-ins in a process of their own (aiosmtpd, and Telnyx's
    wire format), which answer each message after 50 ms. Quiet hours are off, so that the hour of the run is of no
    importance;
(b) the same messages by the same gateways, as many threads, no database, in a process of its own.
    The ceiling, 16 threads ÷ 50 ms, is arithmetic: nobody reaches it, since a message takes longer than its answer;
(c) an idle tick while so many reminders are scheduled: at the client, and the server's share.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from pydantic import SecretStr
from sqlalchemy import text

from bench import harness
from cli.local.programs import LANES
from cli.local.stack import Stack
from cli.stand_ins.providers import API_KEY
from db import reminding
from db.engine import Database, by_index
from domain.reminding import Accepted, Channel, Message, Rendered
from gateways.messaging import Gateway
from gateways.smtp import Security, Server, Smtp
from gateways.telnyx import Telnyx
from settings import ROOT, Settings

LANE = next(lane for lane in LANES if lane.queue == "reminders")
WORKER = "worker-reminders"
ANSWER = 0.05
"""Seconds a stand-in takes for each message."""
CEILING = LANE.at_once / ANSWER
SENDER, NUMBER = "Holds <holds@example.com>", "+15005550006"
DEADLINE = timedelta(seconds=15)
_BATCH = 100_000

_FILL = text("""
WITH new AS (
    SELECT 'b-' || lpad(n::text, 9, '0') AS id, n % 2 = 0 AS even,
           date_trunc('second', now()) + interval '1 day' + CAST(:due AS interval) AS expires_at
    FROM generate_series(CAST(:first AS integer), CAST(:last AS integer)) AS n
), hold AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, timezone, cohort, placed_at,
                       email, phone, leads)
    SELECT id, 'slot-' || right(id, 3), 'customer-' || right(id, 4), 'held', 1, expires_at,
           jsonb_build_object('resource', 'slot-' || right(id, 3), 'for', 1800), 'Europe/Berlin',
           crc32(convert_to(id, 'UTF8')) % 100, now() - interval '1 day',
           CASE WHEN even THEN 'anna-' || right(id, 6) || '@example.com' END,
           CASE WHEN NOT even THEN '+491511' || right(id, 7) END, ARRAY[interval '86400 seconds']
    FROM new
)
INSERT INTO reminders (key, hold_id, channel, expires_at, lead, due_at, next_at, created_at)
SELECT concat('hold-reminder:', id, ':', channel, ':', CAST(extract(epoch FROM expires_at) AS bigint), ':', 86400),
       id, channel, expires_at, interval '86400 seconds', at, at, now()
FROM new CROSS JOIN LATERAL (SELECT CASE WHEN even THEN 'email' ELSE 'sms' END AS channel,
                                    expires_at - interval '1 day' AS at) AS chosen
""")

_PROGRESS = text("""
SELECT count(*) FILTER (WHERE state NOT IN ('scheduled', 'claimed')) AS n, max(settled_at) AS ended FROM reminders
""")

_RESULT = text("""
SELECT (SELECT count(*) FROM reminders WHERE state = 'sent') AS sent, count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'accepted') AS accepted, min(started_at) AS began,
       extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY duration)) AS p50
FROM reminder_attempts
""")


@dataclass(frozen=True)
class StandIn:
    """Providers in a process of their own."""

    process: "subprocess.Popen[str]"
    mail: int
    api: str

    def finish(self) -> dict[str, int]:
        """End it, and hear what it took."""
        told, _ = self.process.communicate("", timeout=30)
        result: dict[str, int] = json.loads(told)
        return result


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """They answer each message after `ANSWER`."""
    command = [sys.executable, "-m", "cli.stand_ins", "--delay", str(ANSWER)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())
            yield StandIn(process, ports["mail"], f"http://127.0.0.1:{ports['api']}")
        finally:
            process.terminate()


@contextmanager
def stack(at: StandIn) -> Iterator[tuple[Stack, Database]]:
    """The local stack that sends to these providers, with beat waiting and Flower off."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        chosen = Settings(
            home=Path(home), log_level="WARNING", quiet_hours="off", email_gateway="smtp", email_from=SENDER,
            smtp_host="127.0.0.1", smtp_port=at.mail, smtp_security="none", sms_gateway="telnyx", sms_from=NUMBER,
            telnyx_api_key=SecretStr(API_KEY), telnyx_url=at.api,
        )  # fmt: skip
        with Stack(chosen) as running:
            for program in ("beat", "flower"):
                running.stop_program(program)
            db = Database(running.database_url, statement_timeout=None)
            try:
                yield running, db
            finally:
                db.close()


def fill(db: Database, count: int, due: timedelta) -> None:
    """So many held holds, each with one reminder that is due after this long."""
    for first in range(1, count + 1, _BATCH):
        with db.transaction() as tx:
            tx.execute(_FILL, {"first": first, "last": min(first + _BATCH - 1, count), "due": due})
    harness.settle(db)


@dataclass
class Watched:
    """What the worker's process took."""

    process: psutil.Process
    early_mb: float = 0.0
    peak_mb: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0

    def look(self, *, early: bool) -> None:
        """Note its memory, and what it has computed so far."""
        size = self.process.memory_info().rss / 2**20
        self.peak_mb = max(self.peak_mb, size)
        if early:
            self.early_mb = self.peak_mb
        times = self.process.cpu_times()
        self.cpu_s = times.user + times.system
        self.queued_s = sum(map(_queued, Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")))


def _queued(schedstat: Path) -> float:
    """Seconds a thread was ready to run and had no processor: what the rest of the machine took from it."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def through_the_stack(count: int) -> dict[str, float]:
    """(a): from the first attempt's beginning to the last reminder's settling."""
    with stand_in() as at:
        with stack(at) as (running, db):
            fill(db, count, -timedelta(seconds=1))
            watched = Watched(psutil.Process(running.pid(WORKER)))
            watched.look(early=True)
            before = watched.cpu_s, watched.queued_s
            running.start_program("beat")
            row = _until_all_sent(db, count, watched)
            with db.transaction() as tx:
                result = tx.execute(_RESULT).one()
        taken = at.finish()
    assert (result.sent, result.attempts, result.accepted) == (count, count, count), result
    assert taken["mails"] + taken["messages"] == count, "one message each"
    took = (row.ended - result.began).total_seconds()
    return {
        "a_per_s": round(count / took, 1),
        "attempt_p50_ms": round(float(result.p50) * 1000, 1),
        "worker_cpu_ms_each": round((watched.cpu_s - before[0]) / count * 1000, 2),
        "worker_without_processor_ms_each": round((watched.queued_s - before[1]) / count * 1000, 2),
        "worker_early_mb": round(watched.early_mb, 1),
        "worker_growth_mb": round(watched.peak_mb - watched.early_mb, 1),
    }


def _until_all_sent(db: Database, count: int, watched: Watched) -> Any:
    ends = time.monotonic() + 600
    while True:
        with db.transaction() as tx:
            row = tx.execute(_PROGRESS).one()
        watched.look(early=row.n < count / 5)
        if row.n >= count:
            return row
        if time.monotonic() > ends:
            raise TimeoutError(f"{row.n} of {count} after 600 s")
        time.sleep(0.2)


def by_gateways_alone(count: int) -> float:
    """(b): messages per second, in a process of its own."""
    with stand_in() as at:
        call = f"from bench.reminders import send_all; send_all({at.mail}, {at.api!r}, {count})"
        told = subprocess.run([sys.executable, "-c", call], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        taken = at.finish()
    assert taken["mails"] + taken["messages"] == count, "one message each"
    return float(told.stdout)


def send_all(mail: int, api: str, count: int) -> None:
    """(b)'s process: half of the threads send emails, half of them SMS."""
    server = Server(host="127.0.0.1", port=mail, security=Security.NONE)
    gateways: Sequence[Gateway] = (
        Smtp(server, SENDER, deadline=DEADLINE),
        Telnyx(API_KEY, NUMBER, deadline=DEADLINE, url=api),
    )
    numbers = iter(range(count))
    lock = threading.Lock()

    def work(gateway: Gateway) -> None:
        to = "anna@example.com" if gateway.channel is Channel.EMAIL else "+4915112345678"
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            key = f"hold-reminder:b-{number:09}:{gateway.channel}:1796000000:86400"
            message = Message(key, gateway.channel, to, Rendered("Your hold ends", "Your hold on slot-1 ends.", None))
            assert isinstance(gateway.send(message, not_after=math.inf), Accepted)

    threads = [threading.Thread(target=work, args=(gateways[place % 2],)) for place in range(LANE.at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(count / (time.perf_counter() - began))


def idle_ticks(scheduled: int) -> dict[str, float]:
    """(c): milliseconds of a tick that finds nothing due."""
    with stand_in() as at, stack(at) as (_, db):
        fill(db, scheduled, timedelta(hours=6))
        clients, servers = [], []
        for _ in range(200):
            began = time.perf_counter()
            with db.transaction() as tx:
                assert reminding.dispatch(tx, apart=timedelta(0), most=12) == {}
            clients.append((time.perf_counter() - began) * 1000)
        explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {reminding.HOW_MANY.text}")
        for _ in range(50):
            with db.transaction() as tx:
                by_index(tx)
                plan = tx.execute(explain, {"most": 12}).scalar_one()[0]
            servers.append(plan["Planning Time"] + plan["Execution Time"])
    return {
        "scheduled": scheduled,
        "idle_tick_ms": round(harness.quantile(clients, 0.5), 3),
        "idle_tick_p99_ms": round(harness.quantile(clients, 0.99), 3),
        "idle_look_server_ms": round(harness.quantile(servers, 0.5), 3),
    }


def throughput(count: int, rounds: int, *, bare: bool) -> tuple[dict[str, object], dict[str, float]]:
    """(a) and (b) in turn; the figures are the median round's."""
    ours, alone = [], []
    for _ in range(rounds):
        ours.append(through_the_stack(count))
        alone.append(by_gateways_alone(count) if bare else CEILING)
        print(f"(a) {ours[-1]['a_per_s']:,.0f}/s  (b) {alone[-1]:,.0f}/s  of {CEILING:,.0f}/s", flush=True)
    middle = sorted(ours, key=lambda round_: round_["a_per_s"])[len(ours) // 2]
    figures: dict[str, object] = {"reminders": count, **middle, "rounds_a": [one["a_per_s"] for one in ours]}
    ratios = {"vs_ceiling": round(middle["a_per_s"] / CEILING, 3)}
    if bare:
        figures["b_gateways_alone_per_s"] = round(median(alone), 1)
        ratios["vs_gateways_alone"] = round(middle["a_per_s"] / median(alone), 3)
    return figures, ratios


def main() -> None:
    """Measure, print, write bench/out/reminders.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.reminders", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reminders", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scheduled", type=int, default=1_000_000)
    parser.add_argument("--only", default="abc", help="the letters of what to measure")
    options = parser.parse_args()
    chosen = set(options.only)
    figures: dict[str, object] = {
        "stand_in": f"aiosmtpd {version('aiosmtpd')}", "threads": LANE.at_once, "answer_ms": ANSWER * 1000,
        "ceiling_per_s": CEILING,
    }  # fmt: skip
    ratios: dict[str, float] = {}
    if "a" in chosen:
        more, ratios = throughput(options.reminders, options.rounds, bare="b" in chosen)
        figures |= more
    if "c" in chosen:
        idle = idle_ticks(options.scheduled)
        figures |= idle
        ratios["idle_tick_ms"] = idle["idle_tick_ms"]
    harness.write("reminders", figures, ratios)


if __name__ == "__main__":
    main()
