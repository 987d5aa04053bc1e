"""The receivers' guide: each way of verifying it shows takes what is sent, and nothing else."""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.signing import HmacKey, Key, signed_headers
from gateways import resolver, webhook
from gateways.signing import Ed25519Key
from gateways.webhook import Limits
from settings import ROOT

GUIDE = (ROOT / "docs" / "webhooks.md").read_text()
BODY = '{"type":"reservation.placed","data":{"resource":"siège 12A"}}'.encode()

Verify = Callable[[str, dict[str, str], bytes], bool]


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def by_hand_in_python(number: int) -> Verify:
    def in_python(secret: str, headers: dict[str, str], body: bytes) -> bool:
        names: dict[str, object] = {}
        exec(shown("py")[number], names)
        is_genuine = names["is_genuine"]
        assert callable(is_genuine)
        return bool(is_genuine(secret, headers, body))

    return in_python


def in_python_with_the_package(secret: str, headers: dict[str, str], body: bytes) -> bool:
    from standardwebhooks import WebhookVerificationError

    names: dict[str, object] = {"raw_body": body, "headers": headers}
    try:
        exec(shown("py")[0].replace("whsec_...", secret), names)
    except WebhookVerificationError:
        return False
    return bool(names["event"] == json.loads(body))


def with_node(number: int) -> Verify:
    def in_node(secret: str, headers: dict[str, str], body: bytes) -> bool:
        node = shutil.which("node")
        if node is None:
            pytest.skip("no node on this machine")
        ask = f"console.log(isGenuine({json.dumps(secret)}, {json.dumps(headers)}, Buffer.from('{body.hex()}', 'hex')))"
        run = subprocess.run([node, "-e", shown("js")[number] + ask], capture_output=True, text=True, check=True)
        return {"true": True, "false": False}[run.stdout.strip()]

    return in_node


GO_MAIN = """
func main() {
    header := http.Header{}
    %s
    body, _ := hex.DecodeString("%s")
    fmt.Println(IsGenuine(%s, header, body))
}"""


def with_go(number: int) -> Verify:
    def in_go(secret: str, headers: dict[str, str], body: bytes) -> bool:
        go = shutil.which("go")
        if go is None:
            pytest.skip("no go on this machine")
        lines = "\n".join(f"header.Set({json.dumps(name)}, {json.dumps(text)})" for name, text in headers.items())
        code = shown("go")[number].replace("package hooks", "package main")
        code = code.replace("import (", 'import (\n"encoding/hex"\n"fmt"')
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "main.go"
            program.write_text(code + GO_MAIN % (lines, body.hex(), json.dumps(secret)))
            run = subprocess.run([go, "run", str(program)], capture_output=True, text=True, check=True)
        return {"true": True, "false": False}[run.stdout.strip()]

    return in_go


@dataclass(frozen=True)
class Scheme:
    """Three keys of one kind, and what a receiver is given of a key."""

    key: Key
    old: Key
    other: Key
    given: Callable[[Any], str]


V1 = Scheme(HmacKey(bytes(range(32))), HmacKey(b"o" * 24), HmacKey(b"x" * 64), HmacKey.reveal)
V1A = Scheme(
    Ed25519Key.generate(), Ed25519Key.generate(), Ed25519Key.generate(), lambda key: str(key.public)
)  # fmt: skip
WAYS = {
    "v1 in python": (V1, by_hand_in_python(1)),
    "v1 in python with the package": (V1, in_python_with_the_package),
    "v1 in node": (V1, with_node(0)),
    "v1 in go": (V1, with_go(0)),
    "v1a in python": (V1A, by_hand_in_python(2)),
    "v1a in node": (V1A, with_node(1)),
    "v1a in go": (V1A, with_go(1)),
}
each_way = pytest.mark.parametrize(("scheme", "verify"), WAYS.values(), ids=WAYS.keys())


def request(*keys: Key, away: int = 0) -> dict[str, str]:
    """Signed so many seconds from now."""
    return signed_headers(keys, "reservation-placed:ada-1:1", int(time.time()) + away, BODY)


@each_way
def test_what_is_sent_verifies_also_while_two_keys_sign(scheme: Scheme, verify: Verify) -> None:
    assert verify(scheme.given(scheme.key), request(scheme.key), BODY)
    assert verify(scheme.given(scheme.old), request(scheme.key, scheme.old), BODY)


@each_way
def test_keys_of_both_schemes_may_sign_together(scheme: Scheme, verify: Verify) -> None:
    assert verify(scheme.given(scheme.key), request(V1.key, V1A.key), BODY)
    assert verify(scheme.given(scheme.key), request(V1A.key, V1.key), BODY)


@each_way
def test_what_was_changed_or_signed_by_another_does_not_verify(scheme: Scheme, verify: Verify) -> None:
    given, headers = scheme.given(scheme.key), request(scheme.key)
    assert not verify(given, headers, BODY + b" ")
    assert not verify(scheme.given(scheme.other), headers, BODY)
    assert not verify(given, {**headers, "webhook-id": "reservation-placed:ada-1:2"}, BODY)
    later = str(int(headers["webhook-timestamp"]) + 1)
    assert not verify(given, {**headers, "webhook-timestamp": later}, BODY)


@each_way
def test_a_signature_under_the_other_schemes_tag_does_not_verify(scheme: Scheme, verify: Verify) -> None:
    headers = request(scheme.key)
    tag, _, text = headers["webhook-signature"].partition(",")
    swapped = {"v1": "v1a", "v1a": "v1"}[tag]
    assert not verify(scheme.given(scheme.key), {**headers, "webhook-signature": f"{swapped},{text}"}, BODY)


@each_way
@pytest.mark.parametrize("away", [-360, 360])
def test_a_timestamp_more_than_five_minutes_away_does_not_verify(scheme: Scheme, verify: Verify, away: int) -> None:
    assert not verify(scheme.given(scheme.key), request(scheme.key, away=away), BODY)


@each_way
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("webhook-timestamp", "soon"),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "nonsense é, x"),
        ("webhook-signature", "v1a"),
        ("webhook-signature", "v1a,"),
        ("webhook-signature", "v1a,AAAA"),
        ("webhook-signature", ""),
    ],
)
def test_headers_that_make_no_sense_do_not_verify(scheme: Scheme, verify: Verify, header: str, value: str) -> None:
    if verify is in_python_with_the_package:
        pytest.skip("how the package says no to nonsense is its own business")
    assert not verify(scheme.given(scheme.key), {**request(scheme.key), header: value}, BODY)


def test_the_request_shown_verifies_with_the_secret_shown() -> None:
    (text,) = [block for block in shown("text") if "webhook-signature" in block]
    head, _, body = text.strip().partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    (secret,) = re.findall(r"`(whsec_[A-Za-z0-9+/=]{32,})`", GUIDE)
    sent = int(headers["webhook-timestamp"])
    key = HmacKey.parse(secret)
    assert signed_headers([key], headers["webhook-id"], sent, body.encode()).items() <= headers.items()


def test_the_bounds_of_an_answer_shown_are_those_that_hold() -> None:
    limits = Limits()
    all_in_all = limits.body + webhook._HEAD_BUDGET
    for said in (
        f"At\nmost {limits.body // 1024} KiB of your answer's body are read",
        f"first {limits.kept:,} characters are\nkept",
        f"compressed and decompressed | {limits.body // 1024} KiB |",
        f"what is kept of it | {limits.kept:,} characters |",
        f"status, headers, body | {all_in_all // 1024} KiB |",
        f"the look-up of its name, within that | {resolver._LONGEST:.0f} s |",
    ):
        assert said in GUIDE
