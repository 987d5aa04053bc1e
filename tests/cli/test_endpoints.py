"""`endpoints`: who hears of events, as an operator adds, changes and ends it."""

import pytest

from db import endpoints
from domain.endpoints import EVENT_TYPES
from tests.cli.conftest import Command
from tests.cli.endpoint_steps import URL, add, refused
from tests.helpers import Desk
from tests.hooks import OK, Hooks

pytestmark = pytest.mark.usefixtures("vault")


def test_an_added_endpoint_has_its_terms_and_shows_its_secret_this_once(holdfast: Command, desk: Desk) -> None:
    data = add(
        holdfast, "--types", "reservation.expired,reservation.placed", "--label", "billing", "--rate", "2.5",
        "--concurrency", "8", "--max-attempts", "3", "--max-age", "2d", "--waits", "0s,5s,1m", "--client-errors-final",
    )  # fmt: skip
    assert data["secret"].startswith("whsec_")
    assert (data.pop("scheme"), data.pop("public_key")) == ("v1", None)
    shown = holdfast("endpoints", "show", "ep", "--json").data
    assert [key["key_id"] for key in shown["keys"]] == [data.pop("key_id")]
    secret = data.pop("secret")
    assert {name: shown[name] for name in data} == data
    assert data == {
        "id": "ep", "url": URL, "label": "billing", "types": ["reservation.placed", "reservation.expired"],
        "state": "enabled", "reason": None, "breaker": "closed", "failures": 0, "failing_since": None,
        "concurrency": 8, "rate": 2.5, "max_attempts": 3, "max_age_s": 172_800.0, "waits_s": [0.0, 5.0, 60.0],
        "client_errors_final": True, "created_at": data["created_at"],
    }  # fmt: skip
    for command in (("show", "ep"), ("list",), ("show", "ep", "--json")):
        assert secret.removeprefix("whsec_") not in holdfast("endpoints", *command).out


USELESS = {
    "an unknown type": (("--types", "reservation.plcaed"), (f"types: 'reservation.plcaed' is no event type; use "
                        f"{', '.join(EVENT_TYPES)}")),
    "no type": (("--types", ""), f"types: '' is no event type; use {', '.join(EVENT_TYPES)}"),
    "a rate of nothing": (("--rate", "0"), "rate: must lie between 0.001 and 10000 a second"),
    "a rate that is no number": (("--rate", "nan"), "rate: must lie between 0.001 and 10000 a second"),
    "an endless age": (("--max-age", "31d"), "max_age: must be longer than zero and at most 30 days"),
    "a long wait": (("--waits", "5s,8d"), "waits: must be one wait or more, each from 0 to 7 days"),
    "a wait that is none": (("--waits", "5s,,1m"), "--waits: '' is no duration; write it like 90s, 30m, 1h30m or 2d"),
    "a NUL in the label": (("--label", "a\0b"), "label: holds U+0000, a character that is no text; remove it"),
    "half a letter in the label": (("--label", "a\ud800"), ("label: holds U+D800, a character that is no text; "
                                   "remove it")),
}  # fmt: skip


@pytest.mark.parametrize(("options", "line"), USELESS.values(), ids=USELESS)
def test_a_term_that_cannot_be_is_refused_when_added_and_when_edited(
    holdfast: Command, hooks: Hooks, options: tuple[str, ...], line: str
) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    for command in (("add", URL, "--id", "new"), ("edit", "ep")):
        said = holdfast("endpoints", *command, *options)
        assert (said.code, said.out, said.complaint) == (2, "", line)
    assert hooks.everything() == before


def test_an_id_that_is_taken_is_refused(holdfast: Command, desk: Desk) -> None:
    add(holdfast)
    before = desk.everything()
    said = holdfast("endpoints", "add", URL, "--id", "ep", "--json")
    assert refused(said) == "endpoint: 'ep' is an endpoint already; use another id"
    assert desk.everything() == before


