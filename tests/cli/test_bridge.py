"""`holdfast cohorts` and `holdfast bridge` against the contract server; bad input is one line and changes nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from comparison.infrai_server.serve import LocalInfrai, running
from db import cohorts
from domain.paths import Path
from domain.terms import For
from tasks import bridge as bridge_tasks
from tests.cli.conftest import Command
from tests.helpers import Desk


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalInfrai]:
    with running() as local:
        monkeypatch.setenv("HOLDFAST_INFRAI_URL", local.url)
        monkeypatch.setenv("INFRAI_API_KEY", local.key)
        bridge_tasks.client.cache_clear()
        yield local
        bridge_tasks.client.cache_clear()


def test_a_cohort_goes_over_the_bridge_and_back(holdfast: Command, desk: Desk, service: LocalInfrai) -> None:
    checked = holdfast("bridge", "check")
    assert (checked.code, checked.out) == (
        0,
        "the contract is as known; the queue holdfast-expiry is there\n",
    )
    hold = desk.overdue("h")
    route = holdfast("cohorts", "route", "all", "infrai", "--json")
    told = json.loads(route.out)
    assert (told["path"], told["messages_written"], len(told["moved"])) == ("infrai", 1, 100)
    assert holdfast("bridge", "publish").out == "1 messages published\n"
    stats = json.loads(holdfast("bridge", "stats", "--json").out)
    assert (stats["standing"], stats["to_publish"]) == ("open", {"due": 0, "under_way": 0, "later": 0})
    assert (stats["queue"]["visible"], stats["queue"]["dead_letters"]) == (1, 0)
    assert holdfast("bridge", "consume").out == "1 messages consumed, 1 acknowledged\n"
    assert desk.read("h").status == "expired"
    assert holdfast("bridge", "redrive").code == 0
    compared = holdfast("cohorts", "compare", str(hold.cohort))
    assert compared.out.splitlines()[-1] == f"{hold.cohort}: safe to move"
    assert compared.code == 0
    back = holdfast("cohorts", "route", "all", "sweep")
    assert back.out.splitlines()[0] == "sweep drives 0-99; moved: 0-99"
    shown = [json.loads(line) for line in holdfast("cohorts", "show", "--json").out.splitlines()]
    assert {(one["path"], one["before"]) for one in shown} == {("sweep", "infrai")}
    assert holdfast("reconcile").code == 0


def test_a_cohort_with_a_gap_is_not_safe(holdfast: Command, desk: Desk) -> None:
    said = holdfast("cohorts", "compare", "7", "--json")
    [told] = [json.loads(line) for line in said.out.splitlines()]
    assert (said.code, told["safe"]) == (1, False)


def test_a_paused_bridge_says_so_and_goes_on_when_it_is_resumed(
    holdfast: Command, desk: Desk, service: LocalInfrai
) -> None:
    holdfast("bridge", "check")
    cohorts.route(desk.database, range(100), Path.INFRAI)
    desk.placed("h")
    assert holdfast("bridge", "pause", "--operator", "ada").out.startswith("paused by ada since ")
    for command in ("publish", "consume"):
        said = holdfast("bridge", command)
        assert said.code == 1
        assert said.err.startswith("holdfast: the bridge is paused by ada since ")
    status = holdfast("status", "--json")
    assert "the bridge was paused by ada at" in status.out
    assert json.loads(status.out)["bridge"] == {"due": 1, "under_way": 0, "later": 0}
    assert holdfast("bridge", "resume").out == "open\n"
    assert holdfast("bridge", "publish").out == "1 messages published\n"


def test_a_message_is_published_again_only_when_it_was_published(
    holdfast: Command, desk: Desk, service: LocalInfrai
) -> None:
    holdfast("bridge", "check")
    cohorts.route(desk.database, range(100), Path.INFRAI)
    desk.placed("h", For(timedelta(hours=1)))
    refused = holdfast("bridge", "publish", "--again", "h", "--json")
    assert (refused.code, json.loads(refused.out)["refused"]) == (1, "nothing-published")
    holdfast("bridge", "publish")
    assert json.loads(holdfast("bridge", "publish", "--again", "h", "--json").out)["messages"] == 1
    assert desk.sql("SELECT try FROM bridge_messages ORDER BY try") == [(1,), (2,)]


def test_a_key_that_does_not_fit_is_told_and_not_shown(
    holdfast: Command, service: LocalInfrai, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRAI_API_KEY", "ifr_another_key")
    said = holdfast("bridge", "check")
    assert said.code == 1
    assert "set INFRAI_API_KEY" in said.err
    assert "ifr_another_key" not in said.err


def without(service: LocalInfrai, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let discovery tell nothing of these calls."""
    documents = service.app.documents
    real = documents.detail
    monkeypatch.setattr(documents, "detail", lambda name: None if name in names else real(name))


