"""Every answer a receiver may give is a value, and the status line decides."""

import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.webhooks import Answered, Failed, FailureKind
from gateways.webhook import Limits, Sender, _inflated
from tests.gateways.posts import NOW, post
from tests.gateways.receiver import (
    BOMB,
    Behaviour,
    Request,
    Talk,
    answer,
    dripping,
    flooding,
    hanging,
    receiving,
    saying,
    saying_last,
    saying_then_reset,
)

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "status", [200, 201, 204, 299, 300, 302, 400, 404, 408, 410, 425, 429, 500, 503, 599, 600, 999]
)
def test_a_status_is_given_as_it_came(sender: Sender, status: int) -> None:
    with receiving(saying(answer(status, b""))) as receiver:
        assert sender.send(post(receiver.url)) == Answered(status, "", None, receiver.peer)


AFTER_THE_STATUS_LINE = {
    "100 fifty times": (b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + answer(), 200, "ok"),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(), 200, "ok"),
    "102 and 100": (b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + answer(410), 410, "ok"),
    "a line of 70,000 bytes": (answer(200, b"ok", "X: " + "h" * 70_000), 200, ""),
    "such a line after 500": (answer(500, b"no", "X: " + "h" * 70_000), 500, ""),
    "70,000 bytes in 70 lines": (answer(200, b"ok", *(f"X-{n}: {'h' * 1000}" for n in range(70))), 200, "ok"),
    "200 headers": (answer(200, b"ok", *(f"X-{n}: h" for n in range(200))), 200, ""),
    "rubbish for a header": (b"HTTP/1.1 200 OK\r\n\x00\xff no header\r\n\r\nok", 200, "ok"),
    "a body shorter than said": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart", 200, "part"),
    "the same after 503": (b"HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\npart", 503, "part"),
    "a body longer than said": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", 200, "ok"),
    "a negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nok", 200, "ok"),
    "no number for a length": (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nok", 200, "ok"),
    "an endless length": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok", 200, "ok"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", 200, ""),
    "chunks": (_CHUNKED + b"2\r\nok\r\n0\r\n\r\n", 200, "ok"),
    "rubbish for a chunk": (_CHUNKED + b"2\r\nok\r\nrubbish\r\n", 200, "ok"),
    "a negative chunk": (_CHUNKED + b"-5\r\nok", 200, "ok"),
    "an endless chunk": (_CHUNKED + b"ffffffffffffffffffff\r\nok", 200, "ok"),
    "a version from the future": (b"HTTP/3 200 OK\r\n\r\n", 200, ""),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nuntil it closes", 200, "until it closes"),
    "nothing but a status": (b"HTTP/1.1 200\r\n\r\n", 200, ""),
    "NUL and bad UTF-8": (answer(200, b"a\x00b\xff\xfe\xc3"), 200, "ab\ufffd\ufffd\ufffd"),
    "an unknown charset": (answer(200, "Übung".encode(), "Content-Type: text/plain; charset=nonsense"), 200, "Übung"),
    "more than is kept": (answer(200, b"z" * 1500), 200, "z" * 1024),
    "a bomb of gzip": (answer(200, BOMB, "Content-Encoding: gzip"), 200, "0" * 1024),
    "gzip that is none": (answer(200, b"no gzip", "Content-Encoding: gzip"), 200, "no gzip"),
    "unknown encodings": (answer(200, b"no gzip", "Content-Encoding: br, gzip"), 200, "no gzip"),
    "a redirect": (answer(302, b"go", "Location: http://127.0.0.1:1/", "Set-Cookie: a=b"), 302, "go"),
    "a bad cookie": (answer(500, b"no", "Set-Cookie: \x80=; expires=99999999999999"), 500, "no"),
}


@pytest.mark.parametrize(("said", "status", "body"), AFTER_THE_STATUS_LINE.values(), ids=AFTER_THE_STATUS_LINE.keys())
def test_whatever_comes_after_the_status_line_it_decides(sender: Sender, said: bytes, status: int, body: str) -> None:
    with receiving(saying_last(said)) as receiver:
        assert sender.send(post(receiver.url)) == Answered(status, body, None, receiver.peer)


def test_a_bomb_is_not_unpacked_further_than_is_read() -> None:
    assert len(BOMB) > 16_384
    assert _inflated(BOMB[:16_384], "gzip", 16_384) == b"0" * 16_384


