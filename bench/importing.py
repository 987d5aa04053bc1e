"""A million holds taken in from a file, half of them with money and three in ten closed.

    python -m bench.importing [--holds 1000000] [--scale 1.0]

The command itself is run, in a process of its own, against an embedded Postgres with its default durability; the file
is written before. Ids come in no order, as they do from elsewhere.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from bench import harness
from cli.local.stack import Stack
from db.engine import Database
from settings import ROOT, Settings

_STATES = ("held",) * 7 + ("expired", "confirmed", "cancelled")


def line(number: int) -> dict[str, object]:
    """One hold of the file; a prime step spreads the ids."""
    status = _STATES[number % 10]
    hold: dict[str, object] = {
        "id": f"h-{number * 7_919 % 10_000_019:08d}-{number}",
        "resource": f"slot-{number % 5000}",
        "customer": f"customer-{number % 90_000}",
        "expires_at": "2036-01-01T10:00:00+01:00" if status == "held" else "2026-01-01T10:00:00Z",
        "status": status,
        "timezone": "Europe/Berlin",
    }
    if number % 2:
        hold |= {"amount": 100 + number % 9000, "currency": "EUR"}
    if status != "held":
        hold |= {"closed_at": "2026-01-01T10:00:01Z" if status == "expired" else "2026-01-01T09:00:00Z"}
    return hold


def main() -> None:
    """Measure, print, write bench/out/import.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.importing", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--holds", type=int, default=1_000_000)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink or grow the number of holds")
    options = parser.parse_args()
    holds = int(options.holds * options.scale)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        file = Path(home) / "holds.jsonl"
        with file.open("w") as out:
            out.writelines(json.dumps(line(number)) + "\n" for number in range(holds))
        with Stack(Settings(home=Path(home) / "state"), programs=()) as running:
            command = [str(Path(sys.executable).parent / "holdfast"), "import", str(file), "--json"]
            began = time.perf_counter()
            run = subprocess.run(command, env=running.environment, cwd=ROOT, capture_output=True, text=True, check=True)
            seconds = time.perf_counter() - began
            db = Database(running.database_url, statement_timeout=None)
            with db.transaction() as tx:
                durability = harness.durability(tx)
                found = int(tx.execute(text("SELECT count(*) FROM holds")).scalar_one())
            db.close()
    assert json.loads(run.stdout) == {"taken": holds, "already_there": 0, "bad": 0}
    assert found == holds
    figures = {
        "holds": holds,
        "seconds": round(seconds, 1),
        "holds_per_s": round(holds / seconds),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }
    harness.write("import", figures, {"seconds_per_million": round(seconds / holds * 1e6, 1)}, durability=durability)


if __name__ == "__main__":
    main()
