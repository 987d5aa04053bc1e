"""`holdfast compare` as it is typed: its answers, its files, its exit codes, and every misuse in one line."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from cli import main
from comparison.experiment import Plan
from settings import ROOT, settings

EXAMPLE = str(ROOT / "examples" / "workload.toml")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs `holdfast compare` in this process: exit code, standard output, standard error."""
    configured = structlog.get_config()
    monkeypatch.delenv("HOLDFAST_INFRAI_URL", raising=False)
    settings.cache_clear()

    def command(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(("compare", *arguments))
        out, err = capfd.readouterr()
        return code, out, err

    yield command
    structlog.configure(**configured)
    settings.cache_clear()


@pytest.mark.system
def test_a_run_writes_its_report_and_leaves_no_folder(
    compare: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comparison.experiment.Plan", partial(Plan, burst=20))
    folder = tmp_path / "new" / "report"
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # where Postgres, as another user, may enter
        Path(temporary).chmod(0o755)
        with monkeypatch.context() as only_here:
            only_here.setattr("tempfile.tempdir", temporary)
            code, out, err = compare("--candidate", "sweep", "--seed", "7", "--report", str(folder), "--json")
        left = list(Path(temporary).iterdir())
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["seed"], told["runs"], told["failed"]) == (7, 1, False)
    assert {result["candidate"] for result in told["results"]} == {"sweep"}
    lacking = {result["case"] for result in told["results"] if result["status"] == "not offered"}
    assert lacking == {"withheld", "missing", "malformed", "payload", "delay"}
    assert [result["case"] for result in told["results"] if result["status"] not in {"pass", "not offered"}] == []
    assert told["candidates"][0]["violations"] == []
    assert json.loads((folder / "report.json").read_text()) == told
    assert "<!doctype html>" in (folder / "report.html").read_text()
    assert left == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--candidate", "kafka"),
            "--candidate: 'kafka' is none; use one of celery-redis, celery-rabbitmq, infrai, sweep",
        ),
        (
            ("--runs", "0"),
            "--runs: must be greater than or equal to 1; see `holdfast compare --help`",
        ),
        (
            ("--runs", "many"),
            ("--runs: must be a valid integer; see `holdfast compare --help`"),
        ),
        (
            ("--seed", "-1"),
            "--seed: must be greater than or equal to 0; see `holdfast compare --help`",
        ),
        (("--redis", "http://:pass-word@x"), "--redis: must begin with redis:// or rediss:// or redis+socket://"),
        (("--rabbitmq", "redis://:pass-word@x"), "--rabbitmq: must begin with amqp:// or amqps://"),
        (("--report", __file__), f"--report: {__file__!r} is no folder"),
        (("--report", ""), "--report: '' is no folder"),
        (("--turbo",), "--turbo: there is no such option; see `holdfast compare --help`"),
        (("cots",), "there is no command 'cots'; did you mean 'cost'? See `holdfast compare --help`"),
        (("cost",), "--workload: is missing; see `holdfast compare cost --help`"),
    ],
)
def test_misuse_is_one_line_starts_nothing_and_repeats_no_address(
    compare: Command, arguments: tuple[str, ...], line: str
) -> None:
    assert compare(*arguments) == (2, "", f"holdfast: {line}\n")


def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(compare: Command, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    said = f"holdfast: {tmp_path / 'report.html'}: Is a directory; make it usable and try again\n"
    assert compare("--candidate", "sweep", "--report", str(tmp_path)) == (1, "", said)


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_tidies_up(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # where Postgres, as another user, may enter
        Path(temporary).chmod(0o755)
        hearing = (  # whoever runs the tests may have them ignored
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
        )
        script = f"{hearing}; from cli.main import main; main()"
        with subprocess.Popen(
            [sys.executable, "-c", script, "compare", "--candidate", "infrai"], cwd=ROOT, text=True,
            env={**os.environ, "TMPDIR": temporary}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as run:  # fmt: skip
            assert run.stderr is not None
            assert run.stderr.readline() == "Infrai: Both delivery orders: pass\n"
            run.send_signal(number)
            assert run.stderr.read().splitlines()[-1] == "holdfast: interrupted"
            assert run.wait(60) == 130
        assert list(Path(temporary).iterdir()) == []


def test_costs_of_the_example_are_told_and_what_is_unknown_is_said(compare: Command) -> None:
    code, out, err = compare("cost", "--workload", EXAMPLE)
    assert (code, err) == (0, "")
    table = [line for line in out.splitlines() if line[:1] in "┏┃┡│└"]
    assert {len(line) for line in table} == {80}
    assert "celery-redis: unknown are gb_month (at least 43.02 a month)" in out
    assert "infrai: unknown are publish, consume, ack, cron_run, gb_month\n" in out
    assert "celery-redis.command: 0.20 USD per 100,000, https://upstash.com/pricing/redis read 2026-11-09" in out


def test_prices_of_ones_own_make_a_sum_known(compare: Command, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[storage.gb_month]\nprice = "0.115"\ncurrency = "USD"\n')
    code, out, err = compare("cost", "--workload", EXAMPLE, "--prices", str(mine), "--json")
    assert (code, err) == (0, "")
    found = {one["candidate"]: one for one in json.loads(out)["candidates"]}
    assert found["celery-redis"]["month"] == "43.696064"
    assert found["celery-redis"]["per_million_by_duplicates"] == "1.86072"
    assert found["infrai"]["month"] == "unknown"


def test_a_file_that_is_not_there_or_no_text_is_named(compare: Command, tmp_path: Path) -> None:
    missing, binary = tmp_path / "none.toml", tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    said = f"holdfast: {missing}: No such file or directory; make it usable and try again\n"
    assert compare("cost", "--workload", str(missing)) == (1, "", said)
    assert compare("cost", "--workload", str(binary)) == (2, "", f"holdfast: {binary}: is no text in UTF-8\n")
    assert compare("cost", "--workload", EXAMPLE, "--prices", str(missing)) == (1, "", said)
