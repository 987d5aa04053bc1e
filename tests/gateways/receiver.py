"""Behaviours of a receiver on loopback that only tests ask for, beside those it has of itself."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

from bench.loopback import BOMB, HOSTILE, Behaviour, Receiver, Request, Talk, answer, flooding, saying, saying_last

__all__ = [
    "BOMB", "HOSTILE", "Behaviour", "Receiver", "Request", "Talk", "answer", "dripping", "flooding", "hanging",
    "receiving", "saying", "saying_last", "saying_then_reset",
]  # fmt: skip


@contextmanager
def receiving(
    behave: Behaviour, *, tls: ssl.SSLContext | None = None, greet: Callable[[Talk], None] | None = None
) -> Iterator[Receiver]:
    receiver = Receiver(behave, tls, greet)
    try:
        yield receiver
    finally:
        receiver.close()


def saying_then_reset(data: bytes) -> Behaviour:
    """Answer with these bytes; once they have been taken, break off."""

    def behave(talk: Talk, _: Request) -> None:
        talk.say(data)
        talk.over.wait(0.1)
        talk.reset()

    return behave


def dripping(start: bytes, data: bytes) -> Behaviour:
    """Say the start at once, and the rest a byte at a time for ever."""

    def behave(talk: Talk, _: Request) -> None:
        talk.say(start)
        for byte in cycle(data):
            if talk.over.is_set():
                return
            talk.drip(bytes([byte]), 0.02)

    return behave


def hanging(talk: Talk, _: Request) -> None:
    """Take the request, and never answer."""
    talk.hang()
