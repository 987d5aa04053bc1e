"""The client against a service that says what is no contract."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from gateways.infrai import Infrai
from gateways.infrai_answers import Stats
from gateways.infrai_calls import Patience
from gateways.infrai_errors import Broken, InfraiError, Refused, Unreachable, Unreadable
from gateways.infrai_terms import Outgoing
from tests.gateways import receiver

WORK = Outgoing(payload={"n": 1})
MINUTE = timedelta(minutes=1)


@contextmanager
def saying(answer: bytes) -> Iterator[Infrai]:
    """A client of a service that always answers so."""

    def say(line: receiver.Talk, _: receiver.Request) -> None:
        line.say(answer)
        line.sock.close()

    with receiver.receiving(say) as service, Infrai(
        f"http://127.0.0.1:{service.port}", SecretStr("a-key"), verify=False
    ) as client:  # fmt: skip
        client.calls.pause = lambda _: None
        yield client


def http(body: bytes, head: bytes = b"HTTP/1.1 200 OK", length: int | None = None) -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def done(data: Any) -> bytes:
    return http(json.dumps({"ok": True, "data": data, "error": None}).encode())


@pytest.mark.parametrize(
    "error",
    [{"code": "NEW"}, {"code": "NEW", "hint": "h"}, {"code": "NEW", "message": "h"}, {}, None, "text",
     {"code": 7, "hint": ["h"]}],
)  # fmt: skip
def test_a_failure_may_lack_its_parts(error: object) -> None:
    answer = http(json.dumps({"ok": False, "error": error}).encode(), b"HTTP/1.1 418 I'm a teapot")
    with saying(answer) as client, pytest.raises(Refused) as refused:
        client.stats("q")
    named = isinstance(error, dict) and error.get("code") == "NEW"
    assert refused.value.code == ("NEW" if named else "UNKNOWN_ERROR")
    assert refused.value.hint == ("h" if isinstance(error, dict) and "h" in error.values() else "")


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (http(b"[]"), "body"),
        (http(b"{}"), "ok"),
        (http(b'{"ok": false, "data": {}}'), "ok"),
        (http(b'{"ok": true}'), "data"),
        (done(None), "data"),
        (done({"entries": []}), "data.items|messages"),
        (done({"items": {}}), "data.items|messages"),
        (done({"items": [{"payload": {}}]}), "data.items[0].message_id"),
        (
            done({"items": [{"message_id": "m", "payload": {}}, {"message_id": "n", "body": {}}]}),
            "data.items[1].payload",
        ),
        (done({"messages": [7]}), "data.messages[0]"),
        (done([{"message_id": "", "payload": {}}]), "data[0].message_id"),
    ],
)
def test_the_field_that_cannot_be_read_is_named(answer: bytes, field: str) -> None:
    with saying(answer) as client, pytest.raises(Unreadable) as unreadable:
        client.consume("q", most=1, lease=MINUTE)
    assert unreadable.value.field == field


def test_the_largest_message_is_read_also_with_every_letter_escaped() -> None:
    payload = {"a": "ä" * ((262_144 - 8) // 2)}
    with saying(done({"items": [{"message_id": "m", "payload": payload}] * 2})) as client:
        assert [message.payload for message in client.consume("q", most=2, lease=MINUTE)] == [payload] * 2


def test_fewer_ids_than_messages_are_not_taken_for_a_batch() -> None:
    with saying(done({"message_ids": ["a"]})) as client, pytest.raises(Unreadable) as unreadable:
        client.publish_batch("q", [WORK, WORK], intent="a")
    assert unreadable.value.field == "data.message_ids"


def test_stats_are_read_as_far_as_they_are_numbers() -> None:
    with saying(done({"visible": "3", "in_flight": 2, "delayed": True})) as client:
        assert client.stats("q") == Stats(None, 2, None, None, None)


@pytest.mark.parametrize(("name", "value"), [("job_id", "j"), ("cron_id", "j"), ("id", "j")])
def test_a_jobs_id_is_read_under_each_of_its_names(name: str, value: str) -> None:
    with saying(done({name: value})) as client:
        assert client.get_cron("j").job_id == "j"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (http(b"x", length=1000), "the connection ended waiting for the answer"),
        (http(b"x" * 3_000_000), "the answer is longer than any answer of this call"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "is compressed"),
        (b"nonsense\r\n\r\n", "the connection ended waiting for the answer"),
    ],
)
def test_an_answer_that_is_none_is_unreachable(answer: bytes, line: str) -> None:
    with saying(answer) as client, pytest.raises(Unreachable, match=line):
        client.stats("q")


def test_a_hint_is_one_line_and_repeats_no_key() -> None:
    error = {"code": "BAD\nCODE", "message": "your key a-key\r\nis no good " + "x" * 500}
    answer = http(json.dumps({"ok": False, "error": error}).encode(), b"HTTP/1.1 400 Bad Request")
    with saying(answer) as client, pytest.raises(InfraiError) as refused:
        client.stats("q")
    line = str(refused.value)
    assert "a-key" not in line
    assert line.isprintable()
    assert len(line) < 400


def test_a_call_without_a_body_says_so_and_sends_nothing_behind_its_head() -> None:
    heard: list[receiver.Request] = []
    left: list[bytes] = []

    def hear(line: receiver.Talk, request: receiver.Request) -> None:
        heard.append(request)
        left.append(line.left)
        line.say(done({}))

    with receiver.receiving(hear) as service, Infrai(
        f"http://127.0.0.1:{service.port}", SecretStr("a-key"), verify=False
    ) as client:  # fmt: skip
        client.stats("q")
        client.stats("q")
    assert [(one.line, one.headers["Content-Length"]) for one in heard] == [("GET /v1/queue/stats/q HTTP/1.1", "0")] * 2
    assert not any("Transfer-Encoding" in one.headers for one in heard)
    assert left == [b"", b""]


def test_a_redirect_is_not_followed() -> None:
    answer = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with saying(answer) as client, pytest.raises(Broken) as refused:
        client.stats("q")
    assert refused.value.told.status == 307


def test_a_drip_meets_the_deadline() -> None:
    def drip(line: receiver.Talk, _: receiver.Request) -> None:
        line.drip(done({}) + b" " * 1000, 0.02)

    patience = Patience(deadline=timedelta(seconds=0.4))
    with receiver.receiving(drip) as service, Infrai(
        f"http://127.0.0.1:{service.port}", SecretStr("a-key"), verify=False, patience=patience
    ) as client, pytest.raises(Unreachable):  # fmt: skip
        client.stats("q")
