"""A sweep door on loopback for one run: the door that cron services post to, with what is to be done behind it."""

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

import uvicorn
from pydantic import SecretStr

from web.door import Keys, door


@contextmanager
def heartbeat_door(run: Callable[[], Mapping[str, object]]) -> Iterator[tuple[str, dict[str, str]]]:
    """The door's address and the headers that open it; closed afterwards."""
    token = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = door(Keys(token=SecretStr(token)), {"sweep": run})
        config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, ws="none", server_header=False)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listener],), name="heartbeat-door", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/sweep", {"Authorization": f"Bearer {token}"}
        finally:
            server.should_exit = True
            thread.join()
