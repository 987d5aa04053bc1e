"""What the bridge does with what it cannot use: a typed error or a dead letter, never a hold changed."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from comparison.infrai_server.faults import Fault, Kind
from comparison.infrai_server.serve import LocalInfrai
from db import bridge
from db.engine import Database
from domain.holds import Status
from gateways.infrai import Infrai
from gateways.infrai_terms import Outgoing
from tasks.bridging import Bridge, Bridged
from tests.bridged import NO_WAIT, QUEUE, bridge_to, client_of
from tests.helpers import Desk

TWO_HOURS = timedelta(hours=2)


@pytest.fixture
def desk(bridged_desk: Desk) -> Desk:
    return bridged_desk


def publish(over: Bridge) -> Bridged:
    return over.publish(apart=NO_WAIT)


def consume(over: Bridge) -> Bridged:
    return over.consume(apart=NO_WAIT)


def statuses(desk: Desk) -> dict[str, str]:
    return {row.id: row.status for row in desk.sql("SELECT id, status FROM holds")}


def payload(desk: Desk, hold: str = "h") -> dict[str, Any]:
    return dict(desk.read(hold).reference.as_data())


class TestBadInput:
    """A typed error or a dead letter with its reason; never a hold changed, never an early acknowledgement."""

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda p: {**p, "extra": 1}, "extra: is no field of a reference"),
            (lambda p: {**p, "hold_version": "1"}, "hold_version: must be a whole number from 1 to 2147483647"),
            (lambda p: {**p, "expected_expires_at": "2026-01-01T00:00:00"}, "has no zone"),
            (lambda p: {k: v for k, v in p.items() if k != "job_id"}, "job_id: is missing"),
            (lambda _: {"text": "{not json"}, "is missing"),
            (lambda p: {**p, "job_id": "hold-expiry:other:v1:60"}, "does not belong to the rest"),
            (lambda _: {"deep": [[["\u0000", "\U0001f4a5"]]]}, "expected_expires_at: is missing"),
        ],
    )
    def test_what_cannot_be_read_is_a_dead_letter_with_its_reason_then_acknowledged(
        self, desk: Desk, over: Bridge, client: Infrai, change: Any, reason: str
    ) -> None:
        desk.overdue("h")
        client.publish(QUEUE, Outgoing(payload=change(payload(desk))), intent="bad")
        before = desk.read("h")
        done = consume(over)
        assert (done.messages, done.acknowledged) == (1, 1)
        [(kind, error)] = desk.sql("SELECT kind, error FROM dead_letters")
        assert kind == "malformed"
        assert reason in error
        assert desk.read("h").status is before.status

    def test_a_payload_that_is_no_object_is_one_too(
        self, desk: Desk, over: Bridge, client: Infrai, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from gateways.infrai_answers import Message

        came = [Message("m1", "{"), Message("m2", None), Message("m3", [1]), Message("\ud800\n", 7)]
        monkeypatch.setattr(Infrai, "consume", lambda *_, **__: [came.pop() for _ in range(len(came))])
        done = consume(over)
        assert (done.messages, done.acknowledged, done.gone, done.error) == (4, 0, 3, None)
        assert desk.count("dead_letters", "error LIKE 'reference: must be a JSON object%'") == 4

    def test_a_queue_that_does_not_exist_is_named(self, desk: Desk, over: Bridge, client: Infrai) -> None:
        desk.placed("h")
        client.delete_queue(QUEUE)
        done = publish(over)
        assert done.error is not None
        assert "create it first" in done.error
        assert desk.count("bridge_messages", "published_at IS NOT NULL") == 0
        with over.db.transaction() as tx:
            bridge.resume(tx)
        assert "create it first" in str(consume(over).error)

    def test_a_key_that_ended_is_named_and_never_shown(
        self, desk: Desk, database: Database, server: LocalInfrai
    ) -> None:
        desk.placed("h")
        with client_of(server.url, "ifr_no_longer_valid") as client:
            done = publish(bridge_to(database, client))
        assert done.error is not None
        assert "set INFRAI_API_KEY" in done.error
        assert "ifr_no_longer_valid" not in done.error
        [(error,)] = desk.sql("SELECT error FROM sweep_runs")
        assert error == done.error
        assert desk.count("bridge_messages", "published_at IS NOT NULL") == 0

    def test_an_answer_that_is_not_json_is_an_error_and_publishes_nothing_more(
        self, desk: Desk, over: Bridge, server: LocalInfrai
    ) -> None:
        desk.placed("h")
        server.faults.add(Fault(kind=Kind.NOT_JSON, status=200, times=9))
        assert "is no JSON object" in str(publish(over).error)
        assert desk.count("bridge_messages", "published_at IS NOT NULL") == 0

    def test_nothing_is_acknowledged_where_the_database_fails(self, desk: Desk, over: Bridge, client: Infrai) -> None:
        hold = desk.overdue("h")
        client.publish(QUEUE, Outgoing(payload=hold.reference.as_data()), intent="h")
        desk.sql("ALTER TABLE effects RENAME TO effects_away")
        with pytest.raises(DBAPIError):
            consume(over)
        desk.sql("ALTER TABLE effects_away RENAME TO effects")
        assert client.stats(QUEUE).in_flight == 1
        assert desk.read("h").status is Status.HELD

    def test_a_hold_that_fails_alone_is_not_acknowledged_and_the_others_are_done(
        self, desk: Desk, over: Bridge, client: Infrai
    ) -> None:
        for name in ("bad", "good"):
            hold = desk.overdue(name)
            client.publish(QUEUE, Outgoing(payload=hold.reference.as_data()), intent=name)
        desk.sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (hold_id <> 'bad' OR type <> 'reservation.expired')")
        done = consume(over)
        assert (done.messages, done.acknowledged) == (2, 1)
        assert statuses(desk) == {"bad": "held", "good": "expired"}

    def test_a_paused_bridge_says_so_and_touches_nothing(self, desk: Desk, over: Bridge) -> None:
        desk.placed("h")
        with over.db.transaction() as tx:
            bridge.pause(tx, "ada")
        for done in (publish(over), consume(over)):
            assert done.closed is not None
            assert done.closed.startswith("paused by ada since ")
        assert desk.count("bridge_messages", "batch IS NOT NULL") == 0