def test_an_answer_that_breaks_off_in_its_body_is_an_answer(sender: Sender) -> None:
    with receiving(saying_then_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart")) as receiver:
        assert sender.send(post(receiver.url)) == Answered(200, "part", None, receiver.peer)


NO_HTTP = {
    "HTTP/0.9": b"<html>HTTP/0.9 has no status line</html>",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no number": b"HTTP/1.1 abc Whatever\r\n\r\n",
    "too small": b"HTTP/1.1 99 Too Small\r\n\r\n",
    "too large": b"HTTP/1.1 1000 Too Large\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "bytes": b"\x00\x01\x02\xff\xfe\r\n\r\n",
    "blank lines first": b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "one long line": b"x" * 70_000,
}


@pytest.mark.parametrize("said", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_is_a_fault_of_protocol(sender: Sender, said: bytes) -> None:
    with receiving(saying_last(said)) as receiver:
        failed = sender.send(post(receiver.url))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.peer, failed.sent) == (FailureKind.PROTOCOL, receiver.peer, True)
    assert failed.detail.isprintable()
    assert len(failed.detail) <= 200


@pytest.mark.parametrize(
    "behave",
    [saying_last(b""), saying_then_reset(b""), saying_then_reset(b"HTTP/1.1 20")],
    ids=["closed", "reset", "reset in the middle"],
)
def test_a_connection_that_breaks_before_the_status_line_is_no_answer(sender: Sender, behave: Behaviour) -> None:
    with receiving(behave) as receiver:
        failed = sender.send(post(receiver.url))
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.peer, failed.sent) == (FailureKind.RESET, receiver.peer, True)
    assert failed.detail.endswith(", waiting for the answer")


def test_a_status_line_cut_in_half_delivers_nothing(sender: Sender) -> None:
    with receiving(saying_last(b"HTTP/1.1 2")) as receiver:
        assert isinstance(sender.send(post(receiver.url)), Failed)


@pytest.mark.parametrize(
    ("behave", "result"),
    [
        (flooding(b"HTTP/1.1 500 Oh\r\n\r\n", b"b" * 60_000), Answered(500, "b" * 1024, None, "")),
        (flooding(b"HTTP/1.1 500 Oh\r\n", b"X: " + b"h" * 60_000 + b"\r\n"), Answered(500, "", None, "")),
        (flooding(b"HTTP/1.1 302 No\r\nLocation: /x\r\n\r\n", b"b" * 60_000), Answered(302, "b" * 1024, None, "")),
        (flooding(_CHUNKED + b"0\r\n", b"X: " + b"t" * 60_000 + b"\r\n"), Answered(200, "", None, "")),
        (
            flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
            Failed(FailureKind.PROTOCOL, "TooMuch: more than any answer needs", "", sent=True),
        ),
    ],
    ids=["body", "headers", "redirect", "trailers", "interim answers"],
)
def test_a_flood_ends_long_before_the_deadline(sender: Sender, behave: Behaviour, result: Answered | Failed) -> None:
    started = time.monotonic()
    with receiving(behave) as receiver:
        came = sender.send(post(receiver.url))
    assert came == type(result)(**{name: getattr(result, name) for name in result.__slots__} | {"peer": receiver.peer})
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("behave", "result"),
    [
        (hanging, Failed(FailureKind.TIMEOUT, "the deadline came waiting for the answer", "", sent=True)),
        (
            dripping(b"HTTP/1.1 ", b"2" * 99),
            Failed(FailureKind.TIMEOUT, "the deadline came waiting for the answer", "", sent=True),
        ),
        (
            dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            Failed(FailureKind.TIMEOUT, "the deadline came waiting for the answer", "", sent=True),
        ),
        (dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), Answered(200, "", None, "")),
        (dripping(b"HTTP/1.1 500 Oh\r\nContent-Length: 9999\r\n\r\n", b"."), Answered(500, "..", None, "")),
        (dripping(_CHUNKED, b"1\r\n.\r\n"), Answered(200, "..", None, "")),
    ],
    ids=["hangs", "status", "interim answers", "headers", "body", "chunks"],
)
def test_what_drips_or_hangs_ends_at_the_deadline(brief: Sender, behave: Behaviour, result: Answered | Failed) -> None:
    with receiving(behave) as receiver:
        started = time.monotonic()
        came = brief.send(post(receiver.url))
        took = time.monotonic() - started
    assert 0.5 <= took < 3
    match came, result:
        case Answered(), Answered():
            assert came.status == result.status
            assert came.body_cut.startswith(result.body_cut)
        case _:
            assert came == Failed(result.kind, result.detail, receiver.peer, result.sent)  # type: ignore[union-attr]  # one that failed


