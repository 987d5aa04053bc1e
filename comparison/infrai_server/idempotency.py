"""Idempotency keys: the first call with one has its effect, those after it get its answer (U3, U4)."""

from asyncio import Future, get_running_loop
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from comparison.infrai_server.problems import Problem
from domain.infrai import compact

Json = Any
Scope = tuple[str, str, str]
"""Project, path, key."""


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    until: float
    answer: bytes | None
    """None while the first call is under way."""
    done: "Future[None]"


class Answers:
    """Those that may be asked for again. Used by the event loop alone, so what stands between two awaits is whole."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._entries: OrderedDict[Scope, _Entry] = OrderedDict()

    async def earlier(self, scope: Scope, fingerprint: bytes, now: float) -> bytes | None:
        """The answer of an earlier call with this key; None if this one is the first, and is to be carried out.

        One that is still under way is waited for. A first one that failed is as if it had not been: the next tries.

        Raises:
            Problem: IDEMPOTENCY_CONFLICT; the key was used with other parameters.
        """
        while self._entries and (oldest := next(iter(self._entries.values()))).until <= now and oldest.done.done():
            self._entries.popitem(last=False)
        while (entry := self._entries.get(scope)) is not None:
            if entry.fingerprint != fingerprint:
                raise Problem("IDEMPOTENCY_CONFLICT", "this Idempotency-Key was used with other parameters")
            if entry.answer is not None:
                return entry.answer
            await entry.done
        self._entries[scope] = _Entry(fingerprint, now + self._window, None, get_running_loop().create_future())
        return None

    def succeeded(self, scope: Scope, answer: bytes) -> None:
        """Keep the answer of the first call."""
        entry = self._entries.get(scope)
        if entry is not None and not entry.done.done():
            entry.answer = answer
            entry.done.set_result(None)

    def failed(self, scope: Scope) -> None:
        """Forget a first call that had no effect."""
        entry = self._entries.pop(scope, None)
        if entry is not None and not entry.done.done():
            entry.done.set_result(None)


def fingerprint(body: Json) -> bytes:
    """What makes two bodies the same: their canonical form, without the key (X15)."""
    return sha256(compact({name: part for name, part in body.items() if name != "idempotency_key"}, "body")).digest()
