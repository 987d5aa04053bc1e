"""What goes out: these headers and bytes, signed, and nothing of the environment."""

import base64
import contextlib
import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
import svix.webhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from domain.addresses import NOT_ALLOWED
from domain.errors import BadInput
from domain.signing import HmacKey
from domain.webhooks import Answered, Failed, FailureKind
from gateways.signing import Ed25519Key
from gateways.webhook import Limits, Post, Sender
from tests.gateways.posts import KEY, NOW, post
from tests.gateways.receiver import Request, Talk, answer, hanging, receiving, saying, saying_last


def test_a_request_holds_these_headers_and_these_bytes(sender: Sender) -> None:
    with receiving(saying(answer())) as receiver:
        sender.send(post(receiver.url + "/a%20b?c=d", body=b'{"a":1}'))
    assert receiver.requests == [
        Request(
            "POST /hook/a%20b?c=d HTTP/1.1",
            {
                "Host": f"localhost:{receiver.port}",
                "User-Agent": "Holdfast/0.1",
                "Accept-Encoding": "identity",
                "Accept": "*/*",
                "Connection": "keep-alive",
                "Content-Type": "application/json",
                "webhook-id": "reservation-expired:h_1:1",
                "webhook-timestamp": "1796000000",
                "webhook-signature": KEY.signature(b'reservation-expired:h_1:1.1796000000.{"a":1}'),
                "Content-Length": "7",
            },
            b'{"a":1}',
        )
    ]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 65_536, 65_537, 100_000])
def test_bodies_of_any_size_arrive_as_they_are(sender: Sender, size: int) -> None:
    body = bytes(range(256)) * 400
    with receiving(saying(answer())) as receiver:
        assert sender.send(post(receiver.url, body=body[:size])) == Answered(200, "ok", None, receiver.peer)
    assert receiver.requests[0].body == body[:size]
    assert receiver.requests[0].headers["Content-Length"] == str(size)


def test_head_and_body_go_out_together(sender: Sender) -> None:
    came: list[bytes] = []

    def greet(talk: Talk) -> None:
        came.append(talk.sock.recv(65536))
        talk.say(answer())

    with receiving(hanging, greet=greet) as receiver:
        assert sender.send(post(receiver.url, body=b'{"a":1}')) == Answered(200, "ok", None, receiver.peer)
    assert came[0].startswith(b"POST /hook HTTP/1.1\r\n")
    assert came[0].endswith(b'\r\n\r\n{"a":1}')


def test_receivers_verify_what_was_sent(sender: Sender) -> None:
    old, new, pair = HmacKey.generate(), HmacKey.generate(), Ed25519Key.generate()
    with receiving(saying(answer())) as receiver:
        sender.send(post(receiver.url, timestamp=int(time.time()), keys=[new, old, pair]))
    (request,) = receiver.requests
    for key in (old, new):
        standardwebhooks.Webhook(key.reveal()).verify(request.body, request.headers)
        svix.webhooks.Webhook(key.reveal()).verify(request.body, request.headers)
    with pytest.raises(standardwebhooks.webhooks.WebhookVerificationError):
        standardwebhooks.Webhook(HmacKey.generate().reveal()).verify(request.body, request.headers)
    signature = request.headers["webhook-signature"].split(" ")[2].removeprefix("v1a,")
    content = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(pair.public.removeprefix("whpk_")))
    public.verify(base64.b64decode(signature), content)


def test_nothing_of_the_environment_goes_out(sender: Sender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login someone password secret\n")
    with receiving(saying(answer())) as receiver, receiving(saying(answer())) as proxy:
        monkeypatch.setenv("NETRC", str(netrc))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://{proxy.peer}")
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)
        assert proxy.connections == 0
    assert "Authorization" not in receiver.requests[0].headers


def test_no_cookie_is_kept_or_sent_back(sender: Sender) -> None:
    with receiving(saying(answer(200, b"ok", "Set-Cookie: a=b; Path=/"))) as receiver:
        for _ in range(2):
            sender.send(post(receiver.url))
    assert ["Cookie" in request.headers for request in receiver.requests] == [False, False]
    assert len(sender._sessions["ep_1"].cookies) == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(sender: Sender, status: int) -> None:
    with receiving(saying(answer())) as inside:
        with receiving(saying(answer(status, b"go", f"Location: {inside.url}"))) as receiver:
            assert sender.send(post(receiver.url)) == Answered(status, "go", None, receiver.peer)
            assert len(receiver.requests) == 1
        assert inside.connections == 0


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"keys": []}, "keys: there is no live key to sign with; rotate the endpoint's keys"),
        ({"event_id": "a.b"}, "event_id: 'a.b' is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -"),
        ({"event_id": "a\r\nX: b"}, "event_id: 'a\\r\\nX: b' is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -"),
        ({"event_id": "a\n"}, "event_id: 'a\\n' is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -"),
        ({"timestamp": -1}, "timestamp: lies before 1970"),
    ],
    ids=["no key", "dot in the id", "a header in the id", "line break behind the id", "before 1970"],
)  # fmt: skip
def test_what_must_not_go_out_is_our_fault_and_never_leaves(sender: Sender, wrong: dict[str, Any], detail: str) -> None:
    with receiving(saying(answer())) as receiver:
        assert sender.send(post(receiver.url, **wrong)) == Failed(FailureKind.OURS, detail, None, sent=False)
        assert receiver.connections == 0


@pytest.mark.parametrize(
    "more", ["?a=b\r\nX: y", "\r\n", " HTTP/1.1\r\nX: y\r\n\r\n", "\n", "\r", "\x00", "\u2028", " ", "\t"]
)
def test_a_url_that_could_end_the_request_line_is_refused_and_nothing_goes_out(sender: Sender, more: str) -> None:
    with receiving(saying(answer())) as receiver:
        assert sender.send(post(receiver.url + more)) == Failed(FailureKind.BLOCKED, NOT_ALLOWED, None, sent=False)
        with pytest.raises(BadInput):
            sender.check(receiver.url + more)
        assert receiver.connections == 0


def test_an_attempt_shows_no_secret() -> None:
    attempt = Post(
        endpoint_id="ep_1", url="https://example.com/", event_id="e", timestamp=NOW, body=b"body-bytes", keys=[KEY],
        not_after=7.5,
    )  # fmt: skip
    shown = repr(attempt)
    assert (
        shown == f"Post(endpoint_id='ep_1', url='https://example.com/', event_id='e', timestamp={NOW}, not_after=7.5)"
    )


def test_no_log_line_holds_a_url(sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with receiving(saying_last(b"HTTP/1.1 200 OK\r\n no header\r\nX\r\nContent-Length: 0\r\n\r\n")) as receiver:
        assert isinstance(sender.send(post(receiver.url + "/token-of-the-receiver")), Answered)
    assert "token-of-the-receiver" not in caplog.text


def test_the_deadline_is_fifteen_seconds_unless_said() -> None:
    assert Limits().deadline == timedelta(seconds=15)
    with contextlib.closing(Sender(Limits())) as sender:
        refused = sender.send(post("http://example.com/"))
    assert refused == Failed(
        FailureKind.BLOCKED,
        "this address cannot be used; it must be one that everybody on the internet can reach",
        None,
        sent=False,
    )