def test_a_discovery_that_says_otherwise_is_told_and_no_queue_is_made(
    holdfast: Command, service: LocalInfrai, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(service, monkeypatch, "queue.ack")
    said = holdfast("bridge", "check")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "holdfast: queue.ack: capability is not in discovery, this client has POST /v1/queue/ack; "
        "bring this client up to date first\n"
    )
    assert "there is no queue" in holdfast("bridge", "stats").err


def test_calls_that_the_bridge_can_do_without_are_not_asked_for(
    holdfast: Command, service: LocalInfrai, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(service, monkeypatch, "queue.publish_batch", "queue.nack", "queue.delete", "queue.push_subscribe")
    said = holdfast("bridge", "check")
    assert (said.code, said.out) == (
        0, "the contract is as known for what is needed; the queue holdfast-expiry is there\n",
    )  # fmt: skip
    assert said.err == (
        "holdfast: queue.publish_batch: capability is not in discovery, this client has POST /v1/queue/publish_batch; "
        "messages are published one by one\n"
    )
    told = json.loads(holdfast("bridge", "check", "--json").out)
    assert (told["one_by_one"], told["queue_as_wanted"]) == (True, True)


def test_where_messages_cannot_be_published_in_either_way_no_queue_is_made(
    holdfast: Command, service: LocalInfrai, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(service, monkeypatch, "queue.publish_batch", "queue.publish")
    said = holdfast("bridge", "check")
    assert said.code == 1
    assert said.err.count("queue.publish: capability is not in discovery") == 1
    assert "there is no queue" in holdfast("bridge", "stats").err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("cohorts", "route", "9-0", "sweep"), "cohorts: '9-0' runs backwards; write 0-9"),
        (("cohorts", "route", "100", "sweep"), "cohorts: '100' names none; write 7, 0-9, 0-4,50 or all"),
        (("cohorts", "route", "1", "rescue"), "path: 'rescue' drives no cohort; use sweep, infrai or scanner"),
        (("cohorts", "route", "1", "infrai"), "HOLDFAST_INFRAI_URL: is not set, so there is no bridge"),
        (("cohorts", "compare", "--within", "0s"), "--within: is zero; it must be longer than that"),
        (("cohorts", "compare", "--within", "500d"), "--within: reaches back more than 400d; use less"),
        (("bridge", "stats"), "HOLDFAST_INFRAI_URL: is not set; set it to Infrai's address"),
        (("bridge", "pause", "--operator", " "), "operator:"),
        (("sweep-door",), "HOLDFAST_DOOR_TOKEN: is not set, nor HOLDFAST_DOOR_SECRET"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    holdfast: Command, desk: Desk, words: tuple[str, ...], line: str
) -> None:
    bridge_tasks.client.cache_clear()
    before = desk.everything()
    said = holdfast(*words)
    assert said.code == 2
    assert said.err.startswith(f"holdfast: {line}")
    assert said.err.count("\n") == 1
    assert desk.everything() == before
