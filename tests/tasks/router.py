"""A process that routes every cohort to the bridge in batches of three holds, and stops after two of them."""

import sys
from typing import Any

from db import cohorts
from db.engine import Database, Tx
from domain.paths import Path

_fill: Any = cohorts._fill
_filled: list[int] = []


def fill(tx: Tx, asked: dict[str, object]) -> int:
    if len(_filled) == 2:
        sys.stdout.write("filled\n")
        sys.stdout.flush()
        sys.stdin.readline()
    _filled.append(_fill(tx, asked))
    return _filled[-1]


def main() -> None:
    cohorts.BATCH = 3
    cohorts._fill = fill
    database = Database(sys.argv[1], pool=2)
    cohorts.route(database, range(100), Path.INFRAI)


main()
