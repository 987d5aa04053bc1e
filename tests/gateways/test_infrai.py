"""The client against the contract server: each call, and what is refused before anything is sent."""

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from comparison.infrai_server.app import Key
from domain.errors import BadInput
from gateways.infrai import Infrai
from gateways.infrai_answers import Message, Stats
from gateways.infrai_errors import (
    Conflicting,
    InfraiError,
    KeyRefused,
    NotThere,
    Refused,
    Told,
    Unreachable,
    Unreadable,
    WaitAsked,
)
from gateways.infrai_terms import CronTerms, Outgoing, QueueTerms
from tests.comparison.talking import Talk, talking

MINUTE = timedelta(minutes=1)
WORK = Outgoing(payload={"n": 1})


@pytest.fixture(params=["items", "messages", "bare"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with talking(consume_key=request.param, keys_required=True, cron_fields="clients") as talk:
        yield talk


@pytest.fixture
def client(talk: Talk) -> Iterator[Infrai]:
    with Infrai(talk.server.url, SecretStr(talk.server.key)) as client:
        client.create_queue("q")
        yield client


def test_a_message_goes_there_and_back_in_each_way_of_answering(client: Infrai) -> None:
    published = client.publish("q", WORK, intent="a")
    assert client.consume("q", most=10, lease=MINUTE) == [Message(published, {"n": 1})]
    assert client.consume("q", most=10, lease=MINUTE) == []
    assert client.ack("q", published) is True
    assert client.stats("q") == Stats(0, 0, 0, 0, 0.0)


def test_an_intent_is_published_once_and_the_next_try_is_another(client: Infrai) -> None:
    first = client.publish("q", WORK, intent="a#1")
    assert client.publish("q", WORK, intent="a#1") == first
    assert client.publish("q", WORK, intent="a#2") != first
    assert client.stats("q").visible == 2


def test_eight_threads_of_one_client_publish_each_intent_once(client: Infrai) -> None:
    barrier = threading.Barrier(8)

    def publish(_: int) -> list[str]:
        barrier.wait()
        return [client.publish("q", WORK, intent=f"race-{n}") for n in range(25)]

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(publish, range(8)))
    assert ids == [ids[0]] * 8
    assert len(set(ids[0])) == client.stats("q").visible == 25


def test_an_intent_with_another_body_is_a_conflict_and_the_first_message_stands(client: Infrai) -> None:
    client.publish("q", Outgoing(payload={"n": 1}, delay=MINUTE), intent="a")
    with pytest.raises(Conflicting) as conflict:
        client.publish("q", WORK, intent="a")
    assert (conflict.value.code, conflict.value.told.status) == ("IDEMPOTENCY_CONFLICT", 409)
    assert client.stats("q") == Stats(0, 0, 1, 0, 0.0)


def test_a_batch_is_published_in_order_and_once(client: Infrai) -> None:
    batch = [Outgoing(payload={"n": n}, delay=timedelta(seconds=0.5)) for n in range(100)]
    ids = client.publish_batch("q", batch, intent="b")
    assert client.publish_batch("q", batch, intent="b") == ids
    assert client.stats("q") == Stats(0, 0, 100, 0, 0.0)
    for wrong in ([], [*batch, WORK]):
        with pytest.raises(BadInput, match="a batch has 1 to 100"):
            client.publish_batch("q", wrong, intent="c")


def test_where_there_is_no_batch_they_go_one_by_one_each_once(client: Infrai, talk: Talk) -> None:
    batch = [Outgoing(payload={"n": n}) for n in range(3)]
    assert client.at_once() == 100
    del talk.server.app._plain["/v1/queue/publish_batch"]
    ids = client.publish_batch("q", batch, intent="b")
    assert client.publish_batch("q", batch, intent="b") == ids
    found = {message.message_id: message.payload for message in client.consume("q", most=9, lease=MINUTE)}
    assert [found.pop(str(one)) for one in ids] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert found == {}


def test_of_messages_that_go_one_by_one_one_that_was_published_otherwise_stands_and_the_others_go(
    client: Infrai, talk: Talk
) -> None:
    del talk.server.app._plain["/v1/queue/publish_batch"]
    first = client.publish_batch("q", [Outgoing(payload={"n": n}) for n in range(2)], intent="b")
    again = [Outgoing(payload={"n": n}) for n in (0, 7, 2)]
    ids = client.publish_batch("q", again, intent="b")
    assert (ids[0], ids[1]) == (first[0], None)
    assert ids[2] not in {None, *first}
    assert client.stats("q").visible == 3


def test_messages_of_a_group_that_go_one_by_one_stay_in_order(client: Infrai, talk: Talk) -> None:
    client.create_queue("f", QueueTerms(fifo=True))
    del talk.server.app._plain["/v1/queue/publish_batch"]
    ids = client.publish_batch("f", [Outgoing(payload={"n": n}, group="g") for n in range(20)], intent="b")
    for expected in ids:
        [message] = client.consume("f", most=9, lease=MINUTE)
        assert message.message_id == expected
        client.ack("f", message.message_id)


def test_what_is_gone_is_told_and_is_no_error(client: Infrai) -> None:
    assert client.ack("q", "msg_unknown") is False
    assert client.nack("q", "msg_unknown") is False
    assert client.delete_queue("none") is False
    assert client.delete_cron("none") is False
    assert client.delete_queue("q") is True


def test_a_queue_is_found_as_it_is_or_told_to_be_otherwise(client: Infrai) -> None:
    terms = QueueTerms(max_retries=4, lease=MINUTE, retention_days=30)
    assert client.create_queue("p", terms) is True
    assert client.create_queue("p", terms) is True
    assert client.create_queue("p", QueueTerms(max_retries=5, lease=MINUTE, retention_days=30)) is False


def test_a_dead_message_is_redriven(client: Infrai) -> None:
    client.create_queue("dead")
    client.create_queue("p", QueueTerms(dead_letter_queue="dead", max_retries=0))
    published = client.publish("p", WORK, intent="a")
    client.consume("p", most=1, lease=MINUTE)
    assert client.nack("p", published, delay=MINUTE) is True
    assert client.stats("p").dlq == 1
    client.redrive("p")
    assert [message.payload for message in client.consume("p", most=1, lease=MINUTE)] == [{"n": 1}]


def test_nacking_twice_is_meant_twice(client: Infrai) -> None:
    published = client.publish("q", WORK, intent="a")
    for _ in range(3):
        assert len(client.consume("q", most=1, lease=MINUTE)) == 1
        assert client.nack("q", published) is True


def test_a_fifo_queue_keeps_the_order_of_a_group(client: Infrai) -> None:
    client.create_queue("f", QueueTerms(fifo=True))
    for n in range(2):
        client.publish("f", Outgoing(payload={"n": n}, group="g", deduplication_id=f"d{n}"), intent=f"f{n}")
    assert [message.payload for message in client.consume("f", most=9, lease=MINUTE)] == [{"n": 0}]


def test_a_scheduled_call_is_made_once_and_lives_as_it_is_told(client: Infrai) -> None:
    terms = CronTerms(name="sweep", url="https://example.com/sweep", expression="*/5 * * * *", payload={"run": 1})
    made = client.create_cron(terms)
    assert client.create_cron(terms).job_id == made.job_id
    assert client.create_cron(terms, intent="another").job_id != made.job_id
    assert client.get_cron(made.job_id).fields["next_run_at"] == "2026-12-01T00:05:00Z"
    assert len(client.list_crons()) == 2
    for enabled, act in ((False, client.pause_cron), (True, client.resume_cron), (False, client.pause_cron)):
        act(made.job_id)
        assert client.get_cron(made.job_id).fields["enabled"] is enabled
    client.trigger_cron(made.job_id)
    client.trigger_cron(made.job_id)
    assert len(client.cron_runs(made.job_id)) == 2
    assert client.delete_cron(made.job_id) is True
    with pytest.raises(NotThere):
        client.get_cron(made.job_id)


def test_a_one_shot_says_when(client: Infrai) -> None:
    at = datetime(2026, 12, 24, 17, tzinfo=UTC)
    job = client.create_cron(CronTerms(name="eve", url="https://example.com/", run_at=at, retry=1, max_runs=1))
    assert job.fields["next_run_at"] == "2026-12-24T17:00:00Z"
    for wrong in (CronTerms(name="x", url="https://example.com/"),
                  CronTerms(name="x", url="https://example.com/", run_at=at, expression="* * * * *"),
                  CronTerms(name="x", url="https://example.com/", run_at=at, timeout=16 * MINUTE)):  # fmt: skip
        with pytest.raises(BadInput):
            client.create_cron(wrong)


def test_a_subscription_is_made_or_refused_with_the_services_hint(client: Infrai) -> None:
    client.push_subscribe("q", "https://example.com/hook", secret=SecretStr("s"))
    with pytest.raises(Refused) as refused:
        client.push_subscribe("q", "http://10.0.0.1/")
    assert refused.value.hint == "url: must begin with https://"


def test_what_is_out_of_bounds_is_not_sent(client: Infrai) -> None:
    for refuse in (
        lambda: client.publish("q", Outgoing(payload={"a": "x" * 256_000}), intent="a"),
        lambda: client.publish("q", Outgoing(payload={}, delay=timedelta(days=8)), intent="a"),
        lambda: client.publish("no queue", WORK, intent="a"),
        lambda: client.consume("q", most=101, lease=MINUTE),
        lambda: client.consume("q", most=1, lease=timedelta(0)),
        lambda: client.consume("q", most=1, lease=timedelta(hours=13)),
    ):
        with pytest.raises(BadInput):
            refuse()
    assert client.stats("q") == Stats(0, 0, 0, 0, 0.0)


def test_a_queue_that_is_missing_and_a_key_that_was_revoked_are_errors_of_their_kind(
    client: Infrai, talk: Talk
) -> None:
    with pytest.raises(NotThere) as missing:
        client.publish("none", WORK, intent="a")
    assert str(missing.value).startswith("queue.publish: 404 NOT_FOUND, there is no queue none (request ")
    talk.server.app.keys[:] = [Key("new"), Key(talk.server.key, revoked=True)]
    with pytest.raises(KeyRefused) as refused:
        client.publish("q", WORK, intent="b")
    assert (refused.value.code, refused.value.told.status) == ("KEY_REVOKED", 403)
    assert talk.server.key not in str(refused.value) + repr(client.calls)


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://example.com", "k"), ("https://example.com/?project=1", "k"),
     ("ftp://example.com", "k"), ("https://10.0.0.1", "k"), ("", "k"),
     ("https://example.com", ""), ("https://example.com", "a b"), ("https://example.com", "k\r\nX: y"),
     ("https://example.com", "ä")],
)  # fmt: skip
def test_an_address_or_key_that_cannot_be_used_is_refused_at_once(url: str, key: str) -> None:
    with pytest.raises(BadInput, match=r"^(HOLDFAST_INFRAI_URL|INFRAI_API_KEY): "):
        Infrai(url, SecretStr(key))


def test_errors_travel_between_processes() -> None:
    told = Told(429, "RATE_LIMIT_USER", "slow down", "r")
    for error in (WaitAsked("c", told, MINUTE), Unreadable("c", told, "data"), Unreachable("c", told)):
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, InfraiError)
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert (
        str(WaitAsked("c", told, MINUTE)) == "c: 429 RATE_LIMIT_USER, slow down (request r); try again later: in 60 s"
    )
