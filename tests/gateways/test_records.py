"""TLS that is correct record by record, and meant to hold the sender: every one of them ends in time."""

import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
import trustme

from domain.webhooks import Answered, Failed, FailureKind, Result
from gateways.exchange import OutOfTime, TlsSocket
from gateways.webhook import Sender
from tests.gateways.conftest import ServerContext
from tests.gateways.posts import post
from tests.gateways.receiver import Receiver, Talk, answer, hanging, receiving, saying
from tests.gateways.records import (
    ALERT,
    APPLICATION,
    HANDSHAKE,
    HELLO_REQUEST,
    NEW_KEYS,
    NEW_KEYS_BOTH,
    TICKET,
    HandMade,
)

DEADLINE = "the deadline came waiting for the answer"
TOO_MUCH = "TooMuch: more than any answer needs"
LINE_TOO_LONG = "LineTooLong: got more than 65536 bytes when reading status line"
GIVES_UP = 4.0
"""Seconds after which the receiver ends a flood, so that a sender it holds comes free and the test can fail."""

Serve = Callable[[HandMade], None]


class OverTls(Protocol):
    """Makes a receiver that does this with each connection."""

    def __call__(
        self, serve: Serve, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> AbstractContextManager[Receiver]: ...


@pytest.fixture
def over_tls(authority: trustme.CA, serve_with: ServerContext, tmp_path: Path) -> OverTls:
    number = count()

    @contextmanager
    def serving(serve: Serve, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Iterator[Receiver]:
        def greet(talk: Talk) -> None:
            context = serve_with(authority.issue_cert("localhost"))
            context.minimum_version = context.maximum_version = version
            context.set_ciphers("ECDHE+AES256+AESGCM")
            serve(HandMade(talk, context, tmp_path / f"keys-{next(number)}"))

        with receiving(hanging, greet=greet) as receiver:
            receiver.url = receiver.url.replace("http:", "https:")
            yield receiver

    return serving


def after_the_request(say: Serve) -> Serve:
    def serve(peer: HandMade) -> None:
        peer.shake_hands()
        peer.request()
        say(peer)

    return serve


def flooding(kind: int, content: bytes, *, start: bytes = b"") -> Serve:
    """Such records for ever, as fast as they are taken."""

    def say(peer: HandMade) -> None:
        if start:
            peer.say(start)
        ends = time.monotonic() + GIVES_UP
        while time.monotonic() < ends:
            peer.talk.say(b"".join(peer.record(kind, content) for _ in range(4)))

    return after_the_request(say)


def dripping(kind: int, content: bytes, *, start: bytes = b"") -> Serve:
    """Such records for ever, with a wait between them."""

    def say(peer: HandMade) -> None:
        if start:
            peer.say(start)
        while not peer.talk.over.wait(0.02):
            peer.talk.say(peer.record(kind, content))

    return after_the_request(say)


def sent(sender: Sender, receiver: Receiver) -> tuple[Result, float]:
    started = time.monotonic()
    result = sender.send(post(receiver.url))
    return result, time.monotonic() - started


def failed(detail: str, receiver: Receiver, kind: FailureKind, *, reached: bool = True) -> Failed:
    return Failed(kind, detail, receiver.peer, reached)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(HANDSHAKE, TICKET), (HANDSHAKE, TICKET * 200), (APPLICATION, b"1")],
    ids=["tickets", "two hundred tickets in each", "one byte in each"],
)
def test_a_flood_of_records_ends_by_its_bytes(brief: Sender, over_tls: OverTls, kind: int, content: bytes) -> None:
    with over_tls(flooding(kind, content)) as receiver:
        result, took = sent(brief, receiver)
    assert isinstance(result, Failed)
    assert (result.detail in {TOO_MUCH, DEADLINE, LINE_TOO_LONG}, result.sent) == (True, True), result
    assert took < 2


@pytest.mark.parametrize("content", [NEW_KEYS, NEW_KEYS_BOTH], ids=["of one side", "of both"])
def test_a_flood_of_new_keys_ends(brief: Sender, over_tls: OverTls, content: bytes) -> None:
    with over_tls(flooding(HANDSHAKE, content)) as receiver:
        result, took = sent(brief, receiver)
    assert result in {failed(DEADLINE, receiver, FailureKind.TIMEOUT), failed(TOO_MUCH, receiver, FailureKind.PROTOCOL)}
    assert took < 2


