"""Before its first use a call is checked against discovery, and what changed is said."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from comparison.infrai_server.faults import Fault, Kind
from gateways.infrai import Infrai
from gateways.infrai_errors import ContractChanged, WaitAsked
from gateways.infrai_terms import Outgoing
from tests.comparison.talking import Talk, talking

WORK = Outgoing(payload={"n": 1})


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking() as talk:
        talk.queue()
        yield talk


@pytest.fixture
def client(talk: Talk) -> Iterator[Infrai]:
    with Infrai(talk.server.url, SecretStr(talk.server.key)) as client:
        yield client


def changed(talk: Talk, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let discovery tell otherwise of queue.publish."""
    documents = talk.server.app.documents
    told = documents.detail("queue.publish") | fields
    monkeypatch.setattr(documents, "detail", lambda name: told if name == "queue.publish" else None)


def test_the_contract_server_and_the_client_agree_on_every_call(client: Infrai) -> None:
    assert client.check() == []


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"method": "PUT"}, "queue.publish: method is 'PUT', this client has POST"),
        ({"path": "/v2/publish"}, "queue.publish: path is '/v2/publish', this client has /v1/queue/publish"),
        ({"available": False}, "queue.publish: available is false, this client has true"),
        ({"params": None}, "queue.publish: params is not readable, this client has a JSON Schema with `properties`"),
        (
            {"params": {"properties": {"queue": {}, "payload": {}, "region": {}},
                        "required": ["queue", "payload", "region", "idempotency_key"]}},
            (
                "queue.publish: params is only payload, queue, region, this client has also delay_seconds; "
                "queue.publish: params is required: region, this client has not sent"
            ),
        ),
    ],
)  # fmt: skip
def test_what_changed_is_said_and_nothing_is_sent(
    talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch, fields: Any, line: str
) -> None:
    changed(talk, monkeypatch, **fields)
    assert "; ".join(map(str, client.check(["queue.publish"]))) == line
    with pytest.raises(ContractChanged) as refused:
        client.publish("q", WORK, intent="a")
    assert refused.value.hint == line
    assert talk.stats() == (0, 0, 0, 0)


def test_a_field_that_few_send_is_missed_in_discovery_only_by_who_sends_it(
    talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: dict[str, Any] = {"queue": {}, "payload": {}, "delay_seconds": {}, "idempotency_key": {}}
    changed(talk, monkeypatch, params={"type": "object", "properties": published, "required": ["queue", "payload"]})
    assert client.check(["queue.publish"]) == []
    client.publish("q", WORK, intent="a")
    with pytest.raises(ContractChanged) as refused:
        client.publish("q", Outgoing(payload={"n": 2}, priority=5), intent="b")
    assert refused.value.hint == (
        "queue.publish: params is only delay_seconds, idempotency_key, payload, queue, this client has also priority"
    )
    assert talk.stats() == (1, 0, 0, 0)


def test_a_call_that_is_not_in_discovery_is_told(talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(talk, monkeypatch)
    assert [str(one) for one in client.check(["queue.publish", "queue.nack"])] == [
        "queue.nack: capability is not in discovery, this client has POST /v1/queue/nack"
    ]


@pytest.mark.parametrize("path", ["/v1/queue/stats/{queue}", "/v1/queue/stats/:name", "/v1/queue/stats"])
def test_a_path_may_be_spelled_with_its_placeholder_or_without(
    talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    documents = talk.server.app.documents
    told = documents.detail("queue.stats") | {"path": path}
    monkeypatch.setattr(documents, "detail", lambda _: told)
    assert client.check(["queue.stats"]) == []


def test_a_call_is_checked_once(talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch) -> None:
    client.publish("q", WORK, intent="a")
    changed(talk, monkeypatch, method="PUT")
    client.publish("q", WORK, intent="b")
    assert talk.stats() == (2, 0, 0, 0)


def test_discovery_may_ask_for_time_and_is_asked_again_afterwards(talk: Talk, client: Infrai) -> None:
    talk.server.faults.add(Fault(kind=Kind.RATE_LIMIT, path="/v1/discovery", retry_after=60))
    with pytest.raises(WaitAsked) as asked:
        client.publish("q", WORK, intent="a")
    assert asked.value.after == timedelta(seconds=60)
    client.publish("q", WORK, intent="a")
    assert talk.stats() == (1, 0, 0, 0)


@pytest.mark.parametrize("told", [None, {"method": "PUT"}, {"available": False}], ids=["gone", "otherwise", "away"])
def test_where_discovery_knows_no_such_batch_messages_go_one_by_one_and_it_is_asked_once(
    talk: Talk, client: Infrai, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any] | None
) -> None:
    documents, asked = talk.server.app.documents, list[str]()
    real = documents.detail

    def detail(name: str) -> Any:
        asked.append(name)
        if name != "queue.publish_batch":
            return real(name)
        return None if told is None else real(name) | told

    monkeypatch.setattr(documents, "detail", detail)
    assert client.at_once() == 8
    for intent in ("b", "b", "c"):
        assert len(client.publish_batch("q", [WORK, WORK], intent=intent)) == 2
    assert talk.stats() == (4, 0, 0, 0)
    assert asked.count("queue.publish_batch") == 1
