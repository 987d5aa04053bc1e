"""The client against a service that is busy, away, drops its answers, or says what is no contract."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from comparison.infrai_server.faults import Fault, Kind
from gateways.infrai import Infrai
from gateways.infrai_answers import Stats
from gateways.infrai_calls import Patience
from gateways.infrai_errors import Broken, CreditRefused, InfraiError, Unreachable, Unreadable, WaitAsked
from gateways.infrai_terms import Outgoing
from tests.comparison.talking import Talk, talking
from tests.gateways import receiver

WORK = Outgoing(payload={"n": 1})
MINUTE = timedelta(minutes=1)


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking() as talk:
        talk.queue()
        yield talk


@pytest.fixture
def waits() -> list[float]:
    """The waits of the client, which takes none of them."""
    return []


@pytest.fixture
def client(talk: Talk, waits: list[float]) -> Iterator[Infrai]:
    with Infrai(talk.server.url, SecretStr(talk.server.key), verify=False) as client:
        client.calls.pause = waits.append
        yield client


def fault(talk: Talk, kind: Kind, **fields: Any) -> None:
    talk.server.faults.add(Fault(kind=kind, **fields))


@pytest.mark.parametrize("kind", [Kind.RATE_LIMIT, Kind.MAINTENANCE])
def test_a_wait_of_two_seconds_is_waited_as_asked(talk: Talk, client: Infrai, waits: list[float], kind: Kind) -> None:
    fault(talk, kind, times=2, retry_after=2)
    client.publish("q", WORK, intent="a")
    assert waits == [2.0, 2.0]
    assert talk.stats() == (1, 0, 0, 0)


@pytest.mark.parametrize("as_date", [False, True])
def test_a_longer_wait_is_handed_to_the_caller_at_once(
    talk: Talk, client: Infrai, waits: list[float], *, as_date: bool
) -> None:
    fault(talk, Kind.RATE_LIMIT, retry_after=90, as_date=as_date)
    with pytest.raises(WaitAsked) as asked:
        client.publish("q", WORK, intent="a")
    assert timedelta(seconds=88) <= asked.value.after <= timedelta(seconds=91)
    assert (asked.value.code, asked.value.hint) == ("RATE_LIMIT_USER", "slow down")
    assert waits == []
    assert talk.stats() == (0, 0, 0, 0)


@pytest.mark.parametrize("kind", [Kind.RATE_LIMIT, Kind.MAINTENANCE])
def test_without_an_instruction_waits_double_and_attempts_are_bounded(
    talk: Talk, client: Infrai, waits: list[float], kind: Kind
) -> None:
    fault(talk, kind, times=100)
    with pytest.raises(WaitAsked):
        client.publish("q", WORK, intent="a")
    assert len(waits) == 3
    for wait, top in zip(waits, (0.1, 0.2, 0.4), strict=True):
        assert top / 2 <= wait <= top
    talk.server.faults.clear()
    assert talk.stats() == (0, 0, 0, 0)


@pytest.mark.parametrize(("status", "error"), [(429, WaitAsked), (503, WaitAsked), (500, Broken), (402, CreditRefused),
                                               (200, Unreadable)])  # fmt: skip
def test_an_answer_that_is_no_json_is_judged_by_its_status(
    talk: Talk, client: Infrai, status: int, error: type[InfraiError]
) -> None:
    fault(talk, Kind.NOT_JSON, status=status, times=100)
    with pytest.raises(error):
        client.publish("q", WORK, intent="a")
    talk.server.faults.clear()
    assert talk.stats() == (0, 0, 0, 0)


def test_a_page_of_html_with_429_is_waited_for_and_then_it_works(
    talk: Talk, client: Infrai, waits: list[float]
) -> None:
    fault(talk, Kind.NOT_JSON, status=429, retry_after=1)
    client.publish("q", WORK, intent="a")
    assert (waits, talk.stats()) == ([1.0], (1, 0, 0, 0))


def test_an_answer_dropped_after_the_effect_publishes_once(talk: Talk, client: Infrai, waits: list[float]) -> None:
    fault(talk, Kind.DROP, path="/v1/queue/publish")
    client.publish("q", WORK, intent="a")
    fault(talk, Kind.DROP, path="/v1/queue/publish_batch", times=2)
    client.publish_batch("q", [WORK, WORK], intent="b")
    assert talk.stats() == (3, 0, 0, 0)
    assert len(waits) == 3


def test_an_answer_dropped_each_time_is_unreachable_and_the_next_process_publishes_once(
    talk: Talk, client: Infrai
) -> None:
    fault(talk, Kind.DROP, times=4)
    with pytest.raises(Unreachable) as lost:
        client.publish("q", WORK, intent="a")
    assert lost.value.told.status is None
    with Infrai(talk.server.url, SecretStr(talk.server.key), verify=False) as other:
        published = other.publish("q", WORK, intent="a")
    assert talk.stats() == (1, 0, 0, 0)
    assert talk.messages()[0]["message_id"] == published


def test_an_ack_whose_answer_is_dropped_is_done(talk: Talk, client: Infrai) -> None:
    published = client.publish("q", WORK, intent="a")
    client.consume("q", most=1, lease=MINUTE)
    fault(talk, Kind.DROP)
    assert client.ack("q", published) is True
    assert client.stats("q") == Stats(0, 0, 0, 0, 0.0)


def test_a_consume_whose_answer_is_dropped_is_answered_again_with_the_same_messages(talk: Talk, client: Infrai) -> None:
    published = client.publish("q", WORK, intent="a")
    fault(talk, Kind.DROP)
    assert [message.message_id for message in client.consume("q", most=1, lease=MINUTE)] == [published]
    assert client.consume("q", most=1, lease=MINUTE) == []
    assert talk.stats() == (0, 1, 0, 0)


def test_what_a_lost_consume_took_comes_back_when_its_lease_ends(talk: Talk, client: Infrai) -> None:
    client.publish("q", WORK, intent="a")
    fault(talk, Kind.DROP, times=4)
    with pytest.raises(Unreachable):
        client.consume("q", most=1, lease=MINUTE)
    assert client.consume("q", most=1, lease=MINUTE) == []
    talk.server.advance(60)
    assert len(client.consume("q", most=1, lease=MINUTE)) == 1


def test_every_look_is_a_look_of_its_own_where_the_service_makes_keys_of_bodies() -> None:
    with talking(derived_keys=True) as talk, Infrai(talk.server.url, SecretStr(talk.server.key)) as client:
        client.create_queue("q")
        assert client.consume("q", most=1, lease=MINUTE) == []
        ids = [client.publish("q", WORK, intent=intent) for intent in "ab"]
        found = [client.consume("q", most=1, lease=MINUTE)[0].message_id for _ in ids]
        assert found == ids
        assert [client.ack("q", one) for one in ids] == [True, True]
        assert talk.stats() == (0, 0, 0, 0)


def test_a_service_that_stalls_meets_the_deadline_and_the_repeat_waits_for_the_first(talk: Talk) -> None:
    patience = Patience(deadline=timedelta(seconds=0.3))
    with Infrai(talk.server.url, SecretStr(talk.server.key), verify=False, patience=patience) as client:
        fault(talk, Kind.STALL, seconds=0.6)
        with pytest.raises(Unreachable, match="the deadline came waiting for the answer"):
            client.publish("q", WORK, intent="a")
    with Infrai(talk.server.url, SecretStr(talk.server.key), verify=False) as other:
        other.publish("q", WORK, intent="a")
    assert talk.stats() == (1, 0, 0, 0)


def test_where_nobody_listens_it_is_unreachable(waits: list[float]) -> None:
    with receiver.receiving(lambda *_: None) as gone:
        url = f"http://127.0.0.1:{gone.port}"
    with Infrai(url, SecretStr("a-key"), verify=False) as client:
        client.calls.pause = waits.append
        with pytest.raises(Unreachable, match="Connection refused, connecting") as lost:
            client.stats("q")
    assert len(waits) == 3
    assert "a-key" not in str(lost.value)


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