def test_a_flood_of_empty_records_is_the_receivers_fault(brief: Sender, over_tls: OverTls) -> None:
    with over_tls(flooding(APPLICATION, b"")) as receiver:
        result, took = sent(brief, receiver)
    assert result == failed("RECORD_TOO_SMALL", receiver, FailureKind.TLS)
    assert took < 2


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        (lambda peer: peer.record(ALERT, b"\x02\x28"), "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        (lambda peer: peer.record(APPLICATION, answer())[:-1] + b"?", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        (lambda _: answer(), "WRONG_VERSION_NUMBER"),
    ],
    ids=["an alert", "a record that does not open", "no TLS any more"],
)
def test_tls_that_fails_behind_the_handshake_is_the_receivers_fault(
    sender: Sender, over_tls: OverTls, wrong: Callable[[HandMade], bytes], detail: str
) -> None:
    with over_tls(after_the_request(lambda peer: peer.talk.say(wrong(peer)))) as receiver:
        assert sender.send(post(receiver.url)) == failed(detail, receiver, FailureKind.TLS)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(HANDSHAKE, TICKET), (APPLICATION, b"1"), (HANDSHAKE, NEW_KEYS)],
    ids=["tickets", "one byte in each", "new keys"],
)
def test_records_that_drip_end_at_the_deadline(brief: Sender, over_tls: OverTls, kind: int, content: bytes) -> None:
    with over_tls(dripping(kind, content)) as receiver:
        result, took = sent(brief, receiver)
    assert result == failed(DEADLINE, receiver, FailureKind.TIMEOUT)
    assert 0.5 <= took < 2


@pytest.mark.parametrize("records", [flooding, dripping])
def test_what_comes_instead_of_a_body_changes_no_answer(
    brief: Sender, over_tls: OverTls, records: Callable[..., Serve]
) -> None:
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    with over_tls(records(HANDSHAKE, TICKET, start=start)) as receiver:
        result, took = sent(brief, receiver)
    assert result == Answered(200, "", None, receiver.peer)
    assert took < 2


FEW = {
    "tickets": [(HANDSHAKE, TICKET)] * 3,
    "new keys": [(HANDSHAKE, NEW_KEYS)] * 3,
    "new keys for both": [(HANDSHAKE, NEW_KEYS_BOTH)] * 3,
    "empty": [(APPLICATION, b"")] * 3,
}


@pytest.mark.parametrize("before", FEW.values(), ids=FEW.keys())
def test_an_answer_behind_a_few_of_them_is_read(
    sender: Sender, over_tls: OverTls, before: list[tuple[int, bytes]]
) -> None:
    def say(peer: HandMade) -> None:
        peer.talk.say(b"".join(peer.record(*one) for one in before))
        peer.say(answer())
        peer.talk.over.wait(5)

    with over_tls(after_the_request(say)) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_answer_in_records_of_one_byte_is_read(sender: Sender, over_tls: OverTls, version: ssl.TLSVersion) -> None:
    def say(peer: HandMade) -> None:
        for byte in answer():
            peer.say(bytes([byte]))
        peer.talk.over.wait(5)

    with over_tls(after_the_request(say), version) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)


def test_a_receiver_that_wants_to_shake_hands_again_is_not_obeyed(sender: Sender, over_tls: OverTls) -> None:
    def say(peer: HandMade) -> None:
        peer.talk.say(peer.record(HANDSHAKE, HELLO_REQUEST))
        peer.say(answer())
        kinds.append(peer.talk.sock.recv(1))
        peer.talk.over.wait(5)

    kinds: list[bytes] = []
    with over_tls(after_the_request(say), ssl.TLSVersion.TLSv1_2) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)
    assert kinds == [bytes([ALERT])]


def test_a_receiver_that_goes_on_wanting_it_holds_nobody(brief: Sender, over_tls: OverTls) -> None:
    with over_tls(flooding(HANDSHAKE, HELLO_REQUEST), ssl.TLSVersion.TLSv1_2) as receiver:
        result, took = sent(brief, receiver)
    assert result == failed(TOO_MUCH, receiver, FailureKind.PROTOCOL)
    assert took < 2


