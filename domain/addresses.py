"""Where a webhook may go: the form of its URL, and the addresses its host may have.

The same two rules hold when an endpoint is made, edited, tested, sent to and replayed. A name proves nothing: what
counts is the address that is connected to.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from domain.errors import BadInput

PORTS = frozenset({443, 8443})
"""Ports a webhook may go to, unless the dangerous setting is on."""

NOT_ALLOWED = "this address cannot be used; it must be one that everybody on the internet can reach"
"""Said of every address the guard refuses, whatever it is: the answer is no map of the inside."""

_LONGEST_URL = 2048
_LONGEST_HOST = 253
_LARGEST_PORT = 65535
_PLAIN = re.compile(r"[!-~]+", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_LIKE_A_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_PORT = re.compile(r"\d{1,5}", re.ASCII)
_END_OF_AUTHORITY = re.compile(r"[/?#]")
_OWN_PORT = {"https": 443, "http": 80}
_AMBIGUOUS = frozenset("ßς\u200c\u200d")
"""Letters that the two generations of IDNA read differently: one name, two hosts."""

_UNUSABLE_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers, and a cloud's metadata at 100.100.100.200
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's own services, behind a public address
            "169.254.0.0/16",  # link-local, and the metadata of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments, and a cloud's metadata at .192
            "192.0.2.0/24",  # examples
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # relays to 6to4
            "192.168.0.0/16",
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # examples
            "203.0.113.0/24",  # examples
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)

_GLOBAL_6 = IPv6Network("2000::/3")
"""All of IPv6 that is global unicast; what lies outside is nobody's receiver."""

_UNUSABLE_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, with Teredo (2001::/32) and its embedded addresses
            "2001:db8::/32",  # examples
            "2002::/16",  # 6to4: an IPv4 address in disguise
            "3ffe::/16",  # the former test network
            "3fff::/20",  # examples
        ),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
"""How a network without IPv4 writes every IPv4 address. The local-use 64:ff9b:1::/48 leads inside and stays out."""

_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in its one form: where to connect, and what to ask for there."""

    scheme: str
    host: str
    """A name or an address, in lower case, without brackets."""
    port: int
    resource: str
    """Path and query."""

    @property
    def url(self) -> str:
        """The URL as it is kept and requested; a scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _OWN_PORT[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.resource}"


def allowed_address(address: IPv4Address | IPv6Address, *, loopback: bool = False) -> bool:
    """Whether a request may go to this address: global unicast, and on no list.

    An IPv4 address in an IPv6 one is judged as what it is. Forms that only a tunnel gives (6to4, Teredo, ISATAP, the
    IPv4-compatible ones) are refused whatever they hold. `loopback` opens 127.0.0.0/8 and ::1, and nothing else.
    """
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if (inner := _embedded(address)) is not None:
            return allowed_address(inner, loopback=loopback)
        if address.is_loopback:
            return loopback
        return address in _GLOBAL_6 and not _tunnelled(address)
    if address.is_loopback:
        return loopback
    return not any(address in network for network in _UNUSABLE_4)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this one reach, where that is known."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _tunnelled(address: IPv6Address) -> bool:
    """Whether it is of a range or a form that no receiver has."""
    return any(address in network for network in _UNUSABLE_6) or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP


@lru_cache(maxsize=1024)
def check_url(raw: str, *, dangerous: bool = False) -> Target:
    """The target a URL names.

    `dangerous` (for development and tests) allows plain http, every port and loopback.

    Raises:
        BadInput: it is no URL a webhook may go to; the text names the part and the cure.
    """
    if len(raw) > _LONGEST_URL:
        raise BadInput("url", f"is longer than {_LONGEST_URL} characters")
    scheme, separator, rest = raw.partition("://")
    authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
    resource = rest[len(authority) :]
    if not separator or scheme.lower() not in ({"https", "http"} if dangerous else {"https"}):
        raise BadInput("url", "must begin with https://")
    if "#" in resource:
        raise BadInput("url", "has a fragment; leave out the # and what follows")
    if "@" in authority:
        raise BadInput("url", "holds a user name or password; leave them out, requests are signed")
    if resource and (_PLAIN.fullmatch(resource) is None or "\\" in resource):
        raise BadInput("url", "has a blank, a backslash or a letter beyond ASCII in its path; percent-encode it")
    host, port = _host_and_port(authority)
    target = Target(scheme.lower(), _host(host), _port(port, scheme.lower(), dangerous=dangerous), _rooted(resource))
    _check_host(target, dangerous=dangerous)
    return target


def _rooted(resource: str) -> str:
    return resource if resource.startswith("/") else f"/{resource}"


def _host_and_port(authority: str) -> tuple[str, str | None]:
    """Split at the colon that stands outside of brackets; no colon, no port."""
    host, bracket, after = authority.partition("]")
    if not bracket:
        host, colon, port = authority.partition(":")
        return host, port if colon else None
    if after and not after.startswith(":"):
        raise BadInput("url", "has a bad host: something stands behind its brackets")
    return host + bracket, after[1:] if after else None


def _port(raw: str | None, scheme: str, *, dangerous: bool) -> int:
    if raw is None:
        return _OWN_PORT[scheme]
    if _PORT.fullmatch(raw) is None or not 1 <= int(raw) <= _LARGEST_PORT:
        raise BadInput("url", f"has a bad port; use one from 1 to {_LARGEST_PORT}, or leave it out")
    if not dangerous and int(raw) not in PORTS:
        raise BadInput("url", "has a port that is not open to webhooks; use 443 or 8443")
    return int(raw)


def _host(raw: str) -> str:
    """The host in its one form: an address as Python writes it, a name in ASCII and lower case."""
    if raw.startswith("["):
        try:
            return str(IPv6Address(raw[1:-1] if "%" not in raw else ""))
        except ValueError:
            raise BadInput("url", "has a bad host: no IPv6 address stands in its brackets") from None
    try:
        name = (raw if raw.isascii() else _ascii(raw)).lower()
    except UnicodeError:
        raise BadInput("url", "has a host with unusual letters; write it in its xn-- form") from None
    labels = name.split(".")
    if labels[-1] == "" and len(labels) > 1:
        raise BadInput("url", "has a host that ends in a dot; leave that out")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise BadInput("url", "has an address in an odd notation; write it as four numbers, 192.0.2.1") from None
    if len(name) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise BadInput("url", "has a bad host; write a name like hooks.example.com")
    return name


def _ascii(host: str) -> str:
    """A name with letters beyond ASCII in the form that is looked up (xn--…).

    Raises:
        UnicodeError: it has none, or two.
    """
    if _AMBIGUOUS & set(host):
        raise UnicodeError
    return host.encode("idna").decode("ascii")


def _check_host(target: Target, *, dangerous: bool) -> None:
    """Refuse what needs no look-up to be refused."""
    try:
        address = IPv6Address(target.host) if ":" in target.host else IPv4Address(target.host)
    except ValueError:
        if not dangerous and ("." not in target.host or target.host.endswith(".localhost")):
            raise BadInput("url", NOT_ALLOWED) from None
        return
    if not allowed_address(address, loopback=dangerous):
        raise BadInput("url", NOT_ALLOWED)
