"""The sweep door: whoever may not come in changes nothing, and whoever comes twice changes nothing more."""

import hashlib
import hmac
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

import pytest
import requests
import uvicorn
from pydantic import SecretStr
from sqlalchemy.exc import OperationalError

from domain.errors import BadInput
from web.door import LARGEST_BODY, Keys, door

TOKEN = "a token of the test"
SECRET = "a secret of the test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
KEYS = Keys(token=SecretStr(TOKEN), secret=SecretStr(SECRET))


class Runs:
    """A run that counts itself, and waits or fails where a test says so."""

    def __init__(self) -> None:
        self.count = 0
        self.started, self.go_on = Event(), Event()
        self.go_on.set()
        self.fails: Exception | None = None

    def __call__(self) -> Mapping[str, object]:
        self.count += 1
        self.started.set()
        self.go_on.wait(30)
        if self.fails is not None:
            raise self.fails
        return {"run": self.count}


@contextmanager
def listening(keys: Keys, run: Callable[[], Mapping[str, object]]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            door(keys, {"sweep": run}), lifespan="off", access_log=False, log_config=None, ws="none"
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def url(runs: Runs) -> Iterator[str]:
    with listening(KEYS, runs) as address:
        yield f"{address}/sweep"


def signed(body: bytes, secret: str = SECRET, prefix: str = "") -> dict[str, str]:
    return {"X-Infrai-Signature": prefix + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def post(url: str, body: bytes = b"{}", *, headers: dict[str, str] = BEARER) -> requests.Response:
    with requests.Session() as session:
        return session.post(url, data=body, headers=headers, timeout=20)


def test_the_token_or_the_signature_of_the_raw_body_opens_it(url: str, runs: Runs) -> None:
    body = b'{ "any": "thing" }'
    for number, headers in enumerate((BEARER, signed(body), signed(body, prefix="sha256=")), start=1):
        answer = post(url, body, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"already_running": False, "run": number})
    assert runs.count == 3


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"X-Infrai-Signature": ""},
        {"X-Infrai-Signature": "sha256="},
        {"X-Infrai-Signature": "\xe9" * 64},
        signed(b"{}", "another secret of the test"),
        signed(b"{ }"),
    ],
    ids=repr,
)
def test_whoever_does_not_fit_runs_nothing(url: str, runs: Runs, headers: dict[str, str]) -> None:
    answer = post(url, headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {"error": "the token or the signature does not fit"}
    assert runs.count == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/sweep", 405),
        ("PUT", "/sweep", 405),
        ("POST", "/", 404),
        ("POST", "/sweep/x", 404),
        ("POST", "/sweep/", 404),
        ("DELETE", "/sweep", 405),
        ("OPTIONS", "/sweep", 405),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("POST", "/bridge-publish", 404),
    ],
)
def test_another_way_in_is_no_way_in(url: str, runs: Runs, method: str, path: str, status: int) -> None:
    with requests.Session() as session:
        answer = session.request(
            method, url.removesuffix("/sweep") + path, headers=BEARER, timeout=20, allow_redirects=False
        )
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert runs.count == 0


def test_a_body_of_any_bytes_is_known_by_the_signature_of_these_bytes(url: str, runs: Runs) -> None:
    body = b"\xff\xfe\x00 no text \x80"
    assert post(url, body, headers=signed(body)).status_code == 200
    assert post(url, body.decode("latin-1").encode(), headers=signed(body)).status_code == 401
    assert runs.count == 1


def test_a_call_that_breaks_off_runs_nothing_and_is_no_defect(
    url: str, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = url.removeprefix("http://").removesuffix("/sweep").split(":")
    head = f"POST /sweep HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 20\r\n\r\n"
    for _ in range(3):
        with socket.create_connection((host, int(port))) as line:
            line.sendall(head.encode() + b"{}")
    assert post(url).json() == {"already_running": False, "run": 1}
    assert runs.count == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_body_that_does_not_come_is_not_waited_for(url: str, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.door._BODY_WITHIN", 0.2)

    def stalling() -> Iterator[bytes]:
        yield b"{"
        Event().wait(1)

    with requests.Session() as session:
        assert session.post(url, data=stalling(), headers=BEARER, timeout=20).status_code == 408
    assert runs.count == 0


def test_a_giant_body_is_not_taken_however_it_comes(url: str, runs: Runs) -> None:
    body = b"x" * (LARGEST_BODY + 1)
    assert post(url, body).status_code == 413

    def drip() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1024

    with requests.Session() as session:
        assert session.post(url, data=drip(), headers=BEARER, timeout=20).status_code == 413
    assert runs.count == 0
    assert post(url, b"x" * LARGEST_BODY).status_code == 200


def test_the_second_of_two_at_once_returns_at_once_and_the_third_runs(url: str, runs: Runs) -> None:
    runs.go_on.clear()
    first: list[object] = []
    thread = Thread(target=lambda: first.append(post(url).json()))
    thread.start()
    assert runs.started.wait(20)
    assert post(url).json() == {"already_running": True}
    runs.go_on.set()
    thread.join()
    assert first == [{"already_running": False, "run": 1}]
    assert post(url).json() == {"already_running": False, "run": 2}


@pytest.mark.parametrize(
    ("fault", "answered"),
    [
        (OperationalError("SELECT 1", None, Exception("secret")), (503, "the database is not available; try again")),
        (BadInput("INFRAI_API_KEY", "is empty"), (503, "INFRAI_API_KEY: is empty")),
        (RuntimeError("secret text"), (500, "this is a defect of holdfast; see its log")),
    ],
    ids=["database", "ours", "defect"],
)
def test_a_failure_is_one_line_without_a_traceback_and_the_door_stays_usable(
    url: str, runs: Runs, fault: Exception, answered: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    runs.fails = fault
    answer = post(url)
    assert (answer.status_code, json.loads(answer.content)["error"]) == answered
    assert "Traceback" not in caplog.text
    assert "secret" not in caplog.text
    runs.fails = None
    assert post(url).json() == {"already_running": False, "run": 2}


@pytest.mark.parametrize(
    ("token", "secret", "field"),
    [
        ("", "", "HOLDFAST_DOOR_TOKEN"),
        ("short", "", "HOLDFAST_DOOR_TOKEN"),
        (TOKEN, "é" * 20, "HOLDFAST_DOOR_SECRET"),
        (f"{TOKEN}\n", "", "HOLDFAST_DOOR_TOKEN"),
        (f" {TOKEN}", "", "HOLDFAST_DOOR_TOKEN"),
        (TOKEN, f"{SECRET}\x00", "HOLDFAST_DOOR_SECRET"),
    ],
)
def test_a_door_without_a_key_that_is_hard_to_guess_does_not_open(token: str, secret: str, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        Keys(token=SecretStr(token), secret=SecretStr(secret))
    assert refused.value.field == field
    assert not secret or secret not in str(refused.value)


def test_a_key_that_is_not_set_opens_nothing() -> None:
    only_secret = Keys(secret=SecretStr(SECRET))
    assert not only_secret.fit({"Authorization": "Bearer "}, b"")
    assert not only_secret.fit({"Authorization": f"Bearer {TOKEN}"}, b"")
    only_token = Keys(token=SecretStr(TOKEN))
    assert not only_token.fit({"X-Infrai-Signature": hmac.new(b"", b"", hashlib.sha256).hexdigest()}, b"")
