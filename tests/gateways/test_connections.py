"""How a connection is made, kept, shared and let go."""

import contextlib
import gc
import select
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from domain.webhooks import Answered, Failed, FailureKind
from gateways import pinned
from gateways.exchange import UNDER_WAY, Exchange, PlainSocket, tls_context
from gateways.webhook import Limits, Sender
from tests.gateways.conftest import ServerContext
from tests.gateways.posts import post
from tests.gateways.receiver import Receiver, Request, Talk, answer, hanging, receiving, saying, saying_last


def ok(receiver: Receiver) -> Answered:
    return Answered(200, "ok", None, receiver.peer)


def test_a_certificate_for_the_host_is_accepted(
    sender: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    with receiving(saying(answer()), tls=serve_with(authority.issue_cert("localhost"))) as receiver:
        assert sender.send(post(receiver.url)) == ok(receiver)
        assert sender.send(post(receiver.url)) == ok(receiver)
        assert receiver.connections == 1


def test_the_name_is_asked_for_and_the_address_connected_to(
    sender: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    asked: list[str | None] = []
    context = serve_with(authority.issue_cert("localhost"))
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    with receiving(saying(answer()), tls=context) as receiver:
        assert sender.send(post(receiver.url)) == ok(receiver)
    assert asked == ["localhost"]
    assert receiver.requests[0].headers["Host"] == f"localhost:{receiver.port}"


def test_an_expired_certificate_is_refused_before_anything_is_sent(
    sender: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    expired = authority.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    with receiving(saying(answer()), tls=serve_with(expired)) as receiver:
        failed = sender.send(post(receiver.url))
    assert failed == Failed(FailureKind.TLS, "certificate has expired", receiver.peer, sent=False)
    assert receiver.requests == []


def test_a_certificate_for_another_host_is_refused(
    sender: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    with receiving(saying(answer()), tls=serve_with(authority.issue_cert("other.example"))) as receiver:
        failed = sender.send(post(receiver.url))
    detail = "Hostname mismatch, certificate is not valid for 'localhost'."
    assert failed == Failed(FailureKind.TLS, detail, receiver.peer, sent=False)
    assert receiver.requests == []


def test_a_certificate_of_an_unknown_authority_is_refused(sender: Sender, serve_with: ServerContext) -> None:
    with receiving(saying(answer()), tls=serve_with(trustme.CA().issue_cert("localhost"))) as receiver:
        failed = sender.send(post(receiver.url))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.sent) == (FailureKind.TLS, False)
    assert receiver.requests == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_tls_before_1_2_is_refused(sender: Sender, authority: trustme.CA, serve_with: ServerContext) -> None:
    context = serve_with(authority.issue_cert("localhost"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with receiving(saying(answer()), tls=context) as receiver:
        failed = sender.send(post(receiver.url))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.sent) == (FailureKind.TLS, False)
    assert receiver.requests == []


def test_what_speaks_no_tls_fails_in_the_handshake(sender: Sender) -> None:
    with receiving(hanging, greet=lambda talk: talk.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as receiver:
        failed = sender.send(post(receiver.url.replace("http:", "https:")))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.peer, failed.sent) == (FailureKind.TLS, receiver.peer, False)


def test_a_handshake_broken_off_fails_in_the_handshake(sender: Sender) -> None:
    def break_off(talk: Talk) -> None:
        talk.sock.recv(1)
        talk.reset()

    with receiving(hanging, greet=break_off) as receiver:
        failed = sender.send(post(receiver.url.replace("http:", "https:")))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.sent) == (FailureKind.TLS, False)


def test_a_connection_reset_before_its_handshake_is_closed_and_nothing_goes_out(ca_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = PlainSocket()
        ours.connect(listener.getsockname())
        Talk(listener.accept()[0], threading.Event()).reset()
        assert select.select([ours], [], [], 5)[0]
        token = UNDER_WAY.set(Exchange(5, 100))
        try:
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                tls_context(str(ca_file)).wrap_socket(ours, server_hostname="localhost")
            assert not UNDER_WAY.get().sent
        finally:
            UNDER_WAY.reset(token)
    assert ours.fileno() == -1


@pytest.mark.parametrize(
    "greet",
    [lambda talk: talk.over.wait(5), lambda talk: talk.drip(b"\x16\x03\x03\x40\x00" + b"\x02" * 500, 0.02)],
    ids=["silent", "dripping"],
)
def test_a_handshake_ends_at_the_deadline(brief: Sender, greet: object) -> None:
    with receiving(hanging, greet=greet) as receiver:  # type: ignore[arg-type]  # a lambda in a table
        started = time.monotonic()
        failed = brief.send(post(receiver.url.replace("http:", "https:")))
        took = time.monotonic() - started
    assert failed == Failed(FailureKind.TIMEOUT, "the deadline came in the TLS handshake", receiver.peer, sent=False)
    assert 0.5 <= took < 3


def test_an_answer_over_tls_ends_at_the_deadline(
    brief: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    def drip(talk: Talk, _: Request) -> None:
        talk.drip(b"HTTP/1.1 200 OK" * 9, 0.02)

    with receiving(drip, tls=serve_with(authority.issue_cert("localhost"))) as receiver:
        started = time.monotonic()
        failed = brief.send(post(receiver.url))
        took = time.monotonic() - started
    detail = "the deadline came waiting for the answer"
    assert failed == Failed(FailureKind.TIMEOUT, detail, receiver.peer, sent=True)
    assert 0.5 <= took < 3


def test_a_port_where_nobody_listens_refuses(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failed = sender.send(post(f"http://127.0.0.1:{port}/"))
    assert failed == Failed(FailureKind.CONNECT, "Connection refused", f"127.0.0.1:{port}", sent=False)


def test_connecting_ends_at_the_deadline(brief: Sender, crowded: int) -> None:
    started = time.monotonic()
    failed = brief.send(post(f"http://127.0.0.1:{crowded}/"))
    took = time.monotonic() - started
    peer = f"127.0.0.1:{crowded}"
    assert failed == Failed(FailureKind.TIMEOUT, "the deadline came connecting", peer, sent=False)
    assert 0.4 <= took < 3


def test_one_connection_carries_many_requests(sender: Sender) -> None:
    with receiving(saying(answer())) as receiver:
        assert [sender.send(post(receiver.url)) for _ in range(5)] == [ok(receiver)] * 5
        assert receiver.connections == 1


def test_a_body_longer_than_is_read_costs_the_connection_and_no_more(sender: Sender) -> None:
    long = answer(200, b"z" * 17_000)
    with receiving(saying(long)) as receiver:
        for _ in range(2):
            assert sender.send(post(receiver.url)) == Answered(200, "z" * 1024, None, receiver.peer)
        assert receiver.connections == 2


def test_what_was_said_too_much_is_not_taken_for_the_next_answer(sender: Sender) -> None:
    with receiving(saying(answer(500, b"no") + answer(200, b"forged"))) as receiver:
        for _ in range(2):
            assert sender.send(post(receiver.url)) == Answered(500, "no", None, receiver.peer)


def test_a_connection_the_receiver_closed_meanwhile_is_made_anew(sender: Sender) -> None:
    with receiving(saying_last(answer())) as receiver:
        for _ in range(3):
            assert sender.send(post(receiver.url)) == ok(receiver)
            assert receiver.finished.acquire(timeout=5)
        assert receiver.connections == 3


@pytest.mark.parametrize("limit", ["_CONNECTION_LIVES", "_CONNECTION_RESTS"])
def test_a_connection_grown_old_or_idle_is_made_anew(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with receiving(saying(answer())) as receiver:
        sender.send(post(receiver.url))
        monkeypatch.setattr(pinned, limit, 0.0)
        assert sender.send(post(receiver.url)) == ok(receiver)
        assert receiver.connections == 2


def test_an_endpoint_that_moved_is_sent_to_where_it_is_now(sender: Sender) -> None:
    with receiving(saying(answer())) as before, receiving(saying(answer())) as after:
        sender.send(post(before.url))
        assert sender.send(post(after.url)) == ok(after)
        assert (len(before.requests), len(after.requests)) == (1, 1)


def test_the_least_recently_used_session_gives_way_and_its_sockets_close(ca_file: Path) -> None:
    gone = threading.Event()

    def notice(talk: Talk, _: Request) -> None:
        talk.say(answer())
        if talk.sock.recv(1) == b"":
            gone.set()
        raise EOFError

    with (
        contextlib.closing(Sender(Limits(sessions=2), dangerous=True)) as sender,
        receiving(notice) as first,
        receiving(saying(answer())) as others,
    ):
        gc.disable()  # they close because nobody holds them, not because a collection came by
        try:
            sender.send(post(first.url, endpoint="ep_1"))
            sender.send(post(others.url, endpoint="ep_2"))
            assert not gone.is_set()
            sender.send(post(others.url, endpoint="ep_3"))
            assert gone.wait(5)
        finally:
            gc.enable()
        assert list(sender._sessions) == ["ep_2", "ep_3"]


def test_a_session_that_gives_way_while_in_use_finishes(ca_file: Path) -> None:
    taken, carry_on = threading.Event(), threading.Event()

    def slow(talk: Talk, _: Request) -> None:
        taken.set()
        carry_on.wait(5)
        talk.say(answer())

    with (
        contextlib.closing(Sender(Limits(sessions=1), dangerous=True)) as sender,
        receiving(slow) as first,
        receiving(saying(answer())) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        under_way = pool.submit(sender.send, post(first.url, endpoint="ep_1"))
        assert taken.wait(5)
        assert sender.send(post(other.url, endpoint="ep_2")) == ok(other)
        carry_on.set()
        assert under_way.result(5) == ok(first)


def test_threads_share_a_sender(sender: Sender) -> None:
    def echo(talk: Talk, request: Request) -> None:
        talk.say(answer(200, request.body))

    with receiving(echo) as receiver, ThreadPoolExecutor(8) as pool:
        bodies = [b"body %d" % number for number in range(200)]
        results = pool.map(lambda body: sender.send(post(receiver.url, body=body)), bodies)
        assert list(results) == [Answered(200, body.decode(), None, receiver.peer) for body in bodies]
        assert sorted(request.body for request in receiver.requests) == sorted(bodies)


def test_a_request_beside_one_that_hangs_goes_through(ca_file: Path) -> None:
    def maybe(talk: Talk, request: Request) -> None:
        if request.body == b"hang":
            talk.hang()
        else:
            talk.say(answer())

    with (
        contextlib.closing(Sender(Limits(deadline=timedelta(seconds=2)), dangerous=True)) as sender,
        receiving(maybe) as receiver,
        ThreadPoolExecutor(6) as pool,
    ):
        hung = [pool.submit(sender.send, post(receiver.url, body=b"hang")) for _ in range(6)]
        while len(receiver.requests) < 6:
            assert not any(one.done() for one in hung)
        assert sender.send(post(receiver.url)) == ok(receiver)
        assert not any(one.done() for one in hung)
        assert {one.result(5).kind for one in hung} == {FailureKind.TIMEOUT}  # type: ignore[union-attr]  # they failed


def test_with_no_socket_left_the_fault_is_ours(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(pinned, "PlainSocket", none_left)
    failed = sender.send(post("http://127.0.0.1:1/"))
    assert failed == Failed(FailureKind.OURS, "Too many open files, connecting", "127.0.0.1:1", sent=False)
