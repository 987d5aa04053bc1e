"""What an answer looks like on the wire."""

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from time import time
from typing import Any

from comparison.infrai_server.faults import Fault, Kind
from comparison.infrai_server.problems import CODES, Code, Problem

Json = Any
Headers = list[tuple[bytes, bytes]]
_JSON: Headers = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    status: int
    body: bytes
    headers: Iterable[tuple[bytes, bytes]] = tuple(_JSON)


def success(data: Json, milliseconds: float) -> bytes:
    """The envelope around a result."""
    return encoded({"ok": True, "data": data, "error": None, "metadata": _metadata(milliseconds)})


def failure(problem: Problem) -> Answer:
    """The envelope around a refusal (U36: with metadata)."""
    return Answer(problem.code.status, _failed(problem.code, problem.hint))


def document(data: Json) -> Answer:
    """Discovery has no envelope (X12)."""
    return Answer(200, encoded(data))


def faulty(fault: Fault) -> Answer:
    """What comes instead of a call."""
    wait = [] if fault.retry_after is None else [(b"retry-after", _wait(fault).encode())]
    match fault.kind:
        case Kind.NOT_JSON:
            page = b"<html><body><h1>Something went wrong</h1></body></html>"
            return Answer(fault.status, page, [(b"content-type", b"text/html"), *wait])
        case Kind.RATE_LIMIT:
            code, hint = CODES["RATE_LIMIT_USER"], "slow down"
        case Kind.REFUSE:
            code, hint = CODES[fault.code], "refused by order"
        case _:
            code, hint = CODES["MAINTENANCE"], "back soon"
    return Answer(code.status, _failed(code, hint), [*_JSON, *wait])


def encoded(value: Json) -> bytes:
    """Compact JSON in UTF-8; a lone surrogate, which a refusal may repeat, stays the escape it came as."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _failed(code: Code, hint: str) -> bytes:
    error = {"code": code.name, "message": hint, "hint": hint}
    return encoded({"ok": False, "data": None, "error": error, "metadata": _metadata(0.0)})


def _metadata(milliseconds: float) -> Json:
    return {
        "cost_usd": 0.0,
        "latency_ms": round(milliseconds, 3),
        "vendor": "local",
        "cache_hit": False,
        "request_id": _uuid7(),
    }


def _uuid7() -> str:
    """An id that sorts by its time. 74 bits of chance, four of version, two of variant."""
    stamp, chance = f"{int(time() * 1000):012x}", secrets.token_hex(10)
    return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-{'89ab'[int(chance[3], 16) & 3]}{chance[4:7]}-{chance[7:19]}"


def _wait(fault: Fault) -> str:
    """`Retry-After` in one of its forms. A date counts from the server's real time, as the header `Date` does."""
    seconds = fault.retry_after or 0.0
    if fault.as_date:
        return format_datetime(datetime.fromtimestamp(time() + seconds, UTC), usegmt=True)
    return f"{seconds:g}"
