"""The receivers' guide: each way of verifying it shows takes what is sent, and nothing else."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from domain.signing import HmacKey, signed_headers
from gateways import resolver, webhook
from gateways.webhook import Limits
from settings import ROOT

GUIDE = (ROOT / "docs" / "webhooks.md").read_text()
KEY, OLD_KEY, OTHER_KEY = HmacKey(bytes(range(32))), HmacKey(b"o" * 24), HmacKey(b"x" * 64)
BODY = '{"type":"reservation.placed","data":{"resource":"siège 12A"}}'.encode()

Verify = Callable[[str, dict[str, str], bytes], bool]


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def in_python(secret: str, headers: dict[str, str], body: bytes) -> bool:
    names: dict[str, object] = {}
    exec(shown("py")[1], names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    return bool(is_genuine(secret, headers, body))


def in_python_with_the_package(secret: str, headers: dict[str, str], body: bytes) -> bool:
    from standardwebhooks import WebhookVerificationError

    names: dict[str, object] = {"raw_body": body, "headers": headers}
    try:
        exec(shown("py")[0].replace("whsec_...", secret), names)
    except WebhookVerificationError:
        return False
    return bool(names["event"] == json.loads(body))


def in_node(secret: str, headers: dict[str, str], body: bytes) -> bool:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    ask = f"console.log(isGenuine({json.dumps(secret)}, {json.dumps(headers)}, Buffer.from('{body.hex()}', 'hex')))"
    run = subprocess.run([node, "-e", shown("js")[0] + ask], capture_output=True, text=True, check=True)
    return {"true": True, "false": False}[run.stdout.strip()]


def in_go(secret: str, headers: dict[str, str], body: bytes) -> bool:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on this machine")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "main.go"
        lines = "\n".join(f"header.Set({json.dumps(name)}, {json.dumps(text)})" for name, text in headers.items())
        main = f"""
func main() {{
    header := http.Header{{}}
    {lines}
    body, _ := hex.DecodeString("{body.hex()}")
    fmt.Println(IsGenuine({json.dumps(secret)}, header, body))
}}"""
        code = (
            shown("go")[0]
            .replace("package hooks", "package main")
            .replace("import (", 'import (\n"encoding/hex"\n"fmt"')
        )
        program.write_text(code + main)
        run = subprocess.run([go, "run", str(program)], capture_output=True, text=True, check=True)
    return {"true": True, "false": False}[run.stdout.strip()]


WAYS = [in_python, in_python_with_the_package, in_node, in_go]
NOW = int(time.time())


def request(*keys: HmacKey, at: int = NOW) -> dict[str, str]:
    return signed_headers(list(keys), "reservation-placed:ada-1:1", at, BODY)


@pytest.mark.parametrize("verify", WAYS)
def test_what_is_sent_verifies_also_while_two_keys_sign(verify: Verify) -> None:
    assert verify(KEY.reveal(), request(KEY), BODY)
    assert verify(OLD_KEY.reveal(), request(KEY, OLD_KEY), BODY)


@pytest.mark.parametrize("verify", WAYS)
def test_what_was_changed_or_signed_by_another_does_not_verify(verify: Verify) -> None:
    headers = request(KEY)
    assert not verify(KEY.reveal(), headers, BODY + b" ")
    assert not verify(OTHER_KEY.reveal(), headers, BODY)
    assert not verify(KEY.reveal(), {**headers, "webhook-id": "reservation-placed:ada-1:2"}, BODY)
    assert not verify(KEY.reveal(), {**headers, "webhook-timestamp": str(NOW + 1)}, BODY)


@pytest.mark.parametrize("verify", WAYS)
@pytest.mark.parametrize("away", [-360, 360])
def test_a_timestamp_more_than_five_minutes_away_does_not_verify(verify: Verify, away: int) -> None:
    assert not verify(KEY.reveal(), request(KEY, at=int(time.time()) + away), BODY)


@pytest.mark.parametrize("verify", WAYS)
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("webhook-timestamp", "soon"),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "nonsense é, x"),
        ("webhook-signature", ""),
    ],
)
def test_headers_that_make_no_sense_do_not_verify(verify: Verify, header: str, value: str) -> None:
    if verify is in_python_with_the_package:
        pytest.skip("how the package says no to nonsense is its own business")
    assert not verify(KEY.reveal(), {**request(KEY), header: value}, BODY)


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
