"""The application as it is, on a machine whose name server says nothing about names that end in `.silent.example`."""

import socket
import threading
from typing import Any

HOLDS_FOR = 20.0
"""Seconds, about as long as a system's look-up takes to give up."""

_really = socket.getaddrinfo


def _silent(host: Any, *args: Any, **options: Any) -> Any:
    if isinstance(host, str) and host.endswith(".silent.example"):
        threading.Event().wait(HOLDS_FOR)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _really(host, *args, **options)


socket.getaddrinfo = _silent

from tasks.app import app  # noqa: E402 - the resolver keeps the function it finds when it is imported

__all__ = ["app"]
