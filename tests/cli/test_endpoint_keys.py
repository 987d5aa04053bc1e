"""`endpoints`: keys and their secrets, as they are made, shown once, sealed and ended."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from cli.resealing import Resealed, seal_all
from db import endpoint_keys
from db.endpoint_keys import place
from domain.endpoints import EndpointId
from gateways.signing import parse_key
from gateways.vault import Vault
from tasks import sending
from tasks.delivery import Drain
from tests.cli.conftest import VAULT, Command
from tests.cli.endpoint_steps import URL, add, refused
from tests.gateways.receiver import answer, receiving, saying
from tests.helpers import Desk
from tests.hooks import Hooks

pytestmark = pytest.mark.usefixtures("vault")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


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


OTHER = base64.b64encode(bytes(range(1, 33))).decode()


def vaults(monkeypatch: pytest.MonkeyPatch, *keys: str) -> Vault:
    """Let the command have these vault keys."""
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", ",".join(keys))
    sending.vault.cache_clear()
    return Vault(keys)


def test_resealed_secrets_open_without_the_older_vault_key(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = [add(holdfast)["secret"], holdfast("endpoints", "rotate", "ep", "--json").data["secret"]]
    both = vaults(monkeypatch, OTHER, VAULT)
    assert holdfast("endpoints", "add", URL, "--id", "new").code == 0
    said = holdfast("endpoints", "reseal", "--json")
    assert (said.code, said.data, said.err) == (0, {"resealed": 2, "current": 1, "unreadable": []}, "")
    rows = hooks.rows("SELECT key_id, sealed FROM endpoint_keys WHERE endpoint_id = 'ep' ORDER BY created_at")
    assert [Vault([OTHER]).open(sealed, place(EndpointId("ep"), key_id)) for key_id, sealed in rows] == secrets
    assert all(both.is_current(sealed) for _, sealed in rows)
    before = hooks.everything()
    again = holdfast("endpoints", "reseal")
    assert again == (0, "0 secrets sealed anew, 3 were already, 0 cannot be opened\n", "")
    assert hooks.everything() == before


def test_what_cannot_be_opened_is_named_and_left_as_it_is(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = add(holdfast)["key_id"]
    vaults(monkeypatch, OTHER)
    holdfast("endpoints", "add", URL, "--id", "well")
    holdfast("endpoints", "add", URL, "--id", "gone")
    hooks.sql("UPDATE endpoint_keys SET sealed = 'x', revoked_at = now() WHERE endpoint_id = 'gone'")
    before = hooks.everything()
    said = holdfast("endpoints", "reseal", "--json")
    assert said.code == 1
    assert (said.data["resealed"], said.data["current"], said.data["unreadable"]) == (0, 1, [said.complaint])
    assert said.complaint.startswith(f"ep/{lost}: sealed with key ")
    assert holdfast("endpoints", "reseal").out == "0 secrets sealed anew, 1 were already, 1 cannot be opened\n"
    assert hooks.everything() == before


def test_two_who_reseal_at_once_seal_each_secret_once_and_leave_none_out(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        holdfast("endpoints", "add", URL, "--id", f"ep-{number}")
    both = vaults(monkeypatch, OTHER, VAULT)
    barrier = threading.Barrier(4)

    def work(_: int) -> Resealed:
        barrier.wait()
        return seal_all(hooks.database, both, batch=4)

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(work, range(4)))
    assert (sum(one.resealed for one in told), [one.resealed + one.current for one in told]) == (25, [25] * 4)
    assert all(both.is_current(sealed) for (sealed,) in hooks.rows("SELECT sealed FROM endpoint_keys"))


def test_a_key_that_was_sealed_anew_meanwhile_keeps_that_seal(hooks: Hooks) -> None:
    hooks.endpoint("ep")
    [old] = hooks.call(endpoint_keys.live)
    assert hooks.call(endpoint_keys.seal_anew, "ep", old, b"first") is True
    assert hooks.call(endpoint_keys.seal_anew, "ep", old, b"second") is False
    assert hooks.rows("SELECT sealed FROM endpoint_keys") == [(b"first",)]
