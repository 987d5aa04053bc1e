"""`holdfast up`: one at a time, all of it gone afterwards, and back after any crash."""

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import requests

from tests.local.processes import Up, living_in, until

pytestmark = pytest.mark.system

PROGRAMS = ("beat", "flower", "postgres", "valkey", "worker-expiry", "worker-sweeps", "worker-webhooks")


def test_it_comes_up_refuses_a_second_and_leaves_no_process(state: Path, start_up: Callable[..., Up]) -> None:
    up = start_up()
    said = up.wait_until_up()
    assert "Holdfast is up" in said
    assert str(state / "logs") in said
    pids = {program: up.pid(program) for program in PROGRAMS}

    code, complaint = start_up().outcome()
    assert code == 1
    assert complaint == (
        f"holdfast: Holdfast is already running in {state} (process {up.process.pid}); "
        "stop that one, or set HOLDFAST_HOME\n"
    )
    assert {program: up.pid(program) for program in PROGRAMS} == pids
    assert all(psutil.pid_exists(pid) for pid in pids.values())

    assert up.end(signal.SIGTERM) == (0, "")
    assert living_in(state) == []


def test_flower_asks_for_the_login_and_no_command_line_shows_it(state: Path, start_up: Callable[..., Up]) -> None:
    secret = 'a,b:c"d'
    up = start_up(HOLDFAST_FLOWER_USER="ops", HOLDFAST_FLOWER_PASSWORD=secret)
    [address] = re.findall(r"http://127\.0\.0\.1:\d+", up.wait_until_up())
    assert requests.Session().get(f"{address}/tasks", timeout=10).status_code == 401
    assert requests.Session().get(f"{address}/tasks", timeout=10, auth=("ops", secret)).status_code == 200
    assert living_in(state)
    assert not [line for line in living_in(state) if secret in line]
    assert (state / "flower" / "login.py").stat().st_mode & 0o077 == 0
    assert up.end(signal.SIGTERM) == (0, "")


