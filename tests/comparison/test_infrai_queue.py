"""The queue part of the contract page, call by call."""

import pytest

from tests.comparison.talking import START, Talk, talking

WEEK = 604_800


def test_a_message_is_published_consumed_and_acknowledged_for_good(talk: Talk) -> None:
    talk.queue()
    published = talk.publish({"n": 1})
    [message] = talk.messages()
    assert (message["message_id"], message["payload"], message["attempts"]) == (published, {"n": 1}, 1)
    assert message["enqueued_at"] == "2026-12-01T00:00:00Z"
    assert talk.stats() == (0, 1, 0, 0)
    assert talk.ack(published).data == {"message_id": published, "acked": True}
    talk.server.advance(31 * 86_400)
    assert talk.consume() == []
    assert talk.stats() == (0, 0, 0, 0)


def test_every_answer_is_in_the_envelope(talk: Talk) -> None:
    talk.queue()
    done = talk("/v1/queue/publish", {"queue": "q", "payload": {}}).envelope
    assert done.keys() == {"ok", "data", "error", "metadata"}
    assert done["metadata"].keys() == {"cost_usd", "latency_ms", "vendor", "cache_hit", "request_id"}
    assert done["metadata"]["request_id"][14] == "7"
    refused = talk("/v1/queue/publish", {"queue": "none", "payload": {}}).envelope
    assert (refused["ok"], refused["data"], refused["error"]["code"]) == (False, None, "NOT_FOUND")
    assert refused["error"]["hint"] == "there is no queue none"
    assert refused["metadata"]["request_id"] != done["metadata"]["request_id"]


def test_a_lease_hides_a_message_until_it_ends(talk: Talk) -> None:
    talk.queue()
    talk.publish({"n": 1})
    assert talk.consume(lease=30) == [{"n": 1}]
    talk.server.advance(29)
    assert talk.consume() == []
    talk.server.advance(1)
    [again] = talk.messages()
    assert (again["payload"], again["attempts"]) == ({"n": 1}, 2)


def test_the_queues_own_lease_counts_where_the_call_names_none(talk: Talk) -> None:
    talk.queue(visibility_timeout_default=5)
    talk.publish({"n": 1})
    assert len(talk("/v1/queue/consume", {"queue": "q"}).data[talk.server.service.contract.consume_key]) == 1
    talk.server.advance(4)
    assert talk.stats() == (0, 1, 0, 0)
    talk.server.advance(1)
    assert talk.stats() == (1, 0, 0, 0)


def test_one_message_comes_where_no_number_is_named_and_a_hundred_at_most(talk: Talk) -> None:
    talk.queue()
    for n in range(3):
        talk.publish({"n": n})
    assert len(talk("/v1/queue/consume", {"queue": "q"}).data[talk.server.service.contract.consume_key]) == 1
    assert len(talk.consume(most=100)) == 2
    assert talk("/v1/queue/consume", {"queue": "q", "max_messages": 101}).refused == (400, "VALIDATION_ERROR")
    assert talk("/v1/queue/consume", {"queue": "q", "visibility_timeout": 43_201}).refused == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("delay", [1, WEEK])
def test_a_delayed_message_comes_when_its_delay_is_over(talk: Talk, delay: int) -> None:
    talk.queue(message_retention_days=30)
    talk.publish({"n": 1}, delay_seconds=delay)
    talk.server.advance(delay - 1)
    assert (talk.consume(), talk.stats()) == ([], (0, 0, 1, 0))
    talk.server.advance(1)
    assert talk.consume() == [{"n": 1}]


@pytest.mark.parametrize("delay", [WEEK + 1, -1, 1.5, True, "5"])
def test_a_delay_out_of_range_publishes_nothing(talk: Talk, delay: object) -> None:
    talk.queue()
    refused = talk("/v1/queue/publish", {"queue": "q", "payload": {}, "delay_seconds": delay})
    assert refused.refused == (400, "VALIDATION_ERROR")
    assert refused.envelope["error"]["hint"].startswith("delay_seconds: ")
    assert talk.stats() == (0, 0, 0, 0)


