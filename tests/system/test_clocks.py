"""Workers whose clocks are ten minutes off: the database's clock decides, so every hold expires on time."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.local.programs import local_programs
from tests.system.conftest import System, system

pytestmark = pytest.mark.system

LIBRARY = next(Path("/").glob("usr/*lib*/**/faketime/libfaketime.so.1"), None)


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (Debian: faketime)")
@pytest.mark.parametrize("shift", ["+600", "-600"], ids=["ten minutes ahead", "ten minutes behind"])
def test_workers_with_wrong_clocks_expire_on_time_and_steal_no_lease(shift: str) -> None:
    with system() as running:
        wrong = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        for name in ("worker-sweeps", "worker-expiry"):
            running.stack.stop_program(name)
        for program in local_programs(running.stack.settings, running.stack.places, 0):
            if program.name.startswith("worker-"):
                running.stack.add(replace(program, name=f"wrong-{program.name}", env=wrong))
        running.place(20, "early", seconds=3600)
        running.place(20, "due", seconds=3)
        running.until(lambda: running.expired("due") == 20, "all due holds expired")
        assert running.expired("early") == 0
        assert running.desk.sql("SELECT max(closed_at - expires_at) < interval '5 seconds' FROM holds") == [(True,)]
        assert running.desk.sql("SELECT min(closed_at - expires_at) >= interval '0' FROM holds") == [(True,)]
        assert running.desk.count("holds", "id LIKE 'due-%' AND claims > 1") == 0
        running.assert_expired_once("due", 20)
        _the_clock_was_wrong(running)


def _the_clock_was_wrong(running: System) -> None:
    """The log's own time stamps show that the worker believed in another time."""
    log = running.stack.log("wrong-worker-expiry").read_text()
    stamps = [line.partition('"timestamp": "')[2][:19] for line in log.splitlines() if '"timestamp": "' in line]
    assert stamps, log
    (apart,) = running.desk.sql(
        "SELECT abs(extract(epoch FROM now() - CAST(:stamp AS timestamptz))) > 500", stamp=stamps[-1] + "Z"
    )
    assert apart == (True,)
