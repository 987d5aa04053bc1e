"""The sweep door: a cron service's heartbeat. One authenticated POST runs one bounded sweep, here, and tells the run.

It is safe to open twice, late or by several at once: the sweep's own row lets one tick through, and what it does is
guarded as every expiry is.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import SecretStr
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from domain.errors import BadInput, HoldfastError
from domain.infrai import is_signed

log = structlog.get_logger(__name__)

LARGEST_BODY = 64 * 1024
"""Bytes. A cron service posts a small payload; nothing in it is read but for its signature."""
_BODY_WITHIN = 10.0
"""Seconds a body may take to arrive."""
SHORTEST_SECRET = 16

Run = Callable[[], Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What opens the door: a bearer token, a secret that signs bodies, or either."""

    token: SecretStr = field(default=SecretStr(""))
    secret: SecretStr = field(default=SecretStr(""))

    def __post_init__(self) -> None:
        given = {"HOLDFAST_DOOR_TOKEN": self.token, "HOLDFAST_DOOR_SECRET": self.secret}
        values = {name: key.get_secret_value() for name, key in given.items() if key.get_secret_value()}
        if not values:
            raise BadInput("HOLDFAST_DOOR_TOKEN", "is not set, nor HOLDFAST_DOOR_SECRET; a door needs one of them")
        for name, value in values.items():
            if len(value) < SHORTEST_SECRET or not value.isascii():
                raise BadInput(name, f"must have {SHORTEST_SECRET} ASCII characters or more")
            if not value.isprintable() or value != value.strip():
                raise BadInput(
                    name, "has a line break or a blank at its end, or a sign that no header may hold; cut it off"
                )

    def fit(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether this call may come in; compared in constant time, and a key that is not set opens nothing."""
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        token, secret = self.token.get_secret_value(), self.secret.get_secret_value()
        bearer = scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
        signed = is_signed(secret, body, headers.get("X-Infrai-Signature", ""))
        return (bool(token) and bearer) or (bool(secret) and signed)


class _Room:
    """One run of a kind at a time in this process."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._taken = Lock()

    def enter(self) -> Mapping[str, object]:
        """The run; or at once that one is under way."""
        if not self._taken.acquire(blocking=False):
            return {"already_running": True}
        try:
            return {"already_running": False, **self._run()}
        finally:
            self._taken.release()


def door(keys: Keys, runs: Mapping[str, Run]) -> ASGIApp:
    """The application: `POST /NAME` for each of these runs, and nothing else."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for name, run in runs.items():
        app.add_api_route(f"/{name}", _endpoint(keys, name, _Room(run)), methods=["POST"], response_model=None)
    app.add_exception_handler(HTTPException, _refused)
    return app


def _endpoint(keys: Keys, name: str, room: _Room) -> Callable[[Request], object]:
    async def answer(request: Request) -> JSONResponse:
        body = await _body(request)
        if not keys.fit(request.headers, body):
            log.warning("door.refused", door=name)
            raise HTTPException(401, "the token or the signature does not fit")
        try:
            return JSONResponse(dict(await run_in_threadpool(room.enter)))
        except (DBAPIError, PoolTimeout) as fault:
            log.warning("door.database_unavailable", door=name, fault=type(fault).__name__)
            raise HTTPException(503, "the database is not available; try again") from None
        except HoldfastError as fault:
            log.warning("door.failed", door=name, error=str(fault))
            raise HTTPException(503, str(fault)) from None
        except Exception as fault:  # noqa: BLE001 - a defect: its kind is logged; a traceback might hold anything
            log.error("door.defect", door=name, fault=type(fault).__name__)  # noqa: TRY400 - the same
            raise HTTPException(500, "this is a defect of holdfast; see its log") from None

    return answer


async def _body(request: Request) -> bytes:
    """The whole body, if it is small and comes soon."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    raise HTTPException(413, f"the body is larger than {LARGEST_BODY} bytes", {"Connection": "close"})
    except TimeoutError:
        raise HTTPException(408, "the body did not come in time", {"Connection": "close"}) from None
    except (
        ClientDisconnect
    ):  # nobody hears the answer; left alone it would be a traceback for whoever likes to make one
        raise HTTPException(400, "the body did not come whole") from None
    return bytes(body)


async def _refused(_request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    return JSONResponse({"error": problem.detail}, problem.status_code, problem.headers)