def test_a_payload_of_262144_bytes_is_taken_and_one_more_is_not(talk: Talk) -> None:
    talk.queue()
    fits = {"a": "ä" * ((262_144 - 8) // 2)}
    talk.publish(fits)
    over = {"a": fits["a"] + "b"}
    assert talk("/v1/queue/publish", {"queue": "q", "payload": over}).refused == (413, "PAYLOAD_TOO_LARGE")
    assert talk.consume() == [fits]


def test_a_batch_is_published_in_order_all_or_none(talk: Talk) -> None:
    talk.queue()
    batch = [{"payload": {"n": n}, "delay_seconds": 0} for n in range(100)]
    ids = talk("/v1/queue/publish_batch", {"queue": "q", "messages": batch}).data["message_ids"]
    assert [message["message_id"] for message in talk.messages(most=100)] == ids
    bad = [*batch[:99], {"payload": {"a": "b" * 262_144}}]
    assert talk("/v1/queue/publish_batch", {"queue": "q", "messages": bad}).refused == (413, "PAYLOAD_TOO_LARGE")
    bad = [*batch[:99], {"payload": {}, "delay_seconds": WEEK + 1}]
    assert talk("/v1/queue/publish_batch", {"queue": "q", "messages": bad}).refused == (400, "VALIDATION_ERROR")
    for wrong in ([], [*batch, batch[0]]):
        refused = talk("/v1/queue/publish_batch", {"queue": "q", "messages": wrong})
        assert refused.refused == (400, "VALIDATION_ERROR")
    assert talk.stats() == (0, 100, 0, 0)


def test_a_nacked_message_comes_at_once_or_after_its_delay(talk: Talk) -> None:
    talk.queue()
    published = talk.publish({"n": 1})
    talk.consume()
    talk.nack(published)
    assert talk.consume() == [{"n": 1}]
    talk.nack(published, delay_seconds=10)
    assert talk.consume() == []
    talk.server.advance(10)
    assert talk.consume() == [{"n": 1}]


def test_after_its_retries_a_message_is_dead_and_a_redrive_brings_it_back(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(dead_letter_queue="dead", max_retries=2)
    published = talk.publish({"n": 1})
    for _ in range(2):
        talk.consume()
        talk.nack(published)
    assert talk.stats() == (1, 0, 0, 0)
    talk.consume()
    talk.nack(published)
    assert (talk.stats(), talk.consume(), talk.consume("dead")) == ((0, 0, 0, 1), [], [{"n": 1}])
    assert talk.ack(published).refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/dlq/redrive/q").data == {"queue": "q", "redriven": 1}
    assert (talk.messages()[0]["attempts"], talk.stats(), talk.stats("dead")) == (1, (0, 1, 0, 0), (0, 0, 0, 0))


def test_leases_that_run_out_count_like_nacks_unless_the_switch_says_otherwise() -> None:
    for counts, visible, dead in (("both", 0, 1), ("nacks", 1, 0)):
        with talking(dead_letter_counts=counts) as talk:
            talk.queue("dead")
            talk.queue(dead_letter_queue="dead", max_retries=1)
            talk.publish({"n": 1})
            for _ in range(2):
                assert talk.consume(lease=10) == [{"n": 1}]
                talk.server.advance(10)
            assert talk.stats() == (visible, 0, 0, dead)


def test_a_redrive_also_takes_the_dead_letter_queues_own_name_and_leaves_what_is_anothers(talk: Talk) -> None:
    talk.queue("dead")
    for name in ("q", "p"):
        talk.queue(name, dead_letter_queue="dead", max_retries=0)
        published = talk.publish({"of": name}, name)
        talk.consume(name)
        talk.nack(published, name)
    own = talk.publish({"of": "dead"}, "dead")
    assert talk("/v1/queue/dlq/redrive/q", {"queue": "q"}).data["redriven"] == 1
    assert (talk.stats(), talk.stats("p")) == ((1, 0, 0, 0), (0, 0, 0, 1))
    assert talk("/v1/queue/dlq/redrive/dead").data["redriven"] == 1
    assert talk.stats("p") == (1, 0, 0, 0)
    assert [message["message_id"] for message in talk.messages("dead")] == [own]
    assert talk("/v1/queue/dlq/redrive/q", {"queue": "p"}).refused == (400, "VALIDATION_ERROR")


def test_without_a_dead_letter_queue_a_message_is_delivered_on_and_on(talk: Talk) -> None:
    talk.queue(max_retries=1)
    published = talk.publish({"n": 1})
    for _ in range(5):
        assert talk.consume() == [{"n": 1}]
        talk.nack(published)
    assert talk("/v1/queue/dlq/redrive/q").refused == (409, "CONFLICT")


def test_what_is_not_acknowledged_in_time_vanishes_and_is_no_dead_letter(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(dead_letter_queue="dead", message_retention_days=1)
    late = talk.publish({"n": 1}, delay_seconds=86_399)
    talk.publish({"n": 2})
    talk.server.advance(86_399)
    assert talk.stats() == (2, 0, 0, 0)
    talk.consume(lease=60)
    talk.server.advance(1)
    assert (talk.stats(), talk.stats("dead")) == ((0, 0, 0, 0), (0, 0, 0, 0))
    assert talk.ack(late).refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/create", {"name": "x", "message_retention_days": 31}).refused == (400, "VALIDATION_ERROR")


def test_an_ack_after_the_lease_deletes_also_what_another_has_by_now(talk: Talk) -> None:
    talk.queue()
    first, second = talk.publish({"n": 1}), talk.publish({"n": 2})
    talk.consume(lease=10)
    talk.server.advance(10)
    assert talk.ack(first).data["acked"] is True
    assert talk.consume(lease=10) == [{"n": 2}]
    assert talk.ack(second).data["acked"] is True
    assert talk.stats() == (0, 0, 0, 0)


def test_what_is_gone_or_was_never_delivered_is_not_acknowledged() -> None:
    for fine in (False, True):
        with talking(gone_is_fine=fine) as talk:
            talk.queue()
            waiting = talk.publish({"n": 1}, delay_seconds=60)
            for answer in (talk.ack("msg_unknown"), talk.ack(waiting), talk.nack("msg_unknown"), talk.nack(waiting)):
                assert answer.status == (200 if fine else 404)
            assert talk.stats() == (0, 0, 1, 0)


def test_a_nack_after_the_lease_changes_nothing(talk: Talk) -> None:
    talk.queue()
    published = talk.publish({"n": 1})
    talk.consume(lease=10)
    talk.server.advance(10)
    assert talk.nack(published, delay_seconds=600).status == 200
    assert talk.stats() == (1, 0, 0, 0)


def test_creating_the_same_queue_again_finds_it_and_another_one_is_a_conflict(talk: Talk) -> None:
    talk.queue(max_retries=4)
    talk.publish({"n": 1})
    talk.queue(max_retries=4)
    assert talk("/v1/queue/create", {"name": "q", "max_retries": 5}).refused == (409, "CONFLICT")
    assert talk.stats() == (1, 0, 0, 0)


def test_a_dead_letter_queue_must_be_there_first_and_stays_while_it_is_used(talk: Talk) -> None:
    asked = {"name": "q", "dead_letter_queue": "dead"}
    assert talk("/v1/queue/create", asked).refused == (400, "VALIDATION_ERROR")
    assert talk("/v1/queue/stats/q", method="GET").refused == (404, "NOT_FOUND")
    talk.queue("dead")
    talk.queue(dead_letter_queue="dead")
    assert talk("/v1/queue/delete/dead", {}, method="DELETE").refused == (409, "CONFLICT")
    assert talk("/v1/queue/delete/q", {}, method="DELETE").data == {"queue": "q", "deleted": True}
    assert talk("/v1/queue/delete/dead", method="DELETE").data["deleted"] is True
    assert talk("/v1/queue/delete/q", method="DELETE").refused == (404, "NOT_FOUND")


@pytest.mark.parametrize("name", ["", "a b", "q/..", "ä", "x" * 81])
def test_a_queue_has_a_plain_name(talk: Talk, name: str) -> None:
    assert talk("/v1/queue/create", {"name": name}).refused == (400, "VALIDATION_ERROR")


def test_the_age_of_the_oldest_message_is_told(talk: Talk) -> None:
    talk.queue()
    talk.publish({"n": 1})
    talk.server.advance(90)
    assert talk("/v1/queue/stats/q", method="GET").data["oldest_age_seconds"] == 90.0
    assert talk.server.service.clock.now() == START + 90


def test_a_lease_that_ran_out_may_hide_a_message_longer_each_time() -> None:
    with talking(lease_backoff=True) as talk:
        talk.queue(max_retries=9)
        talk.publish({"n": 1})
        talk.consume(lease=10)
        talk.server.advance(10)
        assert talk.consume(lease=10) == [{"n": 1}]
        talk.server.advance(19)
        assert talk.consume() == []
        talk.server.advance(1)
        assert talk.consume() == [{"n": 1}]


def test_the_list_may_come_without_a_name() -> None:
    with talking(consume_key="bare") as talk:
        talk.queue()
        talk.publish({"n": 1})
        assert talk.consume() == [{"n": 1}]
