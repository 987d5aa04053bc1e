"""`holdfast sweep-door`: an HTTP door through which a cron service runs sweeps."""

import signal
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cli.context import worker_name
from cli.output import Json, print_json
from db.engine import Database
from domain.errors import HoldfastError
from domain.paths import Path
from settings import settings

if TYPE_CHECKING:
    from web.door import Run

_BACKLOG = 128
_LARGEST_HEAD = 16 * 1024
"""Bytes of a request's head. Of uvicorn's two readers of HTTP only h11 keeps to a limit."""
_LONGEST_STOP = timedelta(seconds=60)


class PortTaken(HoldfastError):
    """The door cannot listen."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("sweep-door")(sweep_door)


def sweep_door(
    host: Annotated[str, typer.Option(help="Where to listen; keep it behind a proxy that speaks TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8799,
    as_json: Json = False,
) -> int:
    """Keep an HTTP door open until Ctrl-C.

    Each authenticated POST runs one bounded sweep, or one tick of the bridge, in this process: a heartbeat from a cron
    service instead of beat.
    """
    import uvicorn  # noqa: PLC0415 - slow to import, as is Celery

    from tasks import logs  # noqa: PLC0415 - the same
    from web.door import Keys, door  # noqa: PLC0415 - the same

    logs.configure(settings())
    keys = Keys(token=settings().door_token, secret=settings().door_secret)
    db = Database(settings().database, statement_timeout=settings().statement_timeout)
    try:
        with socket.create_server((host, port), backlog=_BACKLOG) as listener:
            url = f"http://{host}:{listener.getsockname()[1]}"
            runs = _runs(db)
            if as_json:
                print_json({"url": url, "doors": [f"/{name}" for name in runs]})
            else:
                print(f"open at {url}: POST {', '.join(f'/{name}' for name in runs)}. Ctrl-C closes it.", flush=True)
            config = uvicorn.Config(
                door(keys, runs), lifespan="off", access_log=False, log_config=None, log_level="warning", ws="none",
                server_header=False, timeout_graceful_shutdown=int(_LONGEST_STOP.total_seconds()),
                http="h11", h11_max_incomplete_event_size=_LARGEST_HEAD,
            )  # fmt: skip
            signal.signal(signal.SIGHUP, signal.default_int_handler)
            uvicorn.Server(config).run([listener])
    except KeyboardInterrupt:
        return 0
    except OSError as fault:
        raise PortTaken(f"{host}:{port}: {fault.strerror}; choose another --host or --port") from None
    finally:
        db.close()
    return 0


def _runs(db: Database) -> Mapping[str, "Run"]:
    """What may be run: the sweep, and where there is a bridge, publishing."""
    from tasks.app import policy  # noqa: PLC0415 - Celery is slow to import
    from tasks.bridge import bridge_of, half_a_tick  # noqa: PLC0415 - the same
    from tasks.lane import HereAndNow  # noqa: PLC0415 - the same
    from tasks.sweep import sweep  # noqa: PLC0415 - the same

    def swept() -> dict[str, object]:
        lane = HereAndNow(db, policy(), worker_name())
        done = sweep(db, Path.SWEEP, policy(), lane, apart=settings().tick / 2)
        return {**done.as_data(), "outcomes": lane.tally.as_data()}

    def published() -> dict[str, object]:
        return bridge_of(db, worker_name()).publish(apart=half_a_tick()).as_data()

    return {"sweep": swept, "bridge-publish": published} if settings().has_bridge else {"sweep": swept}