def test_edit_changes_what_is_named_and_leaves_the_rest(holdfast: Command) -> None:
    before = add(holdfast, "--label", "billing", "--rate", "2", "--waits", "1s", "--client-errors-final")
    said = holdfast("endpoints", "edit", "ep", "--concurrency", "9", "--url", "https://93.184.215.14:8443", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.data == {**{name: before[name] for name in said.data}, "concurrency": 9,
                         "url": "https://93.184.215.14:8443/"}  # fmt: skip
    bare = holdfast("endpoints", "edit", "ep", "--unset", "rate,label,waits", "--client-errors-retried", "--json").data
    assert bare == {**said.data, "rate": None, "label": None, "waits_s": None, "client_errors_final": False}
    bad = holdfast("endpoints", "edit", "ep", "--unset", "url")
    line = "--unset: 'url' cannot be given up; use types, label, rate, max-attempts, max-age, waits"
    assert (bad.code, bad.complaint) == (2, line)


def test_an_endpoint_goes_through_its_states(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep")
    states = []
    for command in (("pause", "--reason", "move"), ("resume",), ("disable", "--reason", "rude"), ("enable",),
                    ("delete",)):  # fmt: skip
        verb, *options = command
        data = holdfast("endpoints", verb, "ep", *options, "--json").data
        states.append((data["state"], data["reason"]))
    assert states == [("paused", "move"), ("enabled", None), ("disabled", "rude"), ("enabled", None), ("deleted", None)]
    assert holdfast("endpoints", "list", "--json").lines == []
    assert [one["id"] for one in holdfast("endpoints", "list", "--all", "--json").lines] == ["ep"]


def test_a_move_that_its_state_forbids_is_refused(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep")
    hooks.call(endpoints.disable, "ep", "rude")
    before = hooks.everything()
    assert refused(holdfast("endpoints", "resume", "ep", "--json")) == "endpoint: 'ep' is disabled: rude; use enable"
    assert refused(holdfast("endpoints", "test", "ep", "--json")).endswith("is disabled; use enable first")
    assert hooks.everything() == before


EACH = [
    ("edit", "--rate", "5"), ("rotate",), ("pause",), ("resume",), ("disable", "--reason", "x"), ("enable",), ("test",),
]  # fmt: skip


@pytest.mark.parametrize("command", EACH, ids=lambda command: command[0])
@pytest.mark.parametrize("deleted", [True, False])
def test_an_endpoint_that_is_not_there_or_deleted_is_refused(
    holdfast: Command, hooks: Hooks, command: tuple[str, ...], *, deleted: bool
) -> None:
    if deleted:
        hooks.endpoint("ep")
        hooks.call(endpoints.delete)
    before = hooks.everything()
    line = refused(holdfast("endpoints", command[0], "ep", *command[1:], "--json"))
    assert line.startswith("endpoint: ")
    assert ("deleted" if deleted else "there is no endpoint 'ep'") in line
    assert hooks.everything() == before


def test_test_writes_one_event_for_this_endpoint_alone(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(holdfast)
    hooks.endpoint("other")
    said = holdfast("endpoints", "test", "ep", "--json")
    [row] = hooks.rows("SELECT event_id, endpoint_id, trigger, state FROM deliveries")
    assert row == (said.data["event"], "ep", "test", "pending")
    assert hooks.rows("SELECT type, audience FROM events") == [("webhook.test", 1)]


def test_list_and_show_tell_a_person_how_endpoints_stand(holdfast: Command, hooks: Hooks) -> None:
    assert holdfast("endpoints", "list") == (0, "no endpoints\n", "")
    hooks.endpoint("ep")
    assert [line.split() for line in holdfast("endpoints", "list").out.splitlines()] == [
        ["id", "state", "breaker", "label", "types", "url"],
        ["ep", "enabled", "closed", "all", "https://ep.example.com/"],
    ]
    shown = [" ".join(line.split()) for line in holdfast("endpoints", "show", "ep").out.splitlines()]
    assert shown == [
        "ep enabled", "url https://ep.example.com/", "types all", "concurrency 4", "key key-ep v1 signs",
        "breaker closed", "waiting 0", "last hour 0 requests",
    ]  # fmt: skip


def test_status_tells_a_person_how_endpoints_stand(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep")
    hooks.placed("a")
    hooks.placed("b")
    hooks.make_due()
    hooks.attempt(OK)
    hooks.sql("UPDATE deliveries SET next_attempt_at = now() + interval '1 h' WHERE state = 'pending'")
    lines = [line.split() for line in holdfast("status").out.splitlines()]
    assert lines[lines.index(["Endpoints"]) + 1 :][:2] == [
        ["id", "state", "breaker", "waiting", "due", "for", "2xx", "p50", "p95"],
        ["ep", "enabled", "closed", "1", "100.0%", "0.020", "s", "0.020", "s"],
    ]
    for number in range(30):
        hooks.endpoint(f"more-{number}")
    assert "   and 11 more; see `holdfast endpoints list`" in holdfast("status").out.splitlines()


def test_what_is_not_said_is_as_the_deployment_has_it(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WEBHOOK_SLOTS", "9")
    monkeypatch.setenv("HOLDFAST_WEBHOOK_KEY_GRACE", "0s")
    first = add(holdfast)
    second = holdfast("endpoints", "add", URL, "--id", "own", "--concurrency", "2", "--json").data
    assert (first["concurrency"], second["concurrency"]) == (9, 2)
    holdfast("endpoints", "rotate", "ep")
    ended = hooks.rows("SELECT key_id FROM endpoint_keys WHERE expires_at <= now()")
    assert ended == [(first["key_id"],)]
