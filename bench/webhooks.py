"""Webhooks delivered per second, beside bare requests and a plain Celery project; and how endpoints share the lane.

    python -m bench.webhooks [--deliveries 6000] [--rounds 3] [--only abcdefg] [--scale 1.0]

(a) N due deliveries through Postgres, Valkey, beat and the webhook worker of the local stack, every attempt on record,
    to one endpoint and to ten; the receiver is Granian, in a process of its own;
(b) the same POSTs by bare `requests` sessions, same processes, threads and cap per endpoint, no database: the ceiling;
(c) what a plain Celery project does: a task per event, `requests.post`, retry by countdown, same pool, flags, threads;
(d) from an event to its 2xx at 200 events/s; (e) one endpoint hangs beside another, and eight do (e2);
(f) 100,000 rows beside ten; (g) the worker's memory under hostile answers.

Rounds alternate (a) and (b); figures are medians.
"""

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any

import requests
from celery import Celery
from sqlalchemy import text

from bench import harness, sharing
from bench.stage import BODY, CAP, LANE, bench, granian, until
from cli.local.programs import Program, node, worker
from domain.signing import HmacKey, signed_headers
from settings import ROOT

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


_DELIVERED = text("""
SELECT count(*) AS n, coalesce(extract(epoch FROM max(d.settled_at) - (SELECT min(started_at) FROM attempts)), 0) AS s
FROM deliveries AS d WHERE d.state = 'delivered'
""")


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


def others(scale: float) -> tuple[tuple[str, str, Callable[[], float]], ...]:
    """(d) to (g): letter, name, and how to measure it."""
    return (
        ("d", "commit_to_2xx_p95_s", lambda: sharing.commit_to_2xx(max(2.0, 15 * scale))),
        ("e", "healthy_p95_beside_hang_s", lambda: sharing.beside_hangs(1)),
        ("e", "healthy_p95_beside_eight_hangs_s", lambda: sharing.beside_hangs(8)),
        ("f", "ten_beside_a_backlog_s", lambda: sharing.beside_a_backlog(max(1000, int(100_000 * scale)))),
        ("g", "hostile_growth_mb", lambda: sharing.hostile_growth_mb(max(240, int(2400 * scale)))),
    )


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
    for letter, name, measure in others(options.scale):
        if letter in chosen:
            figures[name] = round(measure(), 3)
            print(f"({letter}) {name} {figures[name]}", flush=True)
    harness.write("webhooks", figures, ratios)


if __name__ == "__main__":
    main()
