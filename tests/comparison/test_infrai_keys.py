"""Project keys, idempotency keys, and requests that are no calls."""

import json
import threading
from typing import Any

import pytest

from comparison.infrai_server.app import Key
from comparison.infrai_server.faults import Fault, Kind
from tests.comparison.talking import Talk, talking

PUBLISH = {"queue": "q", "payload": {"n": 1}}


def test_a_repeat_with_the_same_key_has_the_same_answer_and_no_effect(talk: Talk) -> None:
    talk.queue()
    first = talk("/v1/queue/publish", PUBLISH, key="k")
    assert talk("/v1/queue/publish", PUBLISH, key="k").envelope == first.envelope
    assert talk("/v1/queue/publish", dict(reversed(PUBLISH.items())), key="k").envelope == first.envelope
    assert talk.stats() == (1, 0, 0, 0)


def test_the_same_key_with_other_parameters_is_a_conflict(talk: Talk) -> None:
    talk.queue()
    talk("/v1/queue/publish", PUBLISH, key="k")
    other = talk("/v1/queue/publish", PUBLISH | {"delay_seconds": 1}, key="k")
    assert other.refused == (409, "IDEMPOTENCY_CONFLICT")
    assert talk.stats() == (1, 0, 0, 0)


def test_a_key_counts_for_one_path_and_24_hours(talk: Talk) -> None:
    talk.queue()
    talk("/v1/queue/publish", PUBLISH, key="k")
    batch = {"queue": "q", "messages": [{"payload": {}}]}
    assert talk("/v1/queue/publish_batch", batch, key="k").status == 200
    talk.server.advance(86_399)
    talk("/v1/queue/publish", PUBLISH, key="k")
    assert talk.stats() == (2, 0, 0, 0)
    talk.server.advance(1)
    talk("/v1/queue/publish", PUBLISH, key="k")
    assert talk.stats() == (3, 0, 0, 0)


def test_a_refusal_is_not_replayed(talk: Talk) -> None:
    assert talk("/v1/queue/publish", PUBLISH, key="k").refused == (404, "NOT_FOUND")
    talk.queue()
    assert talk("/v1/queue/publish", PUBLISH, key="k").data["message_id"]


def test_the_key_may_stand_in_the_body_and_the_headers_counts(talk: Talk) -> None:
    talk.queue()
    inside = PUBLISH | {"idempotency_key": "body"}
    first = talk("/v1/queue/publish", inside)
    assert talk("/v1/queue/publish", inside).data == first.data
    assert talk("/v1/queue/publish", inside, key="header").data != first.data
    assert talk("/v1/queue/publish", PUBLISH, key="body").data == first.data


