"""Holds carried over the local contract server: each expires once, whatever the service does."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from comparison.infrai_server.contract import Contract
from comparison.infrai_server.faults import Fault, Kind
from comparison.infrai_server.serve import LocalInfrai, running
from db import bridge, reconcile
from db.engine import Database
from domain.holds import Status
from domain.outcomes import Outcome
from domain.terms import For
from gateways.infrai import Infrai
from gateways.infrai_terms import Outgoing
from tasks.bridging import Bridge, Bridged
from tests.bridged import LEASE, NO_WAIT, QUEUE, bridge_to, ready_client
from tests.helpers import Desk, without_receipts

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


class TestTheWay:
    """What goes well."""

    def test_due_holds_go_over_and_back_and_each_is_acknowledged_after_its_commit(
        self, desk: Desk, database: Database, over: Bridge, client: Infrai
    ) -> None:
        for number in range(120):
            desk.overdue(f"h{number:03}", amount=250, currency="EUR")
        assert publish(over).messages == 120
        done = consume(over)
        assert (done.messages, done.acknowledged, done.error) == (120, 120, None)
        assert set(statuses(desk).values()) == {"expired"}
        assert desk.sql("SELECT DISTINCT path FROM receipts") == [("infrai",)]
        assert desk.count("bridge_messages", "message_id IS NULL") == 0
        left = client.stats(QUEUE)
        assert (left.visible, left.in_flight, left.delayed) == (0, 0, 0)
        with database.transaction() as tx:
            assert reconcile.violations(tx) == []

    def test_a_message_comes_at_its_deadline_not_before(self, desk: Desk, over: Bridge, server: LocalInfrai) -> None:
        desk.placed("h", For(timedelta(days=6)))
        assert publish(over).messages == 1
        assert consume(over).messages == 0
        server.advance(timedelta(days=6).total_seconds() - 60)
        assert consume(over).messages == 0
        server.advance(120)
        desk.age("h", timedelta(days=6, seconds=5))
        reference = desk.read("h").reference
        assert consume(over).messages == 1  # published for the deadline before `age` moved it, so it is stale
        assert desk.read("h").status is Status.HELD
        assert desk.expire(reference) == [Outcome.EXPIRED]

    def test_what_is_further_than_seven_days_waits_in_the_table(self, desk: Desk, over: Bridge) -> None:
        desk.placed("h", For(timedelta(days=8)))
        assert publish(over) == Bridged()
        assert desk.count("bridge_messages", "published_at IS NULL") == 1

    def test_extended_confirmed_and_cancelled_holds_need_no_recall(
        self, desk: Desk, over: Bridge, server: LocalInfrai
    ) -> None:
        for name in ("extended", "confirmed", "cancelled"):
            desk.placed(name)
        publish(over)
        desk.extend("extended", 1, For(TWO_HOURS))
        desk.confirm("confirmed")
        desk.cancel("cancelled")
        before = without_receipts(desk)
        server.advance(TWO_HOURS.total_seconds() + 5)
        done = consume(over)
        assert (done.messages, done.acknowledged) == (3, 3)
        after = without_receipts(desk)
        for table in ("holds", "effects", "ledger", "events", "dead_letters", "bridge_messages"):
            assert after[table] == before[table]
        assert desk.sql("SELECT tally -> 'stale' IS NOT NULL FROM receipts") == [(True,)]

    def test_two_ticks_at_once_are_one(self, desk: Desk, over: Bridge) -> None:
        desk.placed("h")
        assert over.publish(apart=timedelta(minutes=1)).messages == 1
        assert over.publish(apart=timedelta(minutes=1)) == Bridged(too_soon=True)
        assert not over.consume(apart=timedelta(minutes=1)).too_soon
        assert over.consume(apart=timedelta(minutes=1)).too_soon

    def test_a_cohort_that_went_elsewhere_meanwhile_is_counted_and_acknowledged(
        self, desk: Desk, over: Bridge, client: Infrai
    ) -> None:
        hold = desk.overdue("h")
        client.publish(QUEUE, Outgoing(payload=hold.reference.as_data()), intent="h")
        desk.sql("UPDATE cohort_paths SET path = 'sweep'")
        assert consume(over).acknowledged == 1
        assert desk.read("h").status is Status.HELD
        assert desk.sql("SELECT tally FROM receipts") == [({"elsewhere": {str(hold.cohort): 1}},)]


class TestFaultsOfTheService:
    """What the service does wrong changes only when a hold is expired."""

    def test_a_service_without_batches_takes_each_message_once_in_lots_that_one_round_of_calls_publishes(
        self, desk: Desk, over: Bridge, server: LocalInfrai, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(20):
            desk.overdue(f"h{number:02}")
        documents = server.app.documents
        real = documents.detail
        monkeypatch.setattr(documents, "detail", lambda name: None if name == "queue.publish_batch" else real(name))
        server.faults.add(Fault(kind=Kind.DROP, path="/v1/queue/publish", times=3))
        with Infrai(server.url, SecretStr(server.key)) as client:
            done = publish(replace(over, client=client))
            assert (done.messages, done.error) == (20, None)
            assert client.stats(QUEUE).visible == 20
        sizes = desk.sql("SELECT count(*) AS messages FROM bridge_messages GROUP BY batch ORDER BY messages")
        assert [row.messages for row in sizes] == [4, 8, 8]
        assert consume(over).acknowledged == 20
        assert set(statuses(desk).values()) == {"expired"}

    def test_a_service_that_makes_keys_of_bodies_hands_out_what_comes_after_an_empty_look(
        self, desk: Desk, database: Database
    ) -> None:
        with running(Contract(derived_keys=True)) as service, ready_client(service) as client:
            over = bridge_to(database, client)
            assert consume(over).messages == 0
            for number in range(5):
                desk.overdue(f"h{number}")
            assert publish(over).messages == 5
            assert consume(over).acknowledged == 5
        assert set(statuses(desk).values()) == {"expired"}

    def test_what_went_with_its_queue_before_the_acknowledgement_is_counted_as_gone(
        self, desk: Desk, over: Bridge, client: Infrai, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk.overdue("h")
        publish(over)
        real = Bridge.apply

        def applied(self: Bridge, *arguments: Any) -> Any:
            done = real(self, *arguments)
            client.delete_queue(QUEUE)
            return done

        monkeypatch.setattr(Bridge, "apply", applied)
        done = consume(over)
        assert (done.messages, done.acknowledged, done.gone) == (1, 0, 1)
        assert "there is no queue holdfast-expiry" in str(done.error)
        assert statuses(desk) == {"h": "expired"}

    def test_an_answer_lost_after_the_effect_publishes_once(
        self, desk: Desk, over: Bridge, server: LocalInfrai, client: Infrai
    ) -> None:
        desk.placed("h")
        server.faults.add(Fault(kind=Kind.DROP, path="/v1/queue/publish"))
        assert publish(over).messages == 1
        assert client.stats(QUEUE).delayed == 1

    def test_lost_at_every_attempt_the_same_batch_is_published_again_and_there_is_one_message(
        self, desk: Desk, over: Bridge, server: LocalInfrai, client: Infrai
    ) -> None:
        desk.placed("h")
        server.faults.add(Fault(kind=Kind.DROP, path="/v1/queue/publish", times=4))
        failed = publish(over)
        assert failed.error is not None
        assert desk.count("bridge_messages", "published_at IS NULL") == 1
        assert publish(over).closed is not None  # it is left alone for a moment
        with over.db.transaction() as tx:
            bridge.resume(tx)
        server.faults.clear()
        assert publish(over).messages == 1
        assert client.stats(QUEUE).delayed == 1
        assert desk.count("bridge_messages", "message_id IS NOT NULL") == 1

    def test_a_batch_that_the_service_knows_with_other_delays_stands_as_it_is(
        self, desk: Desk, over: Bridge, client: Infrai, database: Database
    ) -> None:
        desk.placed("h")
        with database.transaction() as tx:
            batch = bridge.take(tx, 100, lease=LEASE, old=LEASE)
        assert batch is not None
        client.publish_batch(
            QUEUE, [Outgoing(payload=payload(desk), delay=timedelta(seconds=5))], intent=batch.id
        )  # as by a publisher that died, and counted otherwise
        with database.transaction() as tx:
            bridge.give_back(tx, batch)
        assert publish(over).messages == 1
        assert client.stats(QUEUE).delayed == 1

    def test_a_wait_of_a_minute_is_not_slept_and_the_bridge_keeps_the_instant(
        self, desk: Desk, over: Bridge, server: LocalInfrai
    ) -> None:
        desk.placed("h")
        server.faults.add(Fault(kind=Kind.RATE_LIMIT, retry_after=60))
        failed = publish(over)
        assert failed.error is not None
        assert "in 60 s" in failed.error
        told = publish(over)
        assert told.closed is not None
        assert told.closed.startswith("left alone until ")
        [(wait,)] = desk.sql("SELECT CAST(extract(epoch FROM wait_until - now()) AS integer) FROM bridge")
        assert 55 <= wait <= 60
        assert consume(over).closed == told.closed
        desk.sql("UPDATE bridge SET wait_until = now()")
        assert publish(over).messages == 1

    def test_duplicates_and_reordering_make_one_effect(self, desk: Desk, over: Bridge, server: LocalInfrai) -> None:
        for number in range(5):
            desk.overdue(f"h{number}")
        publish(over)
        server.faults.add(Fault(kind=Kind.DUPLICATE, count=5))
        server.faults.add(Fault(kind=Kind.REORDER))
        consume(over)
        assert set(statuses(desk).values()) == {"expired"}
        assert desk.count("effects", "kind = 'expired'") == 5

    def test_an_early_message_is_left_to_come_back_and_works_then(
        self, desk: Desk, over: Bridge, server: LocalInfrai, client: Infrai
    ) -> None:
        desk.placed("h")
        client.publish(QUEUE, Outgoing(payload=payload(desk)), intent="early")
        before = without_receipts(desk)
        done = consume(over)
        assert (done.messages, done.acknowledged) == (1, 0)
        assert without_receipts(desk)["holds"] == before["holds"]
        assert without_receipts(desk)["effects"] == before["effects"]
        assert client.stats(QUEUE).in_flight == 1
        server.advance(LEASE.total_seconds() + 1)
        assert consume(over).messages == 1

    def test_an_acknowledgement_that_fails_brings_a_duplicate(
        self, desk: Desk, over: Bridge, server: LocalInfrai, client: Infrai
    ) -> None:
        hold = desk.overdue("h")
        client.publish(QUEUE, Outgoing(payload=hold.reference.as_data()), intent="h")
        server.faults.add(Fault(kind=Kind.RATE_LIMIT, path="/v1/queue/ack", retry_after=30))
        failed = consume(over)
        assert failed.error is not None
        assert desk.read("h").status is Status.EXPIRED
        with over.db.transaction() as tx:
            bridge.resume(tx)
        server.advance(LEASE.total_seconds() + 1)
        assert consume(over).acknowledged == 1
        assert desk.count("effects", "kind = 'expired'") == 1
        assert desk.sql("SELECT tally ? 'duplicate' FROM receipts ORDER BY id") == [(False,), (True,)]
