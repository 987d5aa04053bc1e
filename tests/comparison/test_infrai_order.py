"""FIFO, priorities, and the faults of order: what comes when."""

from comparison.infrai_server.faults import Fault, Kind
from tests.comparison.talking import Talk, talking


def test_a_leased_message_blocks_its_group_and_no_other(talk: Talk) -> None:
    talk.queue(type="fifo")
    ids = [talk.publish({"n": n}, message_group_id=group) for n, group in enumerate("aab")]
    assert talk.consume() == [{"n": 0}, {"n": 2}]
    assert talk.consume() == []
    talk.ack(ids[0])
    assert talk.consume() == [{"n": 1}]


def test_a_message_that_comes_back_keeps_its_place_in_its_group(talk: Talk) -> None:
    talk.queue(type="fifo")
    ids = [talk.publish({"n": n}, message_group_id="a") for n in range(2)]
    talk.consume(lease=10)
    talk.server.advance(10)
    assert talk.consume() == [{"n": 0}]
    talk.nack(ids[0], delay_seconds=5)
    assert talk.consume() == []
    talk.server.advance(5)
    assert talk.consume() == [{"n": 0}]


def test_without_a_group_all_are_one(talk: Talk) -> None:
    talk.queue(type="fifo")
    ids = [talk.publish({"n": n}) for n in range(2)]
    assert talk.consume() == [{"n": 0}]
    talk.ack(ids[0])
    assert talk.consume() == [{"n": 1}]


def test_a_dead_message_lets_the_next_of_its_group_pass(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(type="fifo", dead_letter_queue="dead", max_retries=0)
    for n in range(2):
        talk.publish({"n": n}, message_group_id="a")
    talk.consume(lease=10)
    talk.server.advance(10)
    assert (talk.consume(), talk.consume("dead")) == ([{"n": 1}], [{"n": 0}])


def test_a_message_that_is_redriven_takes_its_old_place_in_its_group(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(type="fifo", dead_letter_queue="dead", max_retries=0)
    ids = [talk.publish({"n": n}, message_group_id="a") for n in range(2)]
    talk.consume()
    talk.nack(ids[0])
    assert talk("/v1/queue/dlq/redrive/q").data["redriven"] == 1
    assert talk.consume() == [{"n": 0}]
    talk.ack(ids[0])
    assert talk.consume() == [{"n": 1}]


def test_within_300_seconds_a_deduplication_id_is_one_message(talk: Talk) -> None:
    talk.queue(type="fifo")
    first = talk.publish({"n": 1}, deduplication_id="d")
    talk.server.advance(299)
    assert talk.publish({"n": 2}, deduplication_id="d") == first
    talk.server.advance(1)
    assert talk.publish({"n": 3}, deduplication_id="d") != first
    assert talk.stats() == (2, 0, 0, 0)


def test_an_acknowledged_message_is_still_known_by_its_deduplication_id(talk: Talk) -> None:
    talk.queue(type="fifo")
    first = talk.publish({"n": 1}, deduplication_id="d")
    talk.consume()
    talk.ack(first)
    assert talk.publish({"n": 1}, deduplication_id="d") == first
    assert talk.stats() == (0, 0, 0, 0)


def test_a_standard_queue_knows_no_deduplication(talk: Talk) -> None:
    talk.queue()
    assert talk.publish({"n": 1}, deduplication_id="d") != talk.publish({"n": 1}, deduplication_id="d")


def test_priorities_count_only_where_they_are_enabled(talk: Talk) -> None:
    for name, enabled, order in (("plain", False, [0, 5, 9]), ("ranked", True, [9, 5, 0])):
        talk.queue(name, enable_priority=enabled)
        for priority in (0, 5, 9):
            talk.publish({"p": priority}, name, priority=priority)
        assert [payload["p"] for payload in talk.consume(name)] == order
    asked = {"queue": "plain", "payload": {}, "priority": 10}
    assert talk("/v1/queue/publish", asked).refused == (400, "VALIDATION_ERROR")


def test_a_duplicate_is_handed_out_again_while_the_first_has_its_lease() -> None:
    with talking() as talk:
        talk.queue()
        ids = [talk.publish({"n": n}) for n in range(3)]
        talk.server.faults.add(Fault(kind=Kind.DUPLICATE, count=2))
        assert talk.consume() == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert talk.consume() == [{"n": 0}, {"n": 1}]
        assert talk.consume() == []
        talk.ack(ids[0])
        talk.server.advance(30)
        assert talk.consume() == [{"n": 1}, {"n": 2}]


def test_a_reordered_consume_hands_out_the_newest_first() -> None:
    with talking() as talk:
        talk.queue()
        for n in range(4):
            talk.publish({"n": n})
        talk.server.faults.add(Fault(kind=Kind.REORDER))
        assert talk.consume(most=2) == [{"n": 3}, {"n": 2}]
        assert talk.consume() == [{"n": 0}, {"n": 1}]
