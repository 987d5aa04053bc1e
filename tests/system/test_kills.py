"""kill -9 at every step, of workers and of beat: each hold expires once all the same."""

from pathlib import Path

import pytest

from cli.local.programs import Program, beat
from tests.system.conftest import System
from tests.system.servers import SERVERS, system_on
from tests.system.steps import STEPS

pytestmark = pytest.mark.system


@pytest.mark.parametrize("servers", SERVERS)
def test_workers_killed_at_every_step_leave_every_hold_expired_once(servers: str, tmp_path: Path) -> None:
    with system_on(
        servers, app="tests.system.crashing", environment={"HOLDFAST_TEST_CRASHES": str(tmp_path)}
    ) as running:
        for batch in range(20):
            running.place(10, f"k{batch}", seconds=1)
            running.until(lambda batch=batch: running.expired(f"k{batch}") == 10, "all expired")  # type: ignore[misc]
            if len(list(tmp_path.iterdir())) == len(STEPS):
                break
        assert sorted(file.name for file in tmp_path.iterdir()) == sorted(STEPS), "a worker was never killed"
        running.place(10, "last", seconds=1)
        running.until(lambda: running.expired("last") == 10, "work goes on")
        running.assert_expired_once("last", 10)


def test_beat_killed_is_back_and_ticks_again(running: System) -> None:
    running.until(lambda: running.desk.sql("SELECT ticks FROM sweeps"), "a first tick")
    before = running.stack.pid("beat")
    running.stack.kill("beat")
    running.place(10, "beat", seconds=1)
    running.until(lambda: running.expired("beat") == 10, "all expired")
    assert running.stack.pid("beat") not in {before, None}
    running.assert_expired_once("beat", 10)


def test_a_second_beat_by_mistake_changes_nothing(running: System) -> None:
    folder = running.stack.places.state / "second-beat"
    folder.mkdir()
    running.stack.add(Program("second-beat", beat(folder)))
    running.place(30, "two", seconds=2)
    running.until(lambda: running.expired("two") == 30, "all expired")
    running.stack.stop_program("beat")
    ticks = running.desk.sql("SELECT ticks FROM sweeps")[0][0]
    running.until(lambda: running.desk.sql("SELECT ticks FROM sweeps")[0][0] > ticks + 2, "the second beat ticks too")
    running.stack.start_program("beat")
    running.stack.stop_program("second-beat")
    running.assert_expired_once("two", 30)
    assert running.desk.count("holds", "id LIKE 'two-%' AND claims <> 1") == 0