def test_a_handshake_byte_by_byte_is_a_handshake(sender: Sender, over_tls: OverTls) -> None:
    def serve(peer: HandMade) -> None:
        peer.shake_hands(every=0.0001)
        peer.request()
        peer.say(answer())
        peer.talk.over.wait(5)

    with over_tls(serve) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)


def test_a_handshake_that_takes_too_long_byte_by_byte_ends_at_the_deadline(brief: Sender, over_tls: OverTls) -> None:
    with over_tls(lambda peer: peer.shake_hands(every=0.02)) as receiver:
        result, took = sent(brief, receiver)
    detail = "the deadline came in the TLS handshake"
    assert result == failed(detail, receiver, FailureKind.TIMEOUT, reached=False)
    assert 0.5 <= took < 2


def test_a_handshake_that_is_begun_anew_for_ever_ends_by_its_bytes(brief: Sender) -> None:
    def greet(talk: Talk) -> None:
        ends = time.monotonic() + GIVES_UP
        while time.monotonic() < ends:
            talk.say((b"\x16\x03\x03\x00\x04" + HELLO_REQUEST) * 1000)

    with receiving(hanging, greet=greet) as receiver:
        receiver.url = receiver.url.replace("http:", "https:")
        result, took = sent(brief, receiver)
    assert result == failed(TOO_MUCH, receiver, FailureKind.TLS, reached=False)
    assert took < 2


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", Answered(200, "until it closes", None, "")),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\npart", Answered(500, "part", None, "")),
    ],
)
def test_a_receiver_that_closes_without_taking_leave_has_answered(
    sender: Sender, over_tls: OverTls, said: bytes, result: Answered
) -> None:
    with over_tls(after_the_request(lambda peer: peer.say(said))) as receiver:
        assert sender.send(post(receiver.url)) == replace(result, peer=receiver.peer)


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "in two"])
def test_an_answer_counts_though_nobody_hears_what_tls_replies(
    sender: Sender, over_tls: OverTls, *, apart: bool
) -> None:
    def say(peer: HandMade) -> None:
        pieces = [peer.record(HANDSHAKE, HELLO_REQUEST), peer.record(APPLICATION, answer())]
        peer.talk.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a reset drops what was not sent yet
        for piece in pieces if apart else [b"".join(pieces)]:
            peer.talk.say(piece)
        peer.talk.reset()

    with over_tls(after_the_request(say), ssl.TLSVersion.TLSv1_2) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)


def test_a_connection_on_which_a_reply_broke_off_carries_no_other_request(
    sender: Sender, over_tls: OverTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(peer: HandMade) -> None:
        monkeypatch.setattr(TlsSocket, "_flush", broken)
        peer.talk.say(peer.record(HANDSHAKE, NEW_KEYS_BOTH) + peer.record(APPLICATION, answer()))
        peer.talk.over.wait(5)

    def broken(_: TlsSocket) -> None:
        monkeypatch.undo()
        raise OutOfTime

    with over_tls(after_the_request(say)) as receiver:
        for _ in range(2):
            assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)
        assert receiver.connections == 2


def test_a_status_line_cut_in_half_by_such_a_close_delivers_nothing(sender: Sender, over_tls: OverTls) -> None:
    with over_tls(after_the_request(lambda peer: peer.say(b"HTTP/1.1 2"))) as receiver:
        assert isinstance(sender.send(post(receiver.url)), Failed)


def test_what_was_said_too_much_over_tls_is_not_taken_for_the_next_answer(
    sender: Sender, authority: trustme.CA, serve_with: ServerContext
) -> None:
    head = answer(500, b"")
    first = answer(500, b"n" * (8192 - len(head) - 3))
    assert len(first) == io.DEFAULT_BUFFER_SIZE  # as much as is read at once, so the rest stays with TLS
    both = saying(first + answer(200, b"forged"))
    with receiving(both, tls=serve_with(authority.issue_cert("localhost"))) as receiver:
        for _ in range(2):
            assert sender.send(post(receiver.url)) == Answered(500, "n" * 1024, None, receiver.peer)
        assert receiver.connections == 2
