"""kill -9 at every step, of workers and of beat: each hold expires once all the same."""

from pathlib import Path

import pytest

from cli.local.programs import Program, beat
from tests.system.conftest import System, system

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    "step",
    [
        "after the claim, before the publish",
        "after the publish",
        "inside the transaction",
        "after the commit, before the ack",
    ],
)
def test_a_worker_killed_at_any_step_leaves_every_hold_expired_once(step: str, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    environment = {"HOLDFAST_TEST_CRASH_AT": step, "HOLDFAST_TEST_CRASHED": str(crashed)}
    with system(app="tests.system.crashing", environment=environment) as running:
        tmp_path.chmod(0o755)
        running.place(40, "k", seconds=1)
        running.until(lambda: running.expired("k") == 40, "all expired")
        assert crashed.exists(), "the worker was never killed"
        running.assert_expired_once("k", 40)


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
    running.stack.stop_program("second-beat")
    running.assert_expired_once("two", 30)
    assert running.desk.sql("""
        SELECT coalesce(sum(n::int), 0) FROM receipts, jsonb_each_text(tally -> 'duplicate') AS t(c, n)
        WHERE message_id IN (SELECT r.message_id FROM effects e JOIN receipts r ON r.id = e.receipt
                             WHERE e.hold_id LIKE 'two-%')
    """) == [(0,)]
