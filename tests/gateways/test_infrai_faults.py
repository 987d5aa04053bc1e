"""The client against a service that is busy, away, or drops its answers."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from comparison.infrai_server.faults import Fault, Kind
from comparison.infrai_server.problems import CODES, Code
from gateways.infrai import Infrai
from gateways.infrai_answers import Stats
from gateways.infrai_calls import Patience
from gateways.infrai_errors import (
    Broken,
    Conflicting,
    CreditRefused,
    InfraiError,
    KeyRefused,
    NotThere,
    Refused,
    Unreachable,
    Unreadable,
    WaitAsked,
)  # fmt: skip
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


_KINDS: dict[int, type[InfraiError]] = {
    400: Refused, 401: KeyRefused, 402: CreditRefused, 403: KeyRefused, 404: NotThere, 405: NotThere, 409: Conflicting,
    413: Refused, 429: WaitAsked, 500: Broken, 503: WaitAsked,
}  # fmt: skip


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_each_code_of_the_catalogue_is_an_error_of_its_kind_and_only_those_that_ask_for_it_are_asked_again(
    talk: Talk, client: Infrai, waits: list[float], code: Code
) -> None:
    fault(talk, Kind.REFUSE, code=code.name, times=4)
    with pytest.raises(_KINDS[code.status]) as refused:
        client.publish("q", WORK, intent="a")
    assert (refused.value.told.status, refused.value.code) == (code.status, code.name)
    assert refused.value.hint == "refused by order"
    assert len(refused.value.request_id) == 36
    assert len(waits) == (3 if code.retryable else 0)
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
