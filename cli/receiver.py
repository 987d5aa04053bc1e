"""The demo's receiver of webhooks. It does what a good one does, and then answers badly where it is told to.

It verifies the raw bytes with the reference package of Standard Webhooks, and knows an event that comes again by its
id. It is a thread of the demo, on loopback, and ends with it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from standardwebhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answers: a status, and for how many seconds it asks to be left alone."""

    status: int
    retry_after: int | None = None


WELL = Reply(204)
BROKEN = Reply(500)
AWAY = Reply(503)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came. `time` is which of its event's requests it was, from 1; `place` is the event's own."""

    path: str
    event_id: str
    verified: bool
    body: bytes
    time: int
    place: int


Behaviour = Callable[[Seen], Reply]
"""What to answer. The event has been taken by then, as where a process dies between its commit and its answer."""


class Receiver:
    """Serves each path with its behaviour. Known: the secret of each path, once its endpoint is made."""

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        self._behaviours = behaviours
        self._secrets: dict[str, str] = {}
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str) -> str:
        """Where an endpoint of this path sends to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def trust(self, path: str, secret: str) -> None:
        """Verify requests to this path with this secret."""
        self._secrets[path] = secret

    def seen(self, path: str) -> list[Seen]:
        """Every request to this path so far, in their order."""
        with self._lock:
            return [request for request in self._seen if request.path == path]

    def hear(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Take one request, and say what to answer."""
        event_id = headers.get("webhook-id", "")
        verified = self._is_genuine(path, headers, body)
        with self._lock:
            earlier = [request for request in self._seen if request.path == path]
            ids = list(dict.fromkeys([*(request.event_id for request in earlier), event_id]))
            time = 1 + sum(request.event_id == event_id for request in earlier)
            request = Seen(path, event_id, verified, body, time, 1 + ids.index(event_id))
            self._seen.append(request)
        return self._behaviours[path](request) if verified else Reply(401)

    def _is_genuine(self, path: str, headers: Mapping[str, str], body: bytes) -> bool:
        try:
            Webhook(self._secrets[path]).verify(body, dict(headers))
        except (KeyError, WebhookVerificationError):
            return False
        return True

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's in here
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = receiver.hear(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
                self.send_response(reply.status)
                if reply.retry_after is not None:
                    self.send_header("Retry-After", str(reply.retry_after))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """The demo tells what came."""

        return Handler
