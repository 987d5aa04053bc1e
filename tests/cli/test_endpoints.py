"""`endpoints`: who hears of events, as an operator adds, changes and ends it."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from db import endpoints
from db.endpoint_keys import place
from domain.addresses import NOT_ALLOWED
from domain.endpoints import EVENT_TYPES, EndpointId
from gateways.signing import parse_key
from gateways.vault import Vault
from tasks import sending
from tasks.delivery import Drain
from tests.cli.conftest import Command
from tests.cli.saying import Said
from tests.gateways.receiver import answer, receiving, saying
from tests.helpers import Desk
from tests.hooks import OK, Hooks

VAULT = base64.b64encode(bytes(range(32))).decode()
URL = "https://93.184.215.14/hooks"
"""An address, so that no name is looked up."""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(autouse=True)
def _vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key to seal with; this process forgets it and the sender afterwards."""
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", VAULT)
    for kept in (sending.vault, sending.sender):
        kept.cache_clear()
    yield
    for kept in (sending.vault, sending.sender):
        kept.cache_clear()


@pytest.fixture
def hooks(desk: Desk) -> Hooks:
    return Hooks(desk.database)


def add(holdfast: Command, *options: str, url: str = URL) -> Any:
    """A new endpoint `ep`, as JSON."""
    said = holdfast("endpoints", "add", url, "--id", "ep", *options, "--json")
    assert (said.code, said.err) == (0, "")
    return said.data


def refused(said: Said) -> str:
    """The line of a refusal, which JSON repeats."""
    assert said.code == 1
    assert said.data == {"refused": "refused", "message": said.complaint}
    return said.complaint


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


def test_the_secret_that_is_stored_sealed_is_the_one_that_was_shown(holdfast: Command, desk: Desk) -> None:
    data = add(holdfast)
    [(key_id, sealed)] = desk.sql("SELECT key_id, sealed FROM endpoint_keys")
    key = parse_key(Vault([VAULT]).open(sealed, place(EndpointId("ep"), key_id)))
    assert (key.key_id, key.reveal()) == (data["key_id"], data["secret"])
    Webhook(data["secret"])


def test_of_an_ed25519_key_only_the_public_half_is_shown(holdfast: Command, desk: Desk) -> None:
    data = add(holdfast, "--scheme", "v1a")
    assert (data["scheme"], data["secret"], data["public_key"][:5]) == ("v1a", None, "whpk_")
    assert desk.sql("SELECT scheme FROM endpoint_keys") == [("v1a",)]


def test_a_person_reads_the_secret_beside_the_advice_to_keep_it(holdfast: Command) -> None:
    said = holdfast("endpoints", "add", URL, "--id", "ep")
    assert said.code == 0
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[:4] == ["ep enabled", f"url {URL}", "types all", "concurrency 4"]
    assert lines[-1].startswith("secret whsec_")
    assert said.complaint == "give this to the receiver now; it is not shown again"


def test_an_own_secret_is_read_from_a_file_or_stdin_and_not_repeated(holdfast: Command, tmp_path: Path) -> None:
    said = holdfast("endpoints", "add", URL, "--id", "ep", "--secret-from", "-", "--json", stdin=SECRET.encode())
    assert (said.code, said.data["secret"], said.err) == (0, None, "")
    assert said.data["key_id"] == parse_key(SECRET).key_id
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    again = holdfast("endpoints", "rotate", "ep", "--secret-from", str(file), "--json")
    assert refused(again) == "secret: is a key of this endpoint already; make a new one"


BAD = {
    "a user and password": ("https://ada:pw@93.184.215.14/", "holds a user name or password"),
    "a fragment": ("https://93.184.215.14/#top", "has a fragment"),
    "plain http": ("http://93.184.215.14/", "must begin with https://"),
    "port 0": ("https://93.184.215.14:0/", "has a bad port"),
    "port 99999": ("https://93.184.215.14:99999/", "has a bad port"),
    "another port": ("https://93.184.215.14:22/", "has a port that is not open to webhooks"),
    "a bad host": ("https://ex ample.com/", "has a bad host"),
    "a private address": ("https://10.1.2.3/", NOT_ALLOWED),
    "loopback": ("https://127.0.0.1/", NOT_ALLOWED),
    "loopback by name": ("https://localhost/", NOT_ALLOWED),
    "loopback in IPv6": ("https://[::1]/", NOT_ALLOWED),
    "an inner address in NAT64": ("https://[64:ff9b::a00:1]/", NOT_ALLOWED),
    "a cloud's metadata": ("https://169.254.169.254/", NOT_ALLOWED),
    "one number": ("https://2130706433/", "has an address in an odd notation"),
    "hexadecimal": ("https://0x7f.1/", "has an address in an odd notation"),
}


@pytest.mark.parametrize(("url", "cause"), BAD.values(), ids=BAD)
def test_a_url_that_no_webhook_may_go_to_is_refused_when_added_and_when_edited(
    holdfast: Command, hooks: Hooks, url: str, cause: str
) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    for command in (("add", url, "--id", "new"), ("edit", "ep", "--url", url)):
        said = holdfast("endpoints", *command, "--json")
        assert (said.code, said.out) == (2, "")
        assert said.complaint.startswith(f"url: {cause}")
    assert hooks.everything() == before


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