def test_a_receiver_that_does_not_read_ends_at_the_deadline(brief: Sender) -> None:
    with receiving(hanging, greet=_wait) as receiver:
        started = time.monotonic()
        came = brief.send(post(receiver.url, body=b"x" * 12_000_000))
        took = time.monotonic() - started
    assert came == Failed(FailureKind.TIMEOUT, "the deadline came sending the request", receiver.peer, sent=True)
    assert 0.5 <= took < 3


def _wait(talk: Talk) -> None:
    talk.over.wait(5)


def test_an_answer_before_the_body_was_read_counts(sender: Sender) -> None:
    def refuse(talk: Talk) -> None:
        talk.sock.recv(1000)
        talk.say(answer(413, b"too large"))
        talk.over.wait(5)

    with receiving(hanging, greet=refuse) as receiver:
        assert sender.send(post(receiver.url)) == Answered(413, "too large", None, receiver.peer)


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        (["Retry-After: 120"], timedelta(seconds=120)),
        (["Retry-After: 0"], timedelta(0)),
        (["Retry-After: 86400"], timedelta(days=1)),
        (["Retry-After: 604800"], timedelta(days=1)),
        (["Retry-After: -5"], None),
        (["Retry-After: soon"], None),
        (
            ["Retry-After: " + format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)],
            timedelta(seconds=90),
        ),
        (
            ["Retry-After: Wed, 21 Oct 2015 07:29:00 GMT", "Date: Wed, 21 Oct 2015 07:28:00 GMT"],
            timedelta(minutes=1),
        ),
        (["Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"], None),
    ],
)
def test_what_a_receiver_asks_for_is_read(sender: Sender, headers: list[str], asked: timedelta | None) -> None:
    with receiving(saying(answer(503, b"later", *headers))) as receiver:
        assert sender.send(post(receiver.url)) == Answered(503, "later", asked, receiver.peer)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    said=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=200).map(lambda rest: b"HTTP/1.1 200 OK\r\n" + rest),
        st.lists(
            st.sampled_from([
                b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 3\r\n", b"\r\n", b"abc",
                b"Transfer-Encoding: chunked\r\n", b"3\r\n", b"0\r\n\r\n", b"Content-Encoding: gzip\r\n", b": \r\n",
                b"Set-Cookie: a=b; Expires=x; Max-Age=y\r\n", b"Content-Type: x/y; charset=\xff\r\n", b" folded\r\n",
                b"Retry-After: \xb2\r\n", b"Date: Fri, 99 Foo 10000\r\n", b"\x00", b"\r",
            ])
        ).map(b"".join),
    )
)  # fmt: skip
def test_no_bytes_whatever_make_the_sender_raise(said: bytes) -> None:
    limits = Limits(deadline=timedelta(seconds=5))
    with (
        receiving(saying_last(said)) as receiver,
        contextlib.closing(Sender(limits, dangerous=True)) as sender,
    ):
        came = sender.send(post(receiver.url))
    if isinstance(came, Failed):
        assert came.kind in {FailureKind.PROTOCOL, FailureKind.RESET}
        assert came.sent
    else:
        assert "\x00" not in came.body_cut
        assert said.lstrip().startswith(b"HTTP/1.")


def test_a_request_never_waits_for_another(sender: Sender) -> None:
    def first_hangs(talk: Talk, request: Request) -> None:
        if request.body == b"hang":
            talk.over.wait(3)
        talk.say(answer())

    with receiving(first_hangs) as receiver:
        slow = threading.Thread(target=sender.send, args=(post(receiver.url, body=b"hang"),))
        slow.start()
        while not receiver.requests:
            assert slow.is_alive()
        assert sender.send(post(receiver.url)) == Answered(200, "ok", None, receiver.peer)
        assert slow.is_alive()
    slow.join()