def test_the_vault_key_reaches_every_worker_outlives_a_restart_and_stands_in_no_command_line(
    state: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up()
    up.wait_until_up()
    key = (state / "vault.key").read_text().strip()
    assert psutil.Process(up.pid("worker-webhooks")).environ()["HOLDFAST_VAULT_KEYS"] == key
    assert living_in(state)
    assert not [line for line in living_in(state) if key in line]
    assert up.end(signal.SIGTERM) == (0, "")
    again = start_up()
    again.wait_until_up()
    assert psutil.Process(again.pid("worker-webhooks")).environ()["HOLDFAST_VAULT_KEYS"] == key
    assert again.end(signal.SIGTERM) == (0, "")


def test_of_two_started_at_once_one_wins(state: Path, start_up: Callable[..., Up]) -> None:
    both = [start_up(), start_up()]
    until(60, lambda: any(up.process.poll() is not None for up in both))
    loser, winner = sorted(both, key=lambda up: up.process.poll() is None)
    assert loser.outcome()[0] == 1
    winner.wait_until_up()
    assert winner.end(signal.SIGINT) == (0, "")
    assert living_in(state) == []


def test_killed_it_takes_everything_with_it_and_starts_again_at_once(state: Path, start_up: Callable[..., Up]) -> None:
    first = start_up()
    first.wait_until_up()
    first.end(signal.SIGKILL)
    until(20, lambda: living_in(state) == [])

    second = start_up()
    second.wait_until_up()
    second.end(signal.SIGKILL)
    third = start_up()  # while the second's programs are still ending
    third.wait_until_up()
    assert third.end(signal.SIGTERM) == (0, "")
    assert living_in(state) == []


def test_without_its_supervisor_it_ends_everything_says_so_and_starts_again(
    state: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up()
    up.wait_until_up()
    os.kill(up.pid("supervisord"), signal.SIGKILL)
    code, complaint = up.outcome()
    assert code == 1
    assert complaint.startswith("holdfast: supervisord ended with code -9")
    assert complaint.count("\n") == 1
    assert living_in(state) == []
    again = start_up()
    again.wait_until_up()
    assert again.end(signal.SIGTERM) == (0, "")


def test_orphans_that_do_not_end_are_ended_by_the_next_start(state: Path, start_up: Callable[..., Up]) -> None:
    up = start_up()
    up.wait_until_up()
    orphans = [up.pid("valkey"), up.pid("worker-expiry"), up.pid("postgres")]
    keeper = next(
        child for child in psutil.Process(up.pid("supervisord")).children() if "cli.local.keeper" in child.cmdline()
    )
    for pid in (*orphans, keeper.pid):
        os.kill(pid, signal.SIGSTOP)  # deaf to all but SIGKILL
    for pid in (up.process.pid, keeper.pid, up.pid("supervisord")):
        os.kill(pid, signal.SIGKILL)
    up.outcome()
    assert all(psutil.pid_exists(pid) for pid in orphans)

    again = start_up()
    again.wait_until_up()
    assert not any(psutil.pid_exists(pid) for pid in orphans)
    assert again.end(signal.SIGTERM) == (0, "")
    assert living_in(state) == []


def test_stopped_while_it_starts_it_leaves_nothing(state: Path, start_up: Callable[..., Up]) -> None:
    up = start_up()
    until(60, (state / "pids" / "worker-sweeps.pid").exists)
    assert up.end(signal.SIGTERM) == (0, "")
    assert living_in(state) == []


def test_killed_while_it_starts_it_leaves_nothing(state: Path, start_up: Callable[..., Up]) -> None:
    up = start_up()
    until(60, (state / "pids" / "ping.pid").exists)
    up.end(signal.SIGKILL)
    until(20, lambda: living_in(state) == [])


def test_a_taken_port_is_one_line_and_leaves_nothing(state: Path, start_up: Callable[..., Up]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, complaint = start_up(HOLDFAST_FLOWER_PORT=port).outcome()
    assert code == 1
    assert complaint == (
        f"holdfast: Flower's port {port} cannot be used (Address already in use); "
        "set HOLDFAST_FLOWER_PORT to another, or to 0 for any\n"
    )
    assert living_in(state) == []


def test_data_of_another_postgres_is_one_line_and_is_not_touched(state: Path, start_up: Callable[..., Up]) -> None:
    data = state / "postgres"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("19\n")
    code, complaint = start_up().outcome()
    assert code == 1
    assert complaint.startswith(f"holdfast: {data} is of PostgreSQL 19, and this is 18: dump it ")
    assert complaint.count("\n") == 1
    assert [file.name for file in data.iterdir()] == ["PG_VERSION"]
    assert living_in(state) == []


def test_an_engine_that_does_not_start_is_one_line_with_its_last_words(
    state: Path, start_up: Callable[..., Up]
) -> None:
    folder = state / "valkey" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("no manifest\n")
    code, complaint = start_up().outcome()
    assert code == 1
    assert complaint.startswith("holdfast: valkey ended: ")
    assert "manifest" in complaint
    assert complaint.endswith(f"(log: {state / 'logs' / 'valkey.log'})\n")
    assert living_in(state) == []


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("HOLDFAST_DATABASE_URL", "postgresql://u:secret-word@127.0.0.1:1/x"),
        ("HOLDFAST_BROKER_URL", "redis://:secret-word@127.0.0.1:1/0"),
    ],
)
def test_a_server_that_does_not_answer_is_one_line_without_its_password(
    state: Path, start_up: Callable[..., Up], variable: str, address: str
) -> None:
    code, complaint = start_up(**{variable: address}).outcome()
    assert code == 1
    assert complaint.startswith(f"holdfast: the server of {variable} does not answer (")
    assert complaint.count("\n") == 1
    assert "secret-word" not in complaint
    assert living_in(state) == []