@pytest.mark.parametrize(
    ("secret", "line"),
    [
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "secret: holds 23 bytes; it must be 24 to 64"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "secret: holds 65 bytes; it must be 24 to 64"),
        ("swordfish", "secret: must begin with whsec_"),
        ("whsec_not*base64", "secret: is no base64 after whsec_"),
        ("whsk_" + base64.b64encode(b"x" * 32).decode(),
         "secret: holds 32 bytes; it must be 64: private key, then public key"),
        ("é", "secret: must begin with whsec_"),
    ],
)  # fmt: skip
def test_a_secret_of_another_form_or_length_is_refused_and_not_repeated(
    holdfast: Command, hooks: Hooks, secret: str, line: str
) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    for command in (("add", URL, "--id", "new"), ("rotate", "ep")):
        said = holdfast("endpoints", *command, "--secret-from", "-", stdin=secret.encode())
        assert (said.code, said.out, said.complaint) == (2, "", line)
    assert hooks.everything() == before


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("", "HOLDFAST_VAULT_KEYS: there is none; make one with: openssl rand -base64 32"),
        ("c2hvcnQ=", "HOLDFAST_VAULT_KEYS: each must be base64 of 32 bytes; make one with: openssl rand -base64 32"),
    ],
)
def test_without_a_vault_key_no_endpoint_is_added_and_no_key_rotated(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch, keys: str, line: str
) -> None:
    hooks.endpoint("ep")
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", keys)
    before = hooks.everything()
    for command in (("add", URL), ("rotate", "ep")):
        said = holdfast("endpoints", *command)
        assert (said.code, said.out, said.complaint) == (1, "", line)
    assert hooks.everything() == before


def test_an_id_that_is_taken_is_refused(holdfast: Command, desk: Desk) -> None:
    add(holdfast)
    before = desk.everything()
    said = holdfast("endpoints", "add", URL, "--id", "ep", "--json")
    assert refused(said) == "endpoint: 'ep' is an endpoint already; use another id"
    assert desk.everything() == before


def test_the_dangerous_setting_opens_loopback_and_plain_http(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "true")
    assert add(holdfast, url="http://127.0.0.1:8080/x")["url"] == "http://127.0.0.1:8080/x"


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


def test_rotating_lets_the_old_key_sign_for_the_grace_time_and_revoking_ends_it(holdfast: Command, desk: Desk) -> None:
    first = add(holdfast)["key_id"]
    second = holdfast("endpoints", "rotate", "ep", "--grace", "2h", "--json").data
    assert second["secret"].startswith("whsec_")
    assert desk.sql(
        """SELECT key_id, expires_at IS NULL, expires_at - created_at BETWEEN interval '2 h' AND interval '2 h 1 m'
           FROM endpoint_keys ORDER BY created_at"""
    ) == [(first, False, True), (second["key_id"], True, None)]
    said = holdfast("endpoints", "revoke", "ep", first, "--json")
    assert (said.code, said.data) == (0, {"id": "ep", "revoked": first})
    before = desk.everything()
    only = holdfast("endpoints", "revoke", "ep", second["key_id"], "--json")
    assert (
        refused(only) == f"key: '{second['key_id']}' is the only key that signs for good; rotate first, then revoke it"
    )
    assert refused(holdfast("endpoints", "revoke", "ep", "zzz", "--json")) == (
        "key: 'zzz' is no key of this endpoint; see `holdfast endpoints show`"
    )
    assert desk.everything() == before


def test_a_new_key_is_of_the_present_scheme_unless_another_is_asked_for(holdfast: Command, desk: Desk) -> None:
    add(holdfast, "--scheme", "v1a")
    assert holdfast("endpoints", "rotate", "ep", "--json").data["scheme"] == "v1a"
    assert holdfast("endpoints", "rotate", "ep", "--scheme", "v1", "--json").data["scheme"] == "v1"


@pytest.mark.parametrize("grace", ["8d", "7d1s", "-1h", "soon"])
def test_a_grace_time_beyond_its_bounds_is_bad_usage(holdfast: Command, hooks: Hooks, grace: str) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    said = holdfast("endpoints", "rotate", "ep", "--grace", grace)
    assert (said.code, said.out) == (2, "")
    assert said.complaint.startswith("--grace: ")
    assert hooks.everything() == before


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


def test_test_asks_the_address_guard_again(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep", url="https://10.0.0.1/")
    before = hooks.everything()
    said = holdfast("endpoints", "test", "ep", "--json")
    assert refused(said) == f"url: {NOT_ALLOWED}"
    assert hooks.everything() == before


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


def test_what_was_added_and_tested_arrives_signed_with_the_secret_that_was_shown(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "true")
    with receiving(saying(answer())) as receiver:
        secret = add(holdfast, url=f"http://127.0.0.1:{receiver.port}/hooks")["secret"]
        event = holdfast("endpoints", "test", "ep", "--json").data["event"]
        drain = Drain(db=hooks.database, send=sending.send, policy=hooks.policy, worker="worker@test")
        assert drain(EndpointId("ep")).sent == 1
        sending.sender().close()
    [request] = receiver.requests
    assert request.headers["webhook-id"] == event
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert Webhook(secret).verify(request.body, headers)["type"] == "webhook.test"
    shown = holdfast("deliveries", "show", event, "ep", "--json").data
    assert (shown["state"], [made["status"] for made in shown["requests"]]) == ("delivered", [200])
