"""Discovery tells what the server takes, from the same models, and can be read back into the table."""

import re

import jsonschema
import pytest
import requests

from comparison.infrai_server.contract import Contract
from comparison.infrai_server.models import MODELS
from comparison.infrai_server.operations import Documents
from domain.errors import BadInput
from domain.infrai import CAPABILITIES
from settings import ROOT
from tests.comparison.talking import Talk


def test_discovery_needs_no_key_and_has_no_envelope(talk: Talk) -> None:
    manifest = requests.get(f"{talk.server.url}/v1/discovery", timeout=5).json()
    assert manifest.keys() == {"version", "generated_at", "capabilities"}
    assert [one["id"] for one in manifest["capabilities"]] == list(MODELS)
    assert manifest["capabilities"][0].keys() == {"id", "method", "path", "available", "regions", "vendors", "billing"}
    detail = requests.get(f"{talk.server.url}/v1/discovery/queue.publish", timeout=5).json()
    assert (detail["id"], detail["method"], detail["path"]) == ("queue.publish", "POST", "/v1/queue/publish")
    assert detail["params"]["properties"]["delay_seconds"]["maximum"] == 604_800
    assert detail["params"]["required"] == ["payload", "queue"]
    assert {"code": "RATE_LIMIT_USER", "http": 429, "retryable": True} in detail["errors"]
    assert detail["examples"].keys() == {"curl", "python", "javascript", "typescript"}
    unknown = requests.get(f"{talk.server.url}/v1/discovery/queue.purge", timeout=5)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")


def test_every_call_of_the_client_is_told_of() -> None:
    assert CAPABILITIES.keys() == MODELS.keys() == Documents(Contract()).operations.keys()


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"queue": "q", "payload": {}, "delay_seconds": 604_800}, True),
        ({"queue": "q", "payload": {}, "delay_seconds": 604_801}, False),
        ({"queue": "q", "payload": []}, False),
        ({"queue": "q", "payload": {}, "priority": 10}, False),
        ({"queue": "q q", "payload": {}}, False),
        ({"queue": "q", "payload": {}, "more": 1}, False),
    ],
)
def test_the_schema_and_the_server_agree(talk: Talk, body: object, *, fits: bool) -> None:
    talk.queue()
    schema = talk.server.app.documents.detail("queue.publish")["params"]
    assert jsonschema.Draft202012Validator(schema).is_valid(body) is fits
    assert (talk("/v1/queue/publish", body).status == 200) is fits


def test_a_live_document_replaces_the_limits_it_states_and_no_other() -> None:
    limits = {
        "longest_delay": 86_400, "consume_most": 10, "largest_batch": 25, "highest_priority": 3, "lease_longest": 600,
        "retention_longest_days": 14, "run_longest": 60, "consume_default": 5,
    }  # fmt: skip
    documents = Documents(Contract(**limits))
    live = {name: documents.detail(name) for name in MODELS}
    replaced = Contract(consume_key="messages").replaced_by(live)
    assert replaced == Contract(consume_key="messages", **limits)
    assert Contract().replaced_by({}) == Contract()
    odd = {"queue.publish": {"params": {"properties": {"delay_seconds": {"maximum": "a week"}}}}, "queue.consume": 5}
    assert Contract().replaced_by(odd) == Contract()


def test_a_switch_is_named_when_it_does_not_exist_or_does_not_take_its_value() -> None:
    assert Contract.parse({"consume_key": "messages", "jitter": "2.5", "keys_required": "true"}) == Contract(
        consume_key="messages", jitter=2.5, keys_required=True
    )
    with pytest.raises(BadInput, match=r"^consume_kay: is no switch; there are consume_key, "):
        Contract.parse({"consume_kay": "items"})
    with pytest.raises(BadInput, match=r"^jitter: Input should be less than or equal to 5$"):
        Contract.parse({"jitter": "6"})


def test_each_switch_is_in_the_table_of_the_guide_with_its_default() -> None:
    guide = (ROOT / "docs" / "infrai.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| `?([A-Za-z0-9.]+)`? \| (?:[XU]\d|published)", guide, re.MULTILINE))
    assert rows == {name: str(field.default) or "none" for name, field in Contract.model_fields.items()}
