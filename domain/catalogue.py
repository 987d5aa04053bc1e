"""What receivers get: every type of event with its JSON Schema and an example, made by the code that makes events.

`markdown` is the chapter of docs/webhooks.md; a test holds the two together, and the schemas to what is sent.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from domain.changes import Change, Event, Kind, event_of
from domain.endpoints import ENDPOINT_TYPES, TEST_TYPE, EndpointId, Told, endpoint_event, trial_event
from domain.identity import HoldId

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_AT = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC)
_DEADLINE = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)

_ID = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_INSTANT = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$"}
_DEADLINE_FORM = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
_RESERVATION = {
    "reservation_id": _ID,
    "hold_version": {"type": "integer", "minimum": 1},
    "resource": {"type": "string", "minLength": 1, "maxLength": 200},
    "expires_at": _DEADLINE_FORM,
}
_ENDPOINT = {"endpoint_id": _ID, "reason": {"type": "string"}}
_TRIAL = {"endpoint_id": _ID}

_MEANING = {
    Kind.PLACED: "A hold was placed. `timestamp` is when, `expires_at` its deadline.",
    Kind.EXTENDED: "A hold has a new deadline, and `hold_version` is one higher.",
    Kind.CONFIRMED: "A hold was confirmed before its deadline. It is over.",
    Kind.CANCELLED: "A hold was cancelled before its deadline. It is over.",
    Kind.EXPIRED: "A hold's deadline passed while it was held. It is over.",
    Told.FAILING: "Another endpoint has failed for a day without a success.",
    Told.DISABLED: "Another endpoint was disabled: by its 410, by failing for days, or by hand. `reason` says which.",
    Told.RECOVERED: "An endpoint that others were told of took an event again.",
}
_REASON = {
    Told.FAILING: "failing for 1d without a success, at last with status 500",
    Told.DISABLED: "the receiver answered 410 Gone",
    Told.RECOVERED: "a request succeeded",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One type of event."""

    meaning: str
    schema: Mapping[str, Any]
    """Of the body, in JSON Schema 2020-12. Fields may be added later, so it forbids none."""
    example: Event


def _schema(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"const": kind},
            "timestamp": _INSTANT,
            "data": {"type": "object", "required": list(data), "properties": dict(data)},
        },
    }


def _reservation(kind: Kind) -> Entry:
    version = 1 if kind is Kind.PLACED else 2
    at = _DEADLINE + timedelta(milliseconds=374) if kind is Kind.EXPIRED else _AT
    change = Change(kind, HoldId("ada-1"), version, _DEADLINE, "seat-12A", 1250, "EUR", at)
    example = event_of(change)
    return Entry(_MEANING[kind], _schema(example.type, _RESERVATION), example)


def _endpoint(told: Told) -> Entry:
    example = endpoint_event(told, EndpointId("ep_crm"), _REASON[told], _AT)
    return Entry(_MEANING[told], _schema(example.type, _ENDPOINT), example)


def _trial() -> Entry:
    meaning = "Somebody tries your endpoint out with `holdfast endpoints test`. Sent once; nobody subscribes to it."
    return Entry(meaning, _schema(TEST_TYPE, _TRIAL), trial_event(EndpointId("ep_crm"), _AT))


CATALOGUE: Mapping[str, Entry] = {
    **{f"reservation.{kind}": _reservation(kind) for kind in Kind},
    **dict(zip(ENDPOINT_TYPES, map(_endpoint, Told), strict=True)),
    TEST_TYPE: _trial(),
}
"""Every type there is, in the order of EVENT_TYPES, and at last the one that tests an endpoint."""


def markdown() -> str:
    """The catalogue as a chapter: for each type its meaning, an example as it is sent, and its schema."""
    return "\n".join(_chapter(kind, entry) for kind, entry in CATALOGUE.items())


def _chapter(kind: str, entry: Entry) -> str:
    return (
        f"### {kind}\n\n{entry.meaning}\n\n"
        f"`webhook-id: {entry.example.event_id}`, and this body:\n\n"
        f"```json\n{entry.example.body.decode()}\n```\n\n"
        f"<details><summary>JSON Schema</summary>\n\n"
        f"```json\n{json.dumps(entry.schema, indent=2)}\n```\n\n</details>\n"
    )
