"""Rows of the contract page that no other test comes by: the catalogue, defaults, boundaries, missing queues."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from comparison.infrai_server.app import Key
from comparison.infrai_server.faults import Fault, Kind
from tests.comparison.talking import Talk, ear, talking

WEEK = 604_800
CRON = {"cron_expr": "* * * * *", "task": "https://example.com/hook"}

PUBLISHED = {
    "INSUFFICIENT_CREDIT": (402, False), "WALLET_CAP_EXCEEDED": (402, False), "PRO_REQUIRED": (402, False),
    "KYC_REQUIRED": (402, False), "TOPUP_2FA_REQUIRED": (402, False), "BYOK_TRIAL_EXPIRED": (402, False),
    "UNAUTHORIZED": (401, False), "SCOPE_INSUFFICIENT": (403, False), "KEY_REVOKED": (403, False),
    "MODULE_NOT_AVAILABLE_IN_REGION": (403, False), "IDEMPOTENCY_KEY_REQUIRED": (400, False),
    "IDEMPOTENCY_CONFLICT": (409, False), "RATE_LIMIT_USER": (429, True), "RATE_LIMIT_IP": (429, True),
    "VENDOR_QUOTA_EXCEEDED": (429, True), "VENDOR_DOWN": (503, True), "VENDOR_TIMEOUT": (503, True),
    "MAINTENANCE": (503, True), "UNKNOWN_ERROR": (500, False),
}  # fmt: skip
"""The catalogue: code, status, whether it may be tried again."""
INVENTED = {
    "VALIDATION_ERROR": (400, False), "NOT_FOUND": (404, False), "METHOD_NOT_ALLOWED": (405, False),
    "CONFLICT": (409, False), "PAYLOAD_TOO_LARGE": (413, False),
}  # fmt: skip
"""U1."""


@pytest.fixture
def loopback() -> Iterator[Talk]:
    with talking(loopback_targets=True) as talk:
        yield talk


def test_the_catalogue_is_the_published_one_and_five_invented_codes(talk: Talk) -> None:
    for name in ("queue.publish", "cron.create"):
        told = requests.get(f"{talk.server.url}/v1/discovery/{name}", timeout=5).json()["errors"]
        assert {one["code"]: (one["http"], one["retryable"]) for one in told} == PUBLISHED | INVENTED


@pytest.mark.parametrize(("code", "status"), [(code, status) for code, (status, _) in (PUBLISHED | INVENTED).items()])
def test_each_code_can_be_ordered_and_comes_in_a_whole_envelope_before_anything_is_done(
    talk: Talk, code: str, status: int
) -> None:
    talk.queue()
    talk("/control/faults", {"kind": "refuse", "code": code, "path": "/v1/queue/publish"})
    refused = talk("/v1/queue/publish", {"queue": "q", "payload": {}})
    assert refused.refused == (status, code)
    assert refused.envelope["data"] is None
    assert refused.envelope["error"] == {"code": code, "message": "refused by order", "hint": "refused by order"}
    assert refused.envelope["metadata"]["cost_usd"] == 0
    assert len(refused.envelope["metadata"]["request_id"]) == 36
    assert talk.stats() == (0, 0, 0, 0)


def test_a_code_that_is_none_cannot_be_ordered(talk: Talk) -> None:
    assert talk("/control/faults", {"kind": "refuse", "code": "NO_SUCH"}).refused == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("fault", "status", "header"),
    [
        (Fault(kind=Kind.RATE_LIMIT, retry_after=1), 429, "1"),
        (Fault(kind=Kind.RATE_LIMIT), 429, None),
        (Fault(kind=Kind.MAINTENANCE, retry_after=86_400), 503, "86400"),
        (Fault(kind=Kind.NOT_JSON, status=429, retry_after=2), 429, "2"),
    ],
)
def test_a_wait_is_asked_for_in_whole_seconds_or_not_at_all(
    talk: Talk, fault: Fault, status: int, header: str | None
) -> None:
    talk.server.faults.add(fault)
    answer = talk.session.get(f"{talk.server.url}/v1/cron/list", timeout=5)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, header)


def test_the_metadata_of_an_answer_has_these_types(talk: Talk) -> None:
    metadata = talk("/v1/cron/list", method="GET").envelope["metadata"]
    assert {name: type(value) for name, value in metadata.items()} == {
        "cost_usd": float, "latency_ms": float, "vendor": str, "cache_hit": bool, "request_id": str,
    }  # fmt: skip


def test_discovery_takes_a_key_without_harm_and_tells_what_a_call_costs_and_returns(talk: Talk) -> None:
    told = talk.session.get(f"{talk.server.url}/v1/discovery/queue.ack", timeout=5).json()
    assert told["billing"].keys() == {
        "is_billable", "free", "unit", "price_usd", "currency", "new_account_trial_uses",
    }  # fmt: skip
    assert told["returns"]["properties"].keys() == {"message_id", "acked", "nacked"}
    assert talk("/v1/discovery", method="POST").refused == (405, "METHOD_NOT_ALLOWED")
    talk.server.faults.add(Fault(kind=Kind.RATE_LIMIT, path="/v1/discovery", retry_after=1))
    assert requests.get(f"{talk.server.url}/v1/discovery", timeout=5).status_code == 429


def test_a_queue_made_with_its_name_alone_has_the_defaults(talk: Talk) -> None:
    assert talk("/v1/queue/create", {"name": "q"}).data == {
        "queue": "q", "name": "q", "type": "standard", "dead_letter_queue": None, "max_retries": 3,
        "message_retention_days": 4, "visibility_timeout_default": 30, "enable_priority": False,
    }  # fmt: skip
    talk.publish({"n": 1})
    talk("/v1/queue/consume", {"queue": "q"})
    talk.server.advance(29)
    assert talk.stats() == (0, 1, 0, 0)
    talk.server.advance(1)
    assert talk.stats() == (1, 0, 0, 0)
    talk.server.advance(4 * 86_400 - 31)
    assert talk.stats() == (1, 0, 0, 0)
    talk.server.advance(1)
    assert talk.stats() == (0, 0, 0, 0)


def test_by_default_the_fourth_failure_is_one_too_many(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(dead_letter_queue="dead")
    published = talk.publish({"n": 1})
    for dead in (0, 0, 0, 1):
        assert talk.consume() == [{"n": 1}]
        talk.nack(published)
        assert talk.stats()[3] == dead


def test_a_call_on_a_queue_that_was_never_made_is_404_and_makes_none(talk: Talk) -> None:
    message = {"queue": "none", "message_id": "m"}
    for path, body in (
        ("publish", {"queue": "none", "payload": {}}),
        ("publish_batch", {"queue": "none", "messages": [{"payload": {}}]}),
        ("consume", {"queue": "none"}), ("ack", message), ("nack", message), ("dlq/redrive/none", {}),
        ("push_subscribe/none", {"url": "https://example.com/"}),
    ):  # fmt: skip
        assert talk(f"/v1/queue/{path}", body).refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/stats/none", method="GET").refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/delete/none", {}, method="DELETE").refused == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("publish", {"queue": "q", "body": {"n": 1}}),
        ("publish", {"queue": "q", "payload": {"n": 1}, "headers": {"X-A": "1\r\nX-B: 2"}}),
        ("publish_batch", {"messages": [{"payload": {}}]}),
        ("publish_batch", {"queue": "q", "messages": [{"body": {}}]}),
        ("publish_batch", {"queue": "q", "messages": [{"payload": {}, "delay_seconds": WEEK + 1}]}),
        ("ack", {"queue": "q", "receipt_handle": "m"}),
        ("nack", {"queue": "q", "message_id": "m", "delay_seconds": WEEK + 1}),
        ("create", {"name": "p", "visibility_timeout_default": 43_201}),
        ("create", {"name": "p", "type": "topic"}),
    ],
)
def test_spellings_of_a_minority_and_values_over_the_limits_are_refused(talk: Talk, path: str, body: Any) -> None:
    talk.queue()
    assert talk(f"/v1/queue/{path}", body).refused == (400, "VALIDATION_ERROR")
    assert talk.stats() == (0, 0, 0, 0)


def test_what_stands_exactly_at_a_limit_is_taken(talk: Talk) -> None:
    name = "n" * 80
    talk.queue(name, message_retention_days=30, visibility_timeout_default=43_200)
    published = talk("/v1/queue/publish_batch", {"queue": name, "messages": [{"payload": {}, "delay_seconds": WEEK}]})
    talk.server.advance(WEEK)
    assert talk.consume(name, most=100, lease=43_200) == [{}]
    [message_id] = published.data["message_ids"]
    assert talk.nack(message_id, name, delay_seconds=WEEK).status == 200
    assert talk("/v1/cron/create", CRON | {"timeout_seconds": 900}).data["timeout_seconds"] == 900


def test_a_name_in_the_path_may_be_escaped(talk: Talk) -> None:
    talk.queue("a.b")
    assert talk("/v1/queue/stats/a%2Eb", method="GET").data["queue"] == "a.b"


def test_where_header_and_body_name_two_keys_a_warning_is_logged(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    talk.queue()
    body = {"queue": "q", "payload": {}, "idempotency_key": "one"}
    talk("/v1/queue/publish", body, key="one")
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING):
        talk("/v1/queue/publish", body, key="two")
    assert caplog.messages == ["two idempotency keys, in header and body: the header's counts"]


def test_each_write_takes_its_key_in_the_body_too_and_is_made_once(talk: Talk) -> None:
    talk.queue("dead")
    talk.queue(dead_letter_queue="dead", max_retries=0)
    published = talk.publish({"n": 1})
    talk.consume()
    talk.nack(published)
    key = {"idempotency_key": "k"}
    for path, body in (
        ("queue/dlq/redrive/q", key), ("cron/create", CRON | key),
        ("queue/push_subscribe/dead", {"url": "https://example.com/"} | key),
    ):  # fmt: skip
        assert talk(f"/v1/{path}", body).data == talk(f"/v1/{path}", body).data
    talk.consume()
    acked = {"queue": "q", "message_id": published} | key
    assert talk("/v1/queue/ack", acked).data == talk("/v1/queue/ack", acked).data
    assert len(talk("/v1/cron/list", method="GET").data["items"]) == 1


def test_a_key_of_one_project_says_nothing_to_another_and_may_have_any_form(talk: Talk) -> None:
    talk.queue()
    body = {"queue": "q", "payload": {}}
    first = talk("/v1/queue/publish", body, key="k").data
    for other in ("ifr_pk_proj_1", "anything"):
        talk.server.app.keys.append(Key(other))
        talk.session.headers["Authorization"] = f"Bearer {other}"
        assert talk("/v1/queue/publish", body, key="k").data != first
    assert talk.stats() == (3, 0, 0, 0)


def test_what_is_consumed_is_not_pushed_until_its_lease_ends(loopback: Talk) -> None:
    loopback.queue()
    loopback.publish({"n": 1})
    assert loopback.consume(lease=30) == [{"n": 1}]
    with ear() as heard:
        loopback("/v1/queue/push_subscribe/q", {"url": heard.url})
        assert loopback.server.pump.settle()
        assert heard.heard == []
        loopback.server.advance(30)
        assert loopback.server.pump.settle()
        assert [json.loads(request.body) for request in heard.heard] == [{"n": 1}]
    assert loopback.stats() == (0, 0, 0, 0)


@pytest.mark.parametrize("payload", [[1, 2], "text", 7, True, {"a": None}])
def test_a_scheduled_call_posts_any_json_and_its_run_is_told_whole(loopback: Talk, payload: Any) -> None:
    with ear(lambda _: (202, b"\xff")) as heard:
        made = loopback("/v1/cron/create", CRON | {"task": heard.url, "payload": payload}).data
        assert (made["overlap_policy"], made["max_runs"], made["name"]) == ("skip", None, None)
        loopback.server.advance(60)
    assert json.loads(heard.heard[0].body) == payload
    [run] = loopback(f"/v1/cron/runs/list/{made['job_id']}", method="GET").data["items"]
    assert (run.pop("run_id")[:4], run) == (
        "run_",
        {
            "job_id": made["job_id"], "status": "succeeded", "started_at": "2026-12-01T00:01:00Z",
            "finished_at": "2026-12-01T00:01:00Z", "http_status": 202, "output": "\ufffd",
        },
    )  # fmt: skip
