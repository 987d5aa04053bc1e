"""The installed script among other programs: pipes that break, streams that are full or closed, Ctrl-C."""

import signal
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from settings import ROOT
from tests.cli.saying import SCRIPT, Script, checked
from tests.helpers import Desk, fill, wait_for_lock

MANY = [f"h-{number:04}" for number in range(2000)]
"""More holds than a pipe holds of them, in either form."""


def test_the_script_answers_and_exits_as_the_command_does(script: Script, desk: Desk) -> None:
    placed = script("place", "h", "--resource", "Loge Süd", "--customer", "Ünal", "--for", "1h", "--json")
    assert (placed.code, placed.err) == (0, "")
    assert placed.data == desk.read("h").as_data()
    assert script("show", "none").code == 1
    assert script("show").code == 2


@pytest.fixture
def many(desk: Desk) -> None:
    with desk.database.transaction() as tx:
        fill(tx, MANY, deadline=datetime(2031, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["a table", "JSON"])
def test_a_reader_that_goes_away_is_no_error_to_tell(script: Script, many: None, form: Sequence[str]) -> None:
    with script.start("list", "--limit", "10000", *form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"id":"h-0000"' if form else b"id ")
        process.stdout.close()
        assert process.wait(20) in ({1} if form else {0, 1})  # of one long write cut short, Python may not be told
        assert process.stderr.read() == b""


def test_a_reader_that_never_came_is_no_error_to_tell(script: Script) -> None:
    with script.start("--help") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["a table", "JSON"])
def test_a_full_disk_under_the_answer_is_told_in_one_line(desk: Desk, address: str, form: Sequence[str]) -> None:
    desk.placed("h")
    with Path("/dev/full").open("wb") as full:
        said = subprocess.run(
            [SCRIPT, "list", *form], cwd=ROOT, env={"HOLDFAST_DATABASE_URL": address},
            stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    line = b"holdfast: the answer cannot be written (No space left on device); see where standard output goes\n"
    assert (said.returncode, said.stderr) == (1, line)


def test_a_closed_standard_output_stops_nothing(desk: Desk, address: str) -> None:
    command = f'exec "{SCRIPT}" place h --resource seat --customer acme --for 1h >&-'
    said = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, env={"HOLDFAST_DATABASE_URL": address},
        stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stderr) == (0, b"")
    assert desk.read("h").counts


def test_ctrl_c_ends_a_long_command_with_one_line_and_exit_130(script: Script, desk: Desk) -> None:
    with desk.database.transaction() as other:
        other.exec_driver_sql("LOCK TABLE holds")
        with script.start("reconcile") as process:
            with desk.database.transaction() as watcher:
                wait_for_lock(watcher)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert checked(process.returncode, out.decode(), err.decode()) == (130, "", "holdfast: interrupted\n")


def test_ctrl_c_ends_apply_while_it_waits_for_a_line(script: Script, desk: Desk) -> None:
    with script.start("apply") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hello\n")
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert checked(process.returncode, out.decode(), err.decode()) == (130, "", "holdfast: interrupted\n")


def test_a_bad_setting_is_told_by_its_name_before_anything_else(script: Script) -> None:
    line = "HOLDFAST_TICK: duration: 'soon' is no duration; write it like 90s, 30m, 1h30m or 2d"
    for command in (("sweep", "--here"), ("list",)):
        assert script(*command, HOLDFAST_TICK="soon") == (1, "", f"holdfast: {line}\n")
