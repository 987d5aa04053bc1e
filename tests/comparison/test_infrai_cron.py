"""The cron part of the contract page: jobs, runs, and the requests they make."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from domain.infrai import is_signed
from tests.comparison.talking import Ear, Talk, ear, talking

EVERY_MINUTE = {"cron_expr": "* * * * *", "task": "https://example.com/hook"}


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(loopback_targets=True) as talk:
        yield talk


def create(talk: Talk, heard: Ear | None = None, **fields: Any) -> str:
    body = EVERY_MINUTE | ({} if heard is None else {"task": heard.url}) | fields
    found: str = talk("/v1/cron/create", body).data["job_id"]
    return found


def job(talk: Talk, job_id: str) -> Any:
    return talk(f"/v1/cron/get/{job_id}", method="GET").data


def runs(talk: Talk, job_id: str) -> list[Any]:
    found: list[Any] = talk(f"/v1/cron/runs/list/{job_id}", method="GET").data["items"]
    return found


@pytest.mark.parametrize(
    ("fields", "spelling"),
    [
        ({"cron_expr": "0 9 * * *", "task": "https://example.com/"}, "clients"),
        ({"schedule": "0 9 * * *", "url": "https://example.com/", "name": "n", "retries": 2}, "docs table"),
        ({"cron_expr": "0 9 * * *", "task_type": "http_url", "task_url": "https://example.com/"}, "docs example"),
    ],
)
def test_each_of_the_three_spellings_makes_the_same_job(talk: Talk, fields: Any, spelling: str) -> None:
    made = talk("/v1/cron/create", fields).data
    assert made["job_id"] == made["cron_id"]
    assert (made["url"], made["task"]) == ("https://example.com/", "https://example.com/")
    assert (made["schedule"], made["next_run_at"]) == ("0 9 * * *", "2026-12-01T09:00:00Z")
    assert (made["timezone"], made["timeout_seconds"], made["enabled"]) == ("UTC", 300, True)
    assert talk.server.service.spellings == {spelling: 1}
    assert talk("/v1/cron/list", method="GET").data == {"items": [made]}


def test_where_clients_spelling_is_asked_for_no_other_is_taken() -> None:
    with talking(cron_fields="clients") as talk:
        other = {"schedule": "* * * * *", "url": "https://example.com/"}
        assert talk("/v1/cron/create", other).refused == (400, "VALIDATION_ERROR")
        assert create(talk)


@pytest.mark.parametrize(
    "fields",
    [
        {"cron_expr": "* * * * *"},
        {"task": "https://example.com/"},
        EVERY_MINUTE | {"schedule": "* * * * *"},
        EVERY_MINUTE | {"url": "https://example.com/"},
        EVERY_MINUTE | {"task_type": "http_url"},
        EVERY_MINUTE | {"run_at": "2026-12-02T00:00:00Z"},
        EVERY_MINUTE | {"cron_expr": "61 * * * *"},
        EVERY_MINUTE | {"timezone": "Europe/Atlantis"},
        EVERY_MINUTE | {"timeout_seconds": 901},
        EVERY_MINUTE | {"overlap_policy": "never"},
        EVERY_MINUTE | {"max_runs": 0},
        EVERY_MINUTE | {"retry": 1, "retries": 1},
        EVERY_MINUTE | {"task": "ftp://example.com/"},
        EVERY_MINUTE | {"on_failure_webhook": "nowhere"},
        EVERY_MINUTE | {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"task": "https://example.com/", "run_at": "2026-12-01T00:00:00Z"},
        {"task": "https://example.com/", "run_at": "2026-12-02T00:00:00"},
    ],
)
def test_a_job_that_makes_no_sense_is_refused(talk: Talk, fields: Any) -> None:
    assert talk("/v1/cron/create", fields).refused == (400, "VALIDATION_ERROR")
    assert talk("/v1/cron/list", method="GET").data == {"items": []}


def test_a_private_target_is_refused_and_plain_http_to_a_public_one_is_not() -> None:
    with talking() as talk:
        for url in ("http://127.0.0.1:1/", "https://10.0.0.1/", "http://localhost/", "http://[::1]/"):
            assert talk("/v1/cron/create", EVERY_MINUTE | {"task": url}).refused == (400, "VALIDATION_ERROR")
        create(talk, task="http://example.com/")


def test_a_job_fires_when_it_is_due_with_its_payload_headers_and_signature(talk: Talk) -> None:
    with ear(lambda _: (200, b"done")) as heard:
        made = create(talk, heard, payload={"a": 1}, headers={"X-Own": "yes"}, secret="s3cret")
        talk.server.advance(59)
        assert heard.heard == []
        talk.server.advance(1)
        [request] = heard.heard
    assert (request.path, json.loads(request.body), request.headers["x-own"]) == ("/hook", {"a": 1}, "yes")
    assert is_signed("s3cret", request.body, request.headers["x-infrai-signature"])
    [run] = runs(talk, made)
    assert (run["status"], run["http_status"], run["output"]) == ("succeeded", 200, "done")
    assert run["started_at"] == "2026-12-01T00:01:00Z"
    assert job(talk, made)["next_run_at"] == "2026-12-01T00:02:00Z"


def test_a_job_without_payload_posts_an_empty_object_unsigned(talk: Talk) -> None:
    with ear() as heard:
        create(talk, heard)
        talk.server.advance(60)
    assert heard.heard[0].body == b"{}"
    assert "x-infrai-signature" not in heard.heard[0].headers


def test_however_much_time_passes_at_once_a_job_fires_once(talk: Talk) -> None:
    with ear() as heard:
        create(talk, heard)
        talk.server.advance(3600)
    assert len(heard.heard) == 1


def test_one_shot_fires_once_and_is_over(talk: Talk) -> None:
    with ear() as heard:
        made = talk("/v1/cron/create", {"task": heard.url, "run_at": "2026-12-01T01:00:00+00:30"}).data["job_id"]
        talk.server.advance(1800)
        talk.server.advance(3600)
    assert len(heard.heard) == 1
    assert (job(talk, made)["enabled"], job(talk, made)["next_run_at"]) == (False, None)


def test_what_a_paused_job_misses_is_not_made_up_for(talk: Talk) -> None:
    with ear() as heard:
        made = create(talk, heard)
        paused = talk(f"/v1/cron/pause/{made}").data
        assert (paused["enabled"], paused["next_run_at"]) == (False, None)
        talk.server.advance(600)
        resumed = talk(f"/v1/cron/resume/{made}", {}).data
        assert (resumed["enabled"], resumed["next_run_at"]) == (True, "2026-12-01T00:11:00Z")
        talk.server.pump.settle()
        assert heard.heard == []
        talk.server.advance(60)
    assert len(heard.heard) == 1


def test_a_trigger_runs_now_even_while_paused_and_counts(talk: Talk) -> None:
    with ear() as heard:
        made = create(talk, heard, max_runs=2)
        talk(f"/v1/cron/pause/{made}")
        run = talk(f"/v1/cron/trigger/{made}", key="t").data
        assert talk(f"/v1/cron/trigger/{made}", key="t").data == run
        assert talk(f"/v1/cron/trigger/{made}", key="u").data["run_id"] != run["run_id"]
        assert talk(f"/v1/cron/trigger/{made}", key="v").refused == (409, "CONFLICT")
        assert talk.server.pump.settle()
    assert (len(heard.heard), len(runs(talk, made))) == (2, 2)
    assert talk(f"/v1/cron/resume/{made}").data["enabled"] is False


def test_a_failed_attempt_is_made_again_and_the_last_failure_is_told(talk: Talk) -> None:
    with ear(lambda _: (500, b"no")) as heard, ear() as told:
        made = create(talk, heard, on_failure_webhook=told.url, max_runs=1)
        talk.server.advance(60)
        assert (len(heard.heard), runs(talk, made)[0]["status"]) == (1, "running")
        talk.server.advance(1)
        talk.server.advance(1)
        assert len(heard.heard) == 2
        talk.server.advance(1)
        assert talk.server.pump.settle()
    [run] = runs(talk, made)
    assert (len(heard.heard), run["status"], run["http_status"], run["output"]) == (3, "failed", 500, "no")
    assert json.loads(told.heard[0].body) == {"job_id": made, "run_id": run["run_id"], "error": "answered 500"}


def test_an_attempt_that_succeeds_later_is_a_success(talk: Talk) -> None:
    with ear(lambda number: (500 if number == 1 else 204, b"")) as heard:
        made = create(talk, heard, retry=2, max_runs=1)
        talk.server.advance(60)
        talk.server.advance(1)
    assert (len(heard.heard), runs(talk, made)[0]["status"]) == (2, "succeeded")


def test_4096_bytes_of_output_are_kept(talk: Talk) -> None:
    with ear(lambda _: (200, b"x" * 5000)) as heard:
        made = create(talk, heard)
        talk.server.advance(60)
    assert runs(talk, made)[0]["output"] == "x" * 4096


def test_a_run_that_takes_too_long_is_a_timeout(talk: Talk) -> None:
    over = threading.Event()
    with ear(lambda _: (200, b"x" * over.wait(10))) as heard:
        made = create(talk, heard, timeout_seconds=1, max_runs=1)
        talk.server.advance(60)
        assert runs(talk, made)[0]["status"] == "timeout"
        over.set()


@pytest.mark.parametrize(("policy", "begun", "afterwards"), [("skip", 1, 1), ("allow", 2, 2), ("queue", 1, 2)])
def test_a_fire_during_a_run_follows_the_policy(policy: str, begun: int, afterwards: int) -> None:
    refused_once = ear(lambda number: (500 if number == 1 else 200, b""))
    with talking(loopback_targets=True, run_backoff=90) as talk, refused_once as heard:
        made = create(talk, heard, overlap_policy=policy, retry=2)
        talk.server.advance(60)
        talk.server.advance(60)
        assert len(runs(talk, made)) == begun
        talk.server.advance(30)
        assert talk.server.pump.settle()
        assert {run["status"] for run in runs(talk, made)} == {"succeeded"}
        assert len(runs(talk, made)) == afterwards


def test_a_deleted_job_is_gone(talk: Talk) -> None:
    made = create(talk)
    assert talk(f"/v1/cron/delete/{made}", method="DELETE").data == {"job_id": made, "deleted": True}
    for path, method in (("get", "GET"), ("runs/list", "GET"), ("pause", "POST"), ("resume", "POST"),
                         ("trigger", "POST"), ("delete", "DELETE")):  # fmt: skip
        assert talk(f"/v1/cron/{path}/{made}", method=method).refused == (404, "NOT_FOUND")


def test_jitter_starts_a_run_late_by_so_much_at_most() -> None:
    with talking(jitter=5.0) as talk:
        seconds = {float(job(talk, create(talk, name=str(n)))["next_run_at"][17:-1]) for n in range(20)}
    assert max(seconds) <= 5
    assert len(seconds) > 1
