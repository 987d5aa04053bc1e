"""Receivers that behave badly: each leaves an attempt with its class on record, and the worker as it was."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import EndpointId
from domain.webhooks import Result
from gateways.resolver import Resolver
from gateways.webhook import Limits, Sender
from tasks.delivery import Drain, Drained
from tests.gateways.posts import post
from tests.gateways.receiver import (
    Behaviour,
    Talk,
    answer,
    dripping,
    flooding,
    receiving,
    saying,
    saying_last,
    saying_then_reset,
)
from tests.hooks import Hooks, policy

AUTHORITY = trustme.CA()
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

Seen = tuple[int | None, str | None, str]
"""Status, class of failure, state of the delivery."""


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database, policy())


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    """It trusts our authority, and knows one name without an address."""

    def lookup(host: str, *args: Any, **options: Any) -> Any:
        if host == "gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return socket.getaddrinfo(host, *args, **options)

    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    resolver = Resolver(loopback=True, lookup=lookup)
    limits = Limits(deadline=timedelta(seconds=1.5))
    with contextlib.closing(Sender(limits, dangerous=True, resolver=resolver, ca_file=tmp_path / "ca.pem")) as made:
        yield made


def reset(talk: Talk, _: object) -> None:
    talk.reset()


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


BAD: dict[str, tuple[Behaviour, str | None, Seen]] = {
    "a certificate that expired": (saying(answer()), "expired", (None, "tls", "pending")),
    "a certificate for another host": (saying(answer()), "other", (None, "tls", "pending")),
    "a drip": (dripping(b"HTTP/1.1 2", b"0"), None, (None, "timeout", "pending")),
    "a drip behind a 2xx": (dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), None, (200, None, "delivered")),
    "a flood": (flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), None, (None, "protocol", "pending")),
    "a reset": (reset, None, (None, "reset", "pending")),
    "a lie about its length": (
        saying_then_reset(b"HTTP/1.1 500 Oh\r\nContent-Length: 9999\r\n\r\nno"), None, (500, None, "pending"),
    ),
    "headers of 70,000 bytes": (saying(answer(500, b"no", "X: " + "h" * 70_000)), None, (500, None, "pending")),
    "100 Continue fifty times": (
        saying_last(b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + answer(500)), None, (500, None, "pending"),
    ),
    "status 599": (saying(answer(599)), None, (599, None, "pending")),
    "no HTTP": (saying_last(b"\x00\xff" * 500), None, (None, "protocol", "pending")),
}  # fmt: skip


def certified(kind: str | None) -> ssl.SSLContext | None:
    match kind:
        case "expired":
            return serving(AUTHORITY.issue_cert("localhost", not_after=LONG_AGO))
        case "other":
            return serving(AUTHORITY.issue_cert("elsewhere.example"))
        case _:
            return None


def drain(hooks: Hooks, sender: Sender, name: str) -> Drained:
    def send(taken: Taken, asked_at: float) -> Result:
        return sender.send(post(taken.url, endpoint=name, body=taken.body))

    return Drain(db=hooks.database, send=send, policy=hooks.policy, worker="w")(EndpointId(name))


def seen(hooks: Hooks, name: str) -> list[Seen]:
    rows = hooks.rows(
        """SELECT a.status, a.failure, d.state FROM attempts AS a JOIN deliveries AS d USING (event_id, endpoint_id)
           WHERE a.endpoint_id = :name AND a.duration IS NOT NULL AND a.key_ids = ARRAY['key-' || :name]""",
        name=name,
    )
    return [(row[0], row[1], row[2]) for row in rows]


@pytest.mark.parametrize(("behave", "certificate", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_receiver_leaves_an_attempt_with_its_class_and_the_next_endpoint_is_served(
    hooks: Hooks, sender: Sender, behave: Behaviour, certificate: str | None, expected: Seen
) -> None:
    with receiving(behave, tls=certified(certificate)) as bad, receiving(saying(answer())) as good:
        hooks.endpoint("bad", url=bad.url.replace("http:", "https:") if certificate else bad.url)
        hooks.endpoint("good", url=good.url)
        hooks.placed("h")
        assert [drain(hooks, sender, name) for name in ("bad", "good")] == [Drained(1), Drained(1)]
        assert (seen(hooks, "bad"), seen(hooks, "good")) == ([expected], [(200, None, "delivered")])


def test_a_name_that_stops_resolving_leaves_an_attempt_with_its_class(hooks: Hooks, sender: Sender) -> None:
    hooks.endpoint("bad", url="http://gone.example/")
    hooks.placed("h")
    assert drain(hooks, sender, "bad") == Drained(1)
    assert seen(hooks, "bad") == [(None, "dns", "pending")]
