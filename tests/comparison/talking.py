"""Plain HTTP to the contract server, and receivers of what it sends by itself."""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

from comparison.infrai_server.clock import Clock
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.serve import LocalInfrai, running

START = 1_796_083_200.0
"""2026-12-01T00:00:00Z: the frozen clock of every test."""


@dataclass(frozen=True)
class Reply:
    status: int
    envelope: Any

    @property
    def data(self) -> Any:
        assert (self.status, self.envelope["ok"], self.envelope["error"]) == (200, True, None), self
        return self.envelope["data"]

    @property
    def refused(self) -> tuple[int, str]:
        """Status and code."""
        assert self.envelope["ok"] is False, self
        return self.status, self.envelope["error"]["code"]


class Talk:
    """One client without any comfort."""

    def __init__(self, server: LocalInfrai) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {server.key}"

    def __call__(self, path: str, body: Any = None, *, method: str = "POST", key: str | None = None) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.session.request(method, self.server.url + path, json=body, headers=headers, timeout=20)
        return Reply(answer.status_code, answer.json())

    def queue(self, name: str = "q", **fields: Any) -> str:
        assert self("/v1/queue/create", {"name": name, **fields}).data["queue"] == name
        return name

    def publish(self, payload: Any, queue: str = "q", **fields: Any) -> str:
        found: str = self("/v1/queue/publish", {"queue": queue, "payload": payload, **fields}).data["message_id"]
        return found

    def consume(self, queue: str = "q", most: int = 10, lease: int = 30) -> list[Any]:
        """Payloads of what came, whatever the list is called."""
        return [message["payload"] for message in self.messages(queue, most, lease)]

    def messages(self, queue: str = "q", most: int = 10, lease: int = 30) -> list[Any]:
        body = {"queue": queue, "max_messages": most, "visibility_timeout": lease}
        data = self("/v1/queue/consume", body).data
        found: list[Any] = data if isinstance(data, list) else data[self.server.service.contract.consume_key]
        return found

    def ack(self, message_id: str, queue: str = "q") -> Reply:
        return self("/v1/queue/ack", {"queue": queue, "message_id": message_id})

    def nack(self, message_id: str, queue: str = "q", **fields: Any) -> Reply:
        return self("/v1/queue/nack", {"queue": queue, "message_id": message_id, **fields})

    def stats(self, queue: str = "q") -> tuple[int, int, int, int]:
        """Visible, in flight, delayed, dead."""
        data = self(f"/v1/queue/stats/{queue}", method="GET").data
        return data["visible"], data["in_flight"], data["delayed"], data["dlq"]


@cache
def house() -> LocalInfrai:
    """The one server of a test run; each test begins it anew, since to stop one takes its time."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running())


@contextmanager
def talking(**switches: Any) -> Iterator[Talk]:
    """A server with this contract, at a frozen clock, and a client of it."""
    server = house()
    server.renew(Contract(**switches), Clock(START))
    talk = Talk(server)
    try:
        yield talk
    finally:
        talk.session.close()
        server.faults.clear()


@dataclass(frozen=True)
class Heard:
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Ear:
    """A receiver on loopback that answers each request as it is told."""

    def __init__(self, answer: Callable[[int], tuple[int, bytes]]) -> None:
        self.heard: list[Heard] = []
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                ear.heard.append(Heard(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, text = answer(len(ear.heard))
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"


@contextmanager
def ear(answer: Callable[[int], tuple[int, bytes]] = lambda _: (204, b"")) -> Iterator[Ear]:
    """One; `answer` is told which request it is, from 1."""
    found = Ear(answer)
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
