"""`holdfast infrai-server`: it says where it is, serves until Ctrl-C, and refuses bad options in one line."""

import json
import signal
import socket
from datetime import timedelta

import pytest
from pydantic import SecretStr

from cli.infrai_server import _key, _pairs
from cli.main import run
from domain.errors import BadInput
from gateways.infrai import Infrai
from gateways.infrai_terms import Outgoing
from settings import settings
from tests.cli.saying import Said, Script, checked


@pytest.fixture
def script() -> Script:
    """It needs no database."""
    return Script("postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(script: Script, stop: signal.Signals) -> None:
    switches = ("--set", "consume_key=messages", "--set", "keys_required=true")
    with script.start("infrai-server", "--port", "0", "--json", *switches, INFRAI_API_KEY="a-key-of-ours") as process:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())
        assert where["key"] == "a-key-of-ours"
        with Infrai(where["url"], SecretStr(where["key"])) as client:
            client.create_queue("q")
            client.publish("q", Outgoing(payload={"n": 1}), intent="a")
            assert len(client.consume("q", most=1, lease=timedelta(seconds=30))) == 1
        process.send_signal(stop)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, b"", b"")


def said(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code and the one line of a command that does not begin to serve."""
    code = run(["infrai-server", *options])
    out, err = capsys.readouterr()
    return checked(code, out, err).code, Said(code, out, err).complaint


def test_a_port_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = f"--port {port}: Address already in use; choose another, or 0 for a free one"
        assert said(capsys, "--port", str(port)) == (1, line)


def test_a_switch_that_is_none_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = said(capsys, "--set", "longest_delay=a week")
    assert (code, line.partition(",")[0]) == (2, "longest_delay: Input should be a valid integer")
    code, line = said(capsys, "--set", "longest_delai=5")
    assert (code, line.partition(";")[0]) == (2, "longest_delai: is no switch")
    assert said(capsys, "--port", "65536")[0] == 2


def test_a_key_that_could_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("short", "with a blank", "mit-Ümlaut"):
        monkeypatch.setenv("INFRAI_API_KEY", key)
        settings.cache_clear()
        with pytest.raises(BadInput, match="INFRAI_API_KEY: must have 8 printable signs or more, and no blank"):
            _key()
    settings.cache_clear()


@pytest.mark.parametrize("words", [["consume_key"], ["a=1", "a=2"]])
def test_a_switch_is_written_once_with_its_value(words: list[str]) -> None:
    with pytest.raises(BadInput, match="is no NAME=VALUE, or names a switch twice"):
        _pairs(words)
