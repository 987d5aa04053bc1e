"""The contract server, running: beside a test or a benchmark, or by itself until it is interrupted."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Self

import uvicorn

from comparison.infrai_server.app import App, Key, Receive, Scope, Send
from comparison.infrai_server.clock import Clock
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.faults import Faults
from comparison.infrai_server.pump import Pump
from comparison.infrai_server.service import Service


@dataclass(slots=True)
class LocalInfrai:
    """A server that runs in this process."""

    url: str
    key: str
    service: Service
    app: App
    pump: Pump

    @classmethod
    def made(cls, url: str, key: str, contract: Contract, clock: Clock) -> Self:
        """One with nothing in it."""
        service = Service(contract, clock, Faults())
        return cls(url, key, service, App(service, [Key(key)]), Pump(service))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What uvicorn calls: the application of the present contract."""
        await self.app(scope, receive, send)

    @property
    def faults(self) -> Faults:
        """Order faults here."""
        return self.service.faults

    def advance(self, seconds: float) -> None:
        """Let time pass at once, and wait until what came due by it was sent."""
        self.service.clock.advance(seconds)
        self.pump.settle()

    def renew(self, contract: Contract | None = None, clock: Clock | None = None) -> None:
        """Begin anew at the same address with the same key: no queue, no job, no fault is left."""
        self.pump.close()
        fresh = self.made(self.url, self.key, contract or Contract(), clock or Clock())
        self.service, self.app, self.pump = fresh.service, fresh.app, fresh.pump


@contextmanager
def running(
    contract: Contract | None = None, *, clock: Clock | None = None, key: str | None = None, port: int = 0
) -> Iterator[LocalInfrai]:
    """A server on loopback, in a thread of this process, gone afterwards. Port 0 takes a free one."""
    with _built(contract or Contract(), clock or Clock(), key, port) as (server, local, listener):
        thread = Thread(target=server.run, args=([listener],), name="infrai-server", daemon=True)
        thread.start()  # the listener takes connections already, so whoever comes first only waits a little
        try:
            yield local
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def prepared(
    contract: Contract, *, key: str | None, port: int
) -> Iterator[tuple[uvicorn.Server, LocalInfrai, socket.socket]]:
    """A server that listens already and is to be run by the caller, with `server.run([socket])`.

    Raises:
        OSError: the port is taken, or may not be used.
    """
    with _built(contract, Clock(), key, port) as built:
        yield built


@contextmanager
def _built(
    contract: Contract, clock: Clock, key: str | None, port: int
) -> Iterator[tuple[uvicorn.Server, LocalInfrai, socket.socket]]:  # fmt: skip
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(512)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        local = LocalInfrai.made(url, key or f"ifr_{secrets.token_hex(16)}", contract, clock)
        config = uvicorn.Config(
            local, lifespan="off", access_log=False, log_config=None, log_level="warning", ws="none",
            interface="asgi3", server_header=False, timeout_keep_alive=60, timeout_graceful_shutdown=2,
        )  # fmt: skip
        try:
            yield uvicorn.Server(config), local, listener
        finally:
            local.pump.close()
