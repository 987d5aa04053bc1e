"""Bounds, keys and waits of the Infrai contract as this client keeps them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.errors import BadInput
from domain.infrai import check_payload, compact, delay_seconds, idempotency_key, is_retryable, queue_name, retry_after

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(timedelta(), 0), (timedelta(microseconds=1), 1), (timedelta(seconds=59.5), 60), (timedelta(days=7), 604_800)],
)
def test_a_delay_is_rounded_up_so_that_a_message_is_never_early(delay: timedelta, seconds: int) -> None:
    assert delay_seconds(delay) == seconds


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), timedelta(days=7, microseconds=1), timedelta(days=999)])
def test_a_delay_out_of_range_is_refused(delay: timedelta) -> None:
    with pytest.raises(BadInput, match="it must be from 0 to 604,800 s; keep what is due later in a table"):
        delay_seconds(delay)


def test_a_payload_of_256000_bytes_is_the_largest() -> None:
    check_payload({"a": "x" * 255_992})
    with pytest.raises(BadInput, match="payload: has 256001 bytes of JSON; 256000 at most"):
        check_payload({"a": "x" * 255_993})


def test_a_letter_counts_as_many_bytes_as_it_takes() -> None:
    with pytest.raises(BadInput, match="has 256008 bytes"):
        check_payload({"a": "ä" * 128_000})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}, NOW])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match="is no JSON value that every side reads alike"):
        compact({"a": value}, "payload")


def test_a_queue_has_a_name_that_every_reading_takes() -> None:
    assert queue_name("hold-expiry_1.a") == "hold-expiry_1.a"
    for name in ("", "a b", "a/b", "ä", "x" * 81, "a\n"):
        with pytest.raises(BadInput, match=r"^queue: "):
            queue_name(name)


def test_a_key_is_the_same_for_the_same_intent_and_another_for_any_other() -> None:
    key = idempotency_key("queue.publish", "", "hold-expiry:h:v1:1#1")
    assert key == "holdfast-queue.publish-3ae2a1850fd9cb917225903a696c47b71f4c26a9"
    others = {
        idempotency_key("queue.publish", "", "hold-expiry:h:v1:1#2"),
        idempotency_key("queue.publish_batch", "", "hold-expiry:h:v1:1#1"),
        idempotency_key("queue.publish", "hold-expiry:h", "v1:1#1"),
    }
    assert len(others | {key}) == 4


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [(429, "", True), (503, "", True), (502, "", True), (504, "", True), (500, "VENDOR_TIMEOUT", True),
     (500, "UNKNOWN_ERROR", False), (400, "RATE_LIMIT_USER", False), (409, "IDEMPOTENCY_CONFLICT", False),
     (402, "INSUFFICIENT_CREDIT", False), (404, "NOT_FOUND", False)],
)  # fmt: skip
def test_a_call_is_repeated_after_these_answers_only(status: int, code: str, *, again: bool) -> None:
    assert is_retryable(status, code) is again


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("1.5", 1.5), (" 2 ", 2), ("Tue, 01 Dec 2026 00:00:30 GMT", 20), ("999999", 86400), ("99999.5", 86400),
     (None, None), ("soon", None), ("-1", None), ("1e3", None), ("Mon, 30 Nov 2026 00:00:00 GMT", None)],
)  # fmt: skip
def test_retry_after_is_read_in_each_form_by_the_servers_own_clock(header: str | None, seconds: float | None) -> None:
    asked = retry_after(header, now=NOW + timedelta(days=99), date="Tue, 01 Dec 2026 00:00:10 GMT")
    assert asked == (None if seconds is None else timedelta(seconds=seconds))
