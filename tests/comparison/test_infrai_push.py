"""Queues that post their messages: to whom, how signed, and what becomes of them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from domain.infrai import is_signed, push_signature
from tests.comparison.talking import Talk, ear, talking


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(loopback_targets=True) as talk:
        yield talk


def subscribe(talk: Talk, url: str, **fields: Any) -> Any:
    return talk("/v1/queue/push_subscribe/q", {"url": url, **fields})


def test_a_push_posts_the_bare_payload_and_2xx_acknowledges(talk: Talk) -> None:
    talk.queue()
    with ear() as heard:
        data = subscribe(talk, heard.url, secret="s3cret", queue="q").data
        assert (data["queue"], data["url"], data["id"][:4]) == ("q", heard.url, "sub_")
        talk.publish({"n": 1}, headers={"X-Own": "yes"})
        assert talk.server.pump.settle()
        assert talk.server.pump.settle()
        [request] = heard.heard
    assert (json.loads(request.body), request.headers["x-own"]) == ({"n": 1}, "yes")
    assert request.headers["x-infrai-signature"] == push_signature("s3cret", request.body)
    assert talk.stats() == (0, 0, 0, 0)


def test_the_signature_may_have_a_prefix_and_either_is_verified() -> None:
    with talking(loopback_targets=True, signature_prefix="sha256=") as talk, ear() as heard:
        talk.queue()
        subscribe(talk, heard.url, secret="s3cret")
        talk.publish({"n": 1})
        assert talk.server.pump.settle()
        given = heard.heard[0].headers["x-infrai-signature"]
        body = heard.heard[0].body
    assert given == "sha256=" + push_signature("s3cret", body)
    assert is_signed("s3cret", body, given)
    assert is_signed("s3cret", body, given.removeprefix("sha256="))
    assert not is_signed("s3cret", body + b" ", given)
    assert not is_signed("other", body, given)
    assert not is_signed("s3cret", body, "")


def test_a_refused_push_comes_again_after_the_lease_and_dies_after_its_retries(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue()
    with ear(lambda _: (500, b"")) as heard:
        subscribe(talk, heard.url, visibility_timeout=60, max_retries=1, dead_letter_queue="dead")
        talk.publish({"n": 1})
        assert talk.server.pump.settle()
        assert (len(heard.heard), talk.consume()) == (1, [])
        talk.server.advance(59)
        assert len(heard.heard) == 1
        talk.server.advance(1)
        assert talk.server.pump.settle()
        assert len(heard.heard) == 2
    assert (talk.stats(), talk.consume("dead")) == ((0, 0, 0, 0), [{"n": 1}])


def test_a_receiver_that_is_away_costs_no_message(talk: Talk) -> None:
    talk.queue()
    with ear() as gone:
        pass
    subscribe(talk, gone.url, visibility_timeout=10)
    talk.publish({"n": 1})
    assert talk.server.pump.settle()
    with ear() as heard:
        subscribe(talk, heard.url)
        talk.server.advance(10)
        assert talk.server.pump.settle()
        assert len(heard.heard) == 1
    assert talk.stats() == (0, 0, 0, 0)


@pytest.mark.parametrize("url", ["http://example.com/", "https://127.0.0.1/", "https://10.1.2.3/", "https://[::1]/",
                                 "https://localhost/", "https://user:pw@example.com/", "x"])  # fmt: skip
def test_only_public_https_can_be_subscribed(url: str) -> None:
    with talking() as talk:
        talk.queue()
        talk.publish({"n": 1})
        assert subscribe(talk, url).refused == (400, "VALIDATION_ERROR")
        assert talk.server.pump.settle()
        assert talk.stats() == (1, 0, 0, 0)


def test_a_subscription_needs_its_queue_and_its_dead_letter_queue(talk: Talk) -> None:
    assert subscribe(talk, "https://example.com/").refused == (404, "NOT_FOUND")
    talk.queue()
    assert subscribe(talk, "https://example.com/", dead_letter_queue="d").refused == (400, "VALIDATION_ERROR")
    assert subscribe(talk, "https://example.com/", queue="other").refused == (400, "VALIDATION_ERROR")
