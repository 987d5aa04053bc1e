"""A receiver on loopback that behaves as it is told: well, badly, or like nothing that speaks HTTP.

Run as a program it serves every behaviour of `HOSTILE` by path, and prints its port.
"""

import gzip
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat


@dataclass
class Request:
    """What came, byte for byte."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Talk:
    """One connection, from the receiver's side."""

    sock: socket.socket
    over: threading.Event
    left: bytes = b""

    def hear(self) -> Request:
        """Read one request; EOFError when there is none."""
        while b"\r\n\r\n" not in self.left:
            self._more()
        head, _, self.left = self.left.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(text.split(": ", 1) for text in lines)
        length = int(headers.get("Content-Length", "0"))
        while len(self.left) < length:
            self._more()
        body, self.left = self.left[:length], self.left[length:]
        return Request(line, headers, body)

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self.left += data

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.sock.sendall(data)

    def drip(self, data: bytes, every: float) -> None:
        """One byte at a time."""
        for byte in data:
            self.say(bytes([byte]))
            if self.over.wait(every):
                return

    def hang(self) -> None:
        """Do nothing until the test is over or the other side has gone."""
        self.sock.settimeout(0.05)
        while not self.over.is_set():
            try:
                if not self.sock.recv(1):
                    return
            except TimeoutError:
                continue

    def reset(self) -> None:
        """Break off with RST, as a machine that fails does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


Behaviour = Callable[[Talk, Request], None]
"""What to do about one request; it may say anything."""


@dataclass
class Receiver:
    """A server on loopback; each connection has its thread."""

    behave: Behaviour
    tls: ssl.SSLContext | None = None
    greet: Callable[[Talk], None] | None = None
    """What to do with a connection instead of hearing requests, handshake included."""
    connections: int = 0
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self.finished = threading.Semaphore(0)
        """One more for each connection that was closed from here."""
        self._talks: list[Talk] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port: int = self._listener.getsockname()[1]
        self.peer = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if self.tls else 'http'}://localhost:{self.port}/hook"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        self._speak(sock)
        self.finished.release()

    def _speak(self, sock: socket.socket) -> None:
        with suppress(OSError, EOFError), sock:
            if self.greet is not None:
                self.greet(Talk(sock, self._over))
                return
            with self.tls.wrap_socket(sock, server_side=True) if self.tls else sock as spoken:
                self._converse(Talk(spoken, self._over))

    def _converse(self, talk: Talk) -> None:
        self._talks.append(talk)
        while not self._over.is_set():
            request = talk.hear()
            self.requests.append(request)
            self.behave(talk, request)

    def close(self) -> None:
        """End every connection, and wait for the threads."""
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for talk in self._talks:
            with suppress(OSError):
                talk.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(12)


def answer(status: int = 200, body: bytes = b"ok", *headers: str) -> bytes:
    """A whole, honest answer."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def saying(data: bytes) -> Behaviour:
    """Answer with these bytes, keep the connection."""
    return lambda talk, _: talk.say(data)


def saying_last(data: bytes) -> Behaviour:
    """Answer with these bytes and close."""

    def behave(talk: Talk, _: Request) -> None:
        talk.say(data)
        raise EOFError

    return behave


def flooding(start: bytes, block: bytes) -> Behaviour:
    """Say this for ever."""

    def behave(talk: Talk, _: Request) -> None:
        talk.say(start)
        for part in repeat(block):
            talk.say(part)

    return behave


BOMB = gzip.compress(b"0" * 50_000_000, 9)
"""49 KB that become 50 MB."""

HOSTILE: dict[str, Behaviour] = {
    "long-header-line": saying(answer(200, b"ok", "X: " + "h" * 70_000)),
    "many-headers": saying(answer(200, b"ok", *(f"X-{n}: {'h' * 1000}" for n in range(70)))),
    "endless-headers": flooding(b"HTTP/1.1 500 Oh\r\n", b"X: " + b"h" * 60_000 + b"\r\n"),
    "endless-interim": flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "endless-body": flooding(b"HTTP/1.1 500 Oh\r\n\r\n", b"b" * 60_000),
    "endless-line": flooding(b"", b"HTTP/1.1 2" * 6000),
    "endless-chunk": flooding(b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n", b"1" * 60_000),
    "endless-trailers": flooding(
        b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: " + b"t" * 60_000 + b"\r\n"
    ),
    "bomb": saying_last(answer(200, BOMB, "Content-Encoding: gzip")),
    "redirect": flooding(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", b"b" * 60_000),
    "cookies": saying(answer(500, b"no", *(f"Set-Cookie: c{n}={'v' * 500}" for n in range(90)))),
    "garbage": saying_last(bytes(range(256)) * 200),
}


def _by_path(talk: Talk, request: Request) -> None:
    HOSTILE[request.line.split()[1].strip("/")](talk, request)


if __name__ == "__main__":
    server = Receiver(_by_path)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.close()