def test_of_two_at_once_the_second_waits_and_gets_the_first_ones_answer(talk: Talk) -> None:
    talk.queue()
    talk.server.faults.add(Fault(kind=Kind.STALL, seconds=0.3, path="/v1/queue/publish"))
    found: list[Any] = []
    barrier = threading.Barrier(5)

    def publish() -> None:
        own = Talk(talk.server)
        barrier.wait()
        found.append(own("/v1/queue/publish", PUBLISH, key="k").data["message_id"])
        own.session.close()

    threads = [threading.Thread(target=publish) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5
    assert len(set(found)) == 1
    assert talk.stats() == (1, 0, 0, 0)


def test_whoever_waited_for_a_call_that_failed_carries_it_out(talk: Talk) -> None:
    talk.server.faults.add(Fault(kind=Kind.STALL, seconds=0.3, path="/v1/queue/publish"))
    refused: list[Any] = []
    thread = threading.Thread(target=lambda: refused.append(Talk(talk.server)("/v1/queue/publish", PUBLISH, key="k")))
    thread.start()
    assert talk("/v1/queue/publish", PUBLISH, key="k").refused == (404, "NOT_FOUND")
    thread.join()
    assert refused[0].refused == (404, "NOT_FOUND")


def test_creation_without_a_key_is_refused_where_keys_are_required() -> None:
    with talking(keys_required=True) as talk:
        refused = talk("/v1/queue/create", {"name": "q"})
        assert refused.refused == (400, "IDEMPOTENCY_KEY_REQUIRED")
        assert talk("/v1/queue/create", {"name": "q"}, key="k").data["queue"] == "q"
        assert talk("/v1/queue/publish", PUBLISH).status == 200
        cron = {"cron_expr": "* * * * *", "task": "https://example.com/"}
        assert talk("/v1/cron/create", cron).refused == (400, "IDEMPOTENCY_KEY_REQUIRED")


def test_a_derived_key_makes_one_of_two_calls_that_were_meant_as_two() -> None:
    for derived, visible in ((True, 1), (False, 2)):
        with talking(derived_keys=derived) as talk:
            talk.queue()
            for _ in range(2):
                talk("/v1/queue/publish", PUBLISH)
            assert talk.stats()[0] == visible


def test_a_key_that_is_missing_wrong_revoked_or_without_the_scope_is_refused(talk: Talk) -> None:
    talk.queue()
    talk.server.app.keys.extend([Key("old", revoked=True), Key("cron-only", frozenset({"cron"}))])
    wanted = {
        "": (401, "UNAUTHORIZED"),
        "Bearer wrong": (401, "UNAUTHORIZED"),
        f"Basic {talk.server.key}": (401, "UNAUTHORIZED"),
        "Bearer old": (403, "KEY_REVOKED"),
        "Bearer cron-only": (403, "SCOPE_INSUFFICIENT"),
    }
    own = talk.session.headers["Authorization"]
    for given, refusal in wanted.items():
        talk.session.headers["Authorization"] = given
        assert talk("/v1/queue/publish", PUBLISH).refused == refusal
    assert talk("/control/advance", {"seconds": 1}).refused == (403, "SCOPE_INSUFFICIENT")
    talk.session.headers["Authorization"] = own
    assert talk.stats() == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff", b"[]", b"1", b'{"queue": "q", "payload": {"a": NaN}}', b"[" * 100_000,
     b'{"queue": "q", "payload": {"a": "\\ud800"}}', b'{"queue": "q", "payload": "text"}',
     b'{"queue": "q", "payload": {}, "paylod": {}}', b'{"queue": "q"}',
     b'{"queue": "q", "payload": {"a": ' + b"9" * 5000 + b"}}"],
)  # fmt: skip
def test_a_body_that_is_no_such_call_changes_nothing(talk: Talk, body: bytes) -> None:
    talk.queue()
    answer = talk.session.post(f"{talk.server.url}/v1/queue/publish", data=body, timeout=20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert talk.stats() == (0, 0, 0, 0)


def test_unknown_paths_other_methods_and_giant_bodies_have_their_status(talk: Talk) -> None:
    talk.queue()
    assert talk("/v1/queue/nothing").refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/stats/q/more", method="GET").refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/stats/", method="GET").refused == (404, "NOT_FOUND")
    assert talk("/v1/queue/publish", method="GET").refused == (405, "METHOD_NOT_ALLOWED")
    assert talk("/v1/queue/stats/q").refused == (405, "METHOD_NOT_ALLOWED")
    giant = {"queue": "q", "payload": {"a": "b" * 3_000_000}}
    assert talk("/v1/queue/publish", giant).refused == (413, "PAYLOAD_TOO_LARGE")
    assert talk.stats() == (0, 0, 0, 0)


def test_a_canonical_body_is_taken_like_any_other(talk: Talk) -> None:
    talk.queue()
    canonical = json.dumps(PUBLISH, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    first = talk("/v1/queue/publish", PUBLISH, key="k").data
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = talk.session.post(f"{talk.server.url}/v1/queue/publish", data=canonical, headers=headers, timeout=20)
    assert answer.json()["data"] == first


def test_control_moves_the_clock_and_orders_faults_from_another_process(talk: Talk) -> None:
    before = talk("/control/state", method="GET").data["now"]
    assert talk("/control/advance", {"seconds": 60}).data["now"] == before + 60
    talk("/control/faults", {"kind": "rate_limit", "retry_after": 1})
    assert talk("/v1/cron/list", method="GET").refused == (429, "RATE_LIMIT_USER")
    talk("/control/faults", {"kind": "maintenance", "times": 9})
    assert talk("/control/faults", method="DELETE").status == 200
    assert talk("/v1/cron/list", method="GET").data == {"items": []}
    assert talk("/control/faults", {"kind": "fire"}).refused == (400, "VALIDATION_ERROR")
    assert talk("/control/advance", method="GET").refused == (405, "METHOD_NOT_ALLOWED")
