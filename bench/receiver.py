"""The benchmark's receiver: an RSGI application that Granian (Rust) serves. It answers 200, or never, and counts.

granian --interface rsgi bench.receiver:app
"""

import asyncio
import json
import time
from typing import Any

_NO_HEADERS: list[tuple[str, str]] = []
_HANGS = 60.0


class _Count:
    """What came so far, by this process's clock."""

    def __init__(self) -> None:
        self.requests, self.first, self.last = 0, 0.0, 0.0

    def one(self) -> None:
        """Count a request."""
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.requests += 1


_count = _Count()


async def app(scope: Any, protocol: Any) -> None:
    """`/count` tells what came and begins anew, `/hang` never answers in time, all else is taken."""
    global _count
    if scope.path == "/count":
        told, _count = vars(_count), _Count()
        protocol.response_str(200, _NO_HEADERS, json.dumps(told))
        return
    await protocol()
    if scope.path == "/hang":
        await asyncio.sleep(_HANGS)
    _count.one()
    protocol.response_empty(200, _NO_HEADERS)
