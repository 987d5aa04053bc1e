"""From a host's name to the addresses that may be connected to."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any

from domain.addresses import allowed_address

_AT_ONCE = 256
"""More than a lane leaves behind: half of its 48 threads ask for silent names, 4 s each, and a system's look-up goes on
for 30 s and more. With fewer, other endpoints would be refused theirs. A thread that waits takes 30 KB."""
_LONGEST = 4.0
"""Seconds. A resolver that answers at all has answered by then; a silent one must not hold a request's whole time."""

SockAddr = tuple[str, int] | tuple[str, int, int, int]
Address = tuple[socket.AddressFamily, SockAddr]
Lookup = Callable[..., Sequence[tuple[Any, Any, Any, Any, Any]]]

_NO_SUCH_NAME = {socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY}
"""The resolver answered, and the answer is no: no such name, or none with an address.

Whatever else it says tells of the resolver or of this machine: EAI_AGAIN that nobody answered, EAI_FAIL that a name
server would not, EAI_SYSTEM and EAI_MEMORY what we lack, the rest that we asked in the wrong way.
"""


class BlockedAddress(Exception):
    """An address of the host may not be connected to. Which one, nobody learns."""


class NameUnknown(Exception):
    """The host has no address."""


class ResolverSilent(Exception):
    """The resolver gave no answer: nobody can say whose fault that is, so it counts as ours."""


class Resolver:
    """Looks names up, with a limit of time, and lets through a host only if every address of it is allowed.

    A name server that hangs holds one thread, however many requests ask for its name; `at_once` such threads are the
    most there can be. They end by themselves, with the system's own limit.
    """

    def __init__(
        self, *, loopback: bool = False, anywhere: bool = False, lookup: Lookup = socket.getaddrinfo,
        at_once: int = _AT_ONCE, longest: float = _LONGEST,
    ) -> None:  # fmt: skip
        """`loopback` opens 127.0.0.0/8 and ::1: for development and tests. `longest` in seconds, for each look-up.

        `anywhere` opens every address: for a host that whoever runs Holdfast has set, such as a mail relay within.
        """
        self._loopback = loopback
        self._anywhere = anywhere
        self._lookup = lookup
        self._at_once, self._longest = at_once, longest
        self._pending: dict[tuple[str, int], Future[list[Address]]] = {}
        self._lock = Lock()

    def addresses(self, host: str, port: int, limit: float) -> list[Address]:
        """Where to connect to, best first; each one is checked. `limit` in seconds; a look-up has its own besides.

        Raises:
            BlockedAddress: one of them may not be connected to.
            NameUnknown: there is none.
            ResolverSilent: no answer within the limit, or a resolver that fails.
        """
        found = _literal(host, port) or self._looked_up(host, port, limit)
        if not found:
            raise NameUnknown
        if self._anywhere:
            return found
        if not all(allowed_address(ipaddress.ip_address(at[0]), loopback=self._loopback) for _, at in found):
            raise BlockedAddress
        return found

    def _looked_up(self, host: str, port: int, limit: float) -> list[Address]:
        try:
            return self._asked(host, port).result(min(limit, self._longest))
        except TimeoutError:
            raise ResolverSilent("no answer in time") from None
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_NAME:
                raise NameUnknown from None
            raise ResolverSilent(error.strerror) from None
        except (OSError, UnicodeError) as error:
            raise ResolverSilent(type(error).__name__) from None

    def _asked(self, host: str, port: int) -> Future[list[Address]]:
        """The look-up of this name that is under way, or a new one."""
        with self._lock:
            if (host, port) in self._pending:
                return self._pending[host, port]
            if len(self._pending) >= self._at_once:
                raise ResolverSilent(f"{self._at_once} look-ups are under way")
            future: Future[list[Address]] = Future()
            thread = Thread(target=self._ask, args=(host, port, future), name="look-up", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                raise ResolverSilent("no thread left") from None
            self._pending[host, port] = future
            return future

    def _ask(self, host: str, port: int, future: Future[list[Address]]) -> None:
        """Runs in its own thread, since nothing can interrupt a system's look-up."""
        try:
            answers = self._lookup(host, port, type=socket.SOCK_STREAM)
            result = list(dict.fromkeys((family, at) for family, *_, at in answers))
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._forget(host, port)
            future.set_exception(error)
        else:
            self._forget(host, port)
            future.set_result(result)

    def _forget(self, host: str, port: int) -> None:
        """The next request asks anew: an answer is for those who wait for it."""
        with self._lock:
            self._pending.pop((host, port), None)


def _literal(host: str, port: int) -> list[Address]:
    """An address written as such needs no look-up."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    if address.version == 4:  # noqa: PLR2004 - IP's own number
        return [(socket.AF_INET, (host, port))]
    return [(socket.AF_INET6, (host, port, 0, 0))]
