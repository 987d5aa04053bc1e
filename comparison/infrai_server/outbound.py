"""What the server sends itself: pushes and scheduled calls, to addresses that everybody can reach, or to loopback."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comparison.infrai_server.problems import invalid
from domain.addresses import Target, check_url
from domain.errors import BadInput
from domain.infrai import compact, push_signature
from gateways.infrai_wire import Ask, NoAnswer, Wire

_MOST_ANSWER = 1024 * 1024

Json = Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request came to."""

    status: int | None
    """None: no answer."""
    output: bytes = b""
    error: str = ""
    timed_out: bool = False

    @property
    def accepted(self) -> bool:
        """Whether it was answered with 2xx."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - HTTP's own numbers


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    url: str
    payload: Json
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Outbound:
    """Sends them."""

    loopback: bool
    """Also to this machine, and by plain http."""
    signature_prefix: str

    def check(self, url: str, *, plain: bool = False) -> Target:
        """The target of a URL. `plain` takes http too, for addresses that everybody can reach.

        Raises:
            Problem: VALIDATION_ERROR; it is no such URL, or its host is written as a private address.
        """
        try:
            if not plain or self.loopback:
                return check_url(url, dangerous=self.loopback)
            target = check_url(url, dangerous=True)
            check_url(replace(target, scheme="https", port=443).url)
        except BadInput as refused:
            raise invalid(str(refused)) from None
        return target

    def send(self, post: Post) -> Outcome:
        """Make one request; never raises, whatever the other side does."""
        target = check_url(post.url, dangerous=True)
        body = compact(post.payload, "payload")
        headers = {"Content-Type": "application/json", **post.headers}
        if post.secret is not None:
            headers["X-Infrai-Signature"] = self.signature_prefix + push_signature(post.secret, body)
        wire = Wire(Target(target.scheme, target.host, target.port, ""), loopback=self.loopback)
        try:
            reply = wire.ask(Ask("POST", target.resource or "/", headers, body, post.seconds, _MOST_ANSWER))
        except NoAnswer as fault:
            return Outcome(None, error=str(fault), timed_out=str(fault).startswith("the deadline came"))
        finally:
            wire.close()
        return Outcome(reply.status, reply.body, "" if reply.status < 300 else f"answered {reply.status}")  # noqa: PLR2004 - HTTP's own numbers
