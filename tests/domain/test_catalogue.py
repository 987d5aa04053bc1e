"""The catalogue says what is sent: every type, each body under its schema, and the document word for word."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from db import endpoint_events
from db.deliveries import Settled, Taken
from db.engine import Database
from domain.catalogue import CATALOGUE, markdown
from domain.changes import Change, Kind, event_of
from domain.endpoints import EVENT_TYPES, TEST_TYPE, EndpointId, Told
from domain.identity import HoldId
from domain.outcomes import Outcome
from settings import ROOT
from tests.helpers import TWO_HOURS
from tests.hooks import Hooks

EP = EndpointId("ep")
OTHER = EndpointId("other")


def complaints(kind: str, body: bytes) -> list[str]:
    return [error.message for error in Draft202012Validator(CATALOGUE[kind].schema).iter_errors(json.loads(body))]


def test_every_type_that_can_be_sent_has_its_entry_in_order() -> None:
    assert list(CATALOGUE) == [*EVENT_TYPES, TEST_TYPE]


@pytest.mark.parametrize("kind", CATALOGUE)
def test_an_example_is_of_its_type_and_fits_its_schema(kind: str) -> None:
    entry = CATALOGUE[kind]
    Draft202012Validator.check_schema(entry.schema)
    assert (entry.example.type, json.loads(entry.example.body)["type"]) == (kind, kind)
    assert complaints(kind, entry.example.body) == []


@pytest.mark.parametrize("kind", CATALOGUE)
@pytest.mark.parametrize(
    ("path", "value"),
    [(("type",), "reservation.paid"), (("timestamp",), "2026-12-01T09:00:00+00:00"), (("data",), [])],
)
def test_a_schema_refuses_another_type_an_instant_not_in_utc_and_other_data(
    kind: str, path: tuple[str, ...], value: object
) -> None:
    body = json.loads(CATALOGUE[kind].example.body)
    body[path[0]] = value
    assert len(complaints(kind, json.dumps(body).encode())) == 1


@pytest.mark.parametrize("kind", CATALOGUE)
def test_a_schema_misses_every_field_that_is_left_out(kind: str) -> None:
    for field in json.loads(CATALOGUE[kind].example.body)["data"]:
        body = json.loads(CATALOGUE[kind].example.body)
        del body["data"][field]
        assert complaints(kind, json.dumps(body).encode()) == [f"'{field}' is a required property"]


@given(
    kind=st.sampled_from(Kind),
    hold=st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    version=st.integers(1, 2**31 - 1),
    resource=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=50),
    at=st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - its zone follows
)
def test_every_change_of_a_hold_makes_a_body_that_fits(
    kind: Kind, hold: str, version: int, resource: str, at: datetime
) -> None:
    deadline = at.replace(microsecond=0) + timedelta(hours=1)
    event = event_of(Change(kind, HoldId(hold), version, deadline, resource, None, None, at))
    assert complaints(event.type, event.body) == []


def change_in_every_way(hooks: Hooks) -> None:
    hooks.placed("a")
    hooks.extend("a", 1, TWO_HOURS)
    hooks.confirm("a", 2)
    hooks.placed("b")
    hooks.cancel("b")
    assert hooks.expire(hooks.overdue("c").reference) == [Outcome.EXPIRED]


def test_each_body_that_a_worker_takes_to_send_fits_the_schema_of_its_type(database: Database) -> None:
    hooks = Hooks(database)
    hooks.endpoint("ep")
    hooks.endpoint("other", types=("reservation.placed",))
    with database.transaction() as tx:
        for told in Told:
            endpoint_events.tell(tx, OTHER, told, "a reason")
        endpoint_events.try_out(tx, EP)
    change_in_every_way(hooks)
    slot = hooks.held("ep")
    taken: dict[str, bytes] = {}
    while isinstance(found := hooks.take(slot), Taken):
        taken[found.type] = found.body
        assert hooks.settle(found) is Settled.DONE
    assert taken.keys() == CATALOGUE.keys()
    assert {kind: complaints(kind, body) for kind, body in taken.items()} == {kind: [] for kind in CATALOGUE}


def test_the_document_holds_the_catalogue_word_for_word() -> None:
    text = (ROOT / "docs" / "webhooks.md").read_text()
    _, begun, rest = text.partition("<!-- catalogue: made by domain/catalogue.py -->\n")
    shown, ended, _ = rest.partition("<!-- end of the catalogue -->")
    assert begun
    assert ended
    assert shown.strip() == markdown().strip()
