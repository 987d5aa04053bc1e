"""The stack restarts what exits, takes up more programs, and runs in folders of any name."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from cli.local import answers, families
from cli.local.engines import postgres_user
from cli.local.places import AlreadyRunning
from cli.local.programs import LANES, Program, worker
from cli.local.stack import Stack
from settings import ROOT, Settings
from tests.local.processes import living_in, until

pytestmark = pytest.mark.system

BACK_WITHIN = 30


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A whole stack, in a folder with blanks and signs in its name."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with Stack(Settings(home=Path(folder) / "it's my state")) as stack:
            yield stack
        assert living_in(Path(folder)) == []


@pytest.mark.parametrize(
    "program", ["beat", "flower", "postgres", "valkey", "worker-expiry", "worker-sweeps", "worker-webhooks"]
)
def test_a_killed_program_is_back_by_itself_and_leaves_no_orphan(stack: Stack, program: str) -> None:
    pid = stack.pid(program)
    assert pid is not None
    family = psutil.Process(pid).children(recursive=True)
    os.kill(pid, signal.SIGKILL)  # the main process alone: its children are the stack's to end
    until(BACK_WITHIN, lambda: stack.pid(program) not in {None, pid})
    until(BACK_WITHIN, lambda: not any(child.is_running() for child in family))
    stack.ready()
    until(BACK_WITHIN, lambda: answers.postgres(stack.database_url) == "")


def test_a_child_that_outlives_its_program_is_ended_before_that_is_back(stack: Stack) -> None:
    stack.add(Program("parent", (sys.executable, "-c", "import os, threading; os.fork(); threading.Event().wait()")))
    pid = stack.pid("parent")
    assert pid is not None
    until(BACK_WITHIN, lambda: psutil.Process(pid).children())
    [child] = psutil.Process(pid).children()
    os.kill(pid, signal.SIGKILL)
    until(BACK_WITHIN, lambda: stack.pid("parent") not in {None, pid})
    until(BACK_WITHIN, lambda: not child.is_running())
    stack.stop_program("parent")
    assert not families.is_alive(stack.places.pid_file("parent"))


def test_killed_with_its_children_a_worker_is_back(stack: Stack) -> None:
    pid = stack.pid("worker-expiry")
    stack.kill("worker-expiry")
    until(BACK_WITHIN, lambda: stack.pid("worker-expiry") not in {None, pid})
    stack.ready()


def test_a_stopped_program_stays_stopped_until_it_is_started(stack: Stack) -> None:
    stack.stop_program("worker-sweeps")
    assert not stack.is_running("worker-sweeps")
    assert not families.is_alive(stack.places.pid_file("worker-sweeps"))
    stack.start_program("worker-sweeps")
    assert stack.is_running("worker-sweeps")
    stack.ready()


@pytest.mark.parametrize("service", ["worker-sweeps", "worker-webhooks", "beat"])
def test_the_deployments_health_check_is_green_while_it_runs_and_red_when_it_does_not(
    stack: Stack, service: str, tmp_path: Path
) -> None:
    _, check = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][service]["healthcheck"]["test"]
    check = check.replace("$$", "$").replace("/run/beat", f"{tmp_path}/beat/")
    environment = {**stack.environment, "HOSTNAME": socket.gethostname()}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    (tmp_path / "beat").symlink_to(stack.places.scratch)

    def is_green() -> bool:
        return (
            subprocess.run(["sh", "-c", check], check=False, cwd=ROOT, env=environment, capture_output=True).returncode
            == 0
        )

    until(BACK_WITHIN, is_green)
    stack.stop_program(service)
    if service == "beat":
        for file in stack.places.scratch.iterdir():
            os.utime(file, (0, 0))  # as if it had stopped long ago
    assert not is_green()
    stack.start_program(service)
    stack.ready()


def test_a_program_that_keeps_failing_is_tried_again_without_end(stack: Stack, tmp_path: Path) -> None:
    may_run = tmp_path / "may run"
    code = "import pathlib, sys, threading; pathlib.Path(sys.argv[1]).exists() and threading.Event().wait()"
    stack.add(Program("stubborn", (sys.executable, "-c", code, str(may_run))))
    given_up = stack._supervisor.control.states
    until(BACK_WITHIN, lambda: given_up()["stubborn"] == "FATAL")
    until(BACK_WITHIN, lambda: given_up()["stubborn"] == "STARTING")
    until(BACK_WITHIN, lambda: given_up()["stubborn"] == "FATAL")
    may_run.touch()
    until(BACK_WITHIN, lambda: given_up()["stubborn"] == "RUNNING")
    stack.stop_program("stubborn")


def test_an_added_program_gets_the_stacks_environment_and_its_own(stack: Stack) -> None:
    code = "import threading; threading.Event().wait()"
    env = {"TWO_WORDS": "a 100 % 'quoted' #value; \"x\""}
    stack.add(Program("another", (sys.executable, "-c", code), env=env, autostart=False))
    assert not stack.is_running("another")
    stack.start_program("another")
    pid = stack.pid("another")
    assert pid is not None
    until(BACK_WITHIN, lambda: psutil.Process(pid).cmdline()[-1] == code and "-S" not in psutil.Process(pid).cmdline())
    seen = psutil.Process(pid).environ()
    assert seen["TWO_WORDS"] == env["TWO_WORDS"]
    assert seen["HOLDFAST_DATABASE_URL"] == stack.database_url
    assert seen["HOLDFAST_BROKER_URL"] == stack.broker_url
    assert seen["HOLDFAST_HOME"] == str(stack.places.state)
    stack.stop_program("another")
    assert not psutil.pid_exists(pid)


def test_a_second_stack_in_the_folder_is_refused_and_changes_nothing(stack: Stack) -> None:
    pids = {program.name: stack.pid(program.name) for program in stack._programs}
    second = Stack(Settings(home=stack.places.state))
    with pytest.raises(AlreadyRunning) as refusal:
        second.start()
    assert refusal.value.pid == os.getpid()
    second.stop()
    assert {program.name: stack.pid(program.name) for program in stack._programs} == pids


def test_children_decide_as_the_settings_do(stack: Stack, state: Path) -> None:
    chosen = Settings(home=state, tick="0.25s", queue_prefix="x.", flower_user="ops", flower_password="p,w:d")
    environment = Stack(chosen).environment
    given = {name.removeprefix("HOLDFAST_").lower(): value for name, value in environment.items() if "HOLDFAST" in name}
    again = Settings(**given)  # type: ignore[arg-type]
    assert (again.tick, again.queue_prefix, again.flower_user) == (chosen.tick, "x.", "ops")
    assert again.flower_password.get_secret_value() == "p,w:d"
    assert again.state == state


def test_a_path_too_long_for_a_socket_will_do(state: Path) -> None:
    deep = state / ("d" * 60) / ("e" * 60)
    workers = [Program("worker-sweeps", worker(LANES[0]), node="sweeps@%h")]
    with Stack(Settings(home=deep), programs=workers) as stack:
        assert stack.places.sockets.parent == Path("/tmp")
        assert stack.is_running("worker-sweeps")
    assert living_in(deep) == []


def test_a_postmaster_pid_that_names_a_stranger_does_not_keep_it_down(state: Path) -> None:
    with Stack(Settings(home=state), programs=()):
        lines = (state / "postgres" / "postmaster.pid").read_text().split("\n")
    with subprocess.Popen(["sleep", "300"], user=postgres_user()) as stranger, ExitStack() as afterwards:
        afterwards.callback(stranger.kill)
        (state / "postgres" / "postmaster.pid").write_text("\n".join([str(stranger.pid), *lines[1:]]))
        with Stack(Settings(home=state), programs=()) as stack:
            assert stack.is_running("postgres")


def test_a_data_folder_half_made_is_made_anew(state: Path) -> None:
    unfinished = state / "postgres.unfinished-1"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with Stack(Settings(home=state), programs=()) as stack:
        assert stack.is_running("postgres")
    assert not unfinished.exists()
