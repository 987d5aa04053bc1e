"""Both stand-ins on one event loop, in a thread of their own."""

import asyncio
import threading
from types import TracebackType
from typing import Self

from cli.stand_ins.mail import MailServer
from cli.stand_ins.providers import Providers, Talk


class StandIns:
    """They listen on free ports of loopback for as long as the context lasts."""

    def __init__(self, mail: MailServer | None = None, providers: Providers | None = None) -> None:
        self.mail = mail or MailServer()
        self.providers = providers or Providers()
        self.mail_port = 0
        self.api_port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-ins", daemon=True)

    @property
    def url(self) -> str:
        """Each provider's base URL."""
        return f"http://127.0.0.1:{self.api_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._hush(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        loop = self._loop
        mail = await loop.create_server(lambda: self.mail.protocol(loop), "127.0.0.1", 0, backlog=256)
        api = await loop.create_server(lambda: Talk(self.providers, loop), "127.0.0.1", 0, backlog=256)
        self._servers = (mail, api)
        self.mail_port, self.api_port = (server.sockets[0].getsockname()[1] for server in self._servers)

    async def _hush(self) -> None:
        """Listen no more, and end what is under way."""
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
