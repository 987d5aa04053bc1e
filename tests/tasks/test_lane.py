"""A lane's depth, as a process asks for it that lives longer than its broker."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.local.engines import Valkey
from settings import ROOT

_ASKER = """
import sys
from tasks.lane import BrokerUnavailable, depth_of

for _ in sys.stdin:
    try:
        print(depth_of("expiry"), flush=True)
    except BrokerUnavailable:
        print("away", flush=True)
"""


@contextmanager
def started(server: Valkey) -> Iterator[None]:
    process = subprocess.Popen(server.command(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any("ready to accept" in line.lower() for line in process.stdout)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_met_a_broker_that_was_away_asks_it_again_when_it_is_back() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp") as folder:
        server = Valkey(Path(folder) / "data", Path(folder) / "v.sock")
        server.prepare()
        with subprocess.Popen(
            [sys.executable, "-c", _ASKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "HOLDFAST_BROKER_URL": server.url},
        ) as asker:  # fmt: skip
            assert asker.stdin is not None
            assert asker.stdout is not None

            def told() -> str:
                asker.stdin.write("\n")  # type: ignore[union-attr]
                asker.stdin.flush()  # type: ignore[union-attr]
                return asker.stdout.readline().strip()  # type: ignore[union-attr]

            with started(server):
                assert told() == "0"
            assert [told(), told()] == ["away", "away"]
            with started(server):
                assert [told(), told()] == ["0", "0"]
            asker.stdin.close()
