"""Deliveries are written with their event, for those who want it, or not at all."""

from datetime import timedelta

import pytest

from db import endpoints, holds
from db.engine import Database
from domain.endpoints import Overrides
from domain.identity import HoldId
from tests.helpers import carrier, terms
from tests.hooks import Hooks

PLACED = "reservation-placed:h:1"


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def wanted(hooks: Hooks) -> list[tuple[str, str]]:
    return hooks.rows("SELECT event_id, endpoint_id FROM deliveries ORDER BY 1, 2")


def test_an_event_goes_to_every_endpoint_that_wants_its_type_and_is_not_deleted(hooks: Hooks) -> None:
    hooks.endpoint("all")
    hooks.endpoint("placed", types=("reservation.placed",))
    hooks.endpoint("expired", types=("reservation.expired",))
    for name, change in (("paused", endpoints.pause), ("deleted", endpoints.delete)):
        hooks.endpoint(name)
        hooks.call(change, name)
    hooks.placed("h")
    assert wanted(hooks) == [(PLACED, "all"), (PLACED, "paused"), (PLACED, "placed")]
    hooks.confirm("h")
    assert wanted(hooks) == [
        ("reservation-confirmed:h:1", "all"), ("reservation-confirmed:h:1", "paused"),
        (PLACED, "all"), (PLACED, "paused"), (PLACED, "placed"),
    ]  # fmt: skip


def test_each_change_of_a_hold_has_its_delivery_also_in_a_chunk(hooks: Hooks) -> None:
    hooks.endpoint()
    references = [hooks.overdue(f"h{n}").reference for n in range(3)]
    hooks.expire(*references)
    assert wanted(hooks) == [
        *((f"reservation-expired:h{n}:1", "ep") for n in range(3)),
        *((f"reservation-placed:h{n}:1", "ep") for n in range(3)),
    ]


def test_a_change_that_is_rolled_back_leaves_neither_event_nor_delivery(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.sql("ALTER TABLE ledger ADD CONSTRAINT poison CHECK (hold_id <> 'h')")
    before = hooks.everything()
    with pytest.raises(Exception, match="poison"):
        hooks.place("h", amount=5, currency="EUR")
    assert hooks.everything() == before


def test_an_endpoint_hears_of_what_its_transaction_saw(hooks: Hooks, database: Database) -> None:
    hooks.placed("before")
    hooks.endpoint()
    hooks.placed("after")
    assert wanted(hooks) == [("reservation-placed:after:1", "ep")]
    with database.transaction() as slow:  # sees the endpoint alive, commits after it was deleted
        holds.place(slow, HoldId("late"), terms(), carrier("place"))
        hooks.call(endpoints.delete)
    assert [hooks.delivery(f"reservation-placed:{h}:1").state for h in ("after", "late")] == ["cancelled", "pending"]
    with database.transaction() as tx:
        assert endpoints.cancel_of_deleted(tx) == 1
    assert hooks.delivery("reservation-placed:late:1").state == "cancelled"


def test_the_first_attempt_is_due_at_once_unless_the_endpoint_waits_first(hooks: Hooks) -> None:
    hooks.endpoint("now")
    hooks.endpoint("later", overrides=Overrides(waits=(timedelta(hours=2),)))
    hooks.placed("h")
    assert hooks.delivery(name="now").next_attempt_at == hooks.delivery(name="now").created_at
    wait = hooks.delivery(name="later").next_attempt_at - hooks.delivery(name="later").created_at
    assert timedelta(0) < wait < timedelta(hours=2)
