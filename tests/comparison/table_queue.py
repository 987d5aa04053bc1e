"""A transport of the tests' own: a queue in a table, sound, or broken in one way that the experiment must find."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from comparison.candidate import (
    Ability,
    Delivery,
    Description,
    Doorway,
    Engine,
    Limit,
    NotAvailable,
    PublishRefused,
    Standing,
    Verdict,
    Worker,
)
from db.engine import Database

PAYLOAD, DELAY = 4096, 604_800
LEASE = 0.5
LONGER = {"keeps longer delays", "forgets what waits longer"}
"""Whose own limit of delays lies far above seven days."""

_MAKE = """CREATE TABLE IF NOT EXISTS transport (
    id bigint GENERATED ALWAYS AS IDENTITY, body text NOT NULL, due double precision NOT NULL, seen int DEFAULT 0)"""
_TAKE = """UPDATE transport SET due = :now + :lease, seen = seen + 1 WHERE id =
    (SELECT id FROM transport WHERE due <= :now ORDER BY due, id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, body, seen"""

_REOPEN = (
    "UPDATE holds SET status = 'held', closed_at = NULL, close_reason = NULL WHERE id = :id AND status = 'expired'"
)


class TableQueue:
    """Sound without a fault. Its clock is the table's own, and can be moved."""

    def __init__(self, url: str, fault: str = "") -> None:
        self.url, self.fault = url, fault
        self.db = Database(url)
        self._published = 0

    def describe(self) -> Description:
        lacks = {Ability.DELAY: "it has no delays (its page says so)"} if self.fault == "has no delays" else {}
        return Description(
            name="table", title="A table", engine=Engine("PostgreSQL", "18", Standing.REAL),
            redelivery="when its lease ends", comes_back=LEASE, client="SQL",
            payload=Limit(PAYLOAD, "4 KiB"), delay=Limit(None if self.fault in LONGER else DELAY, "seven days"),
            push={"pushes to a private address": "https://10.0.0.5/hook"}.get(self.fault), cron="the test", lacks=lacks,
        )  # fmt: skip

    def start(self) -> None:
        if self.fault == "is away":
            raise NotAvailable("the table is not there; make it")
        self.sql(_MAKE)
        self.sql("CREATE TABLE IF NOT EXISTS transport_clock (ahead double precision)")
        self.sql("INSERT INTO transport_clock VALUES (0)")

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        seconds = delay.total_seconds()
        if len(body) > PAYLOAD and self.fault != "cuts what is too large":
            raise PublishRefused(f"{len(body)} bytes are over {PAYLOAD}")
        if seconds > DELAY and self.fault not in LONGER:
            if self.fault != "cuts a delay short":
                raise PublishRefused(f"{seconds:.0f} s are over {DELAY}")
            seconds = DELAY
        if self.fault == "forgets delays":
            seconds = 0
        if self.fault == "is three seconds early":
            seconds = max(0.0, seconds - 3)
        if self.fault == "forgets what waits longer" and seconds > DELAY:
            return
        self._published += 1
        lost = {"loses one in twenty": self._published % 20 == 0, "loses the second": self._published == 2}
        if lost.get(self.fault):
            return
        told = body.decode()[: PAYLOAD - (self.fault == "loses the last byte")]
        if self.fault == "wraps the payload":
            told = json.dumps({"MessageId": "1", "Body": json.loads(body)})
        self.sql("INSERT INTO transport (body, due) VALUES (:body, :due)", body=told, due=self.now() + seconds)

    def deliver(self, worker: Worker, patience: float) -> bool:
        ends = time.monotonic() + patience
        while not (taken := self.sql(_TAKE, now=self.now(), lease=LEASE)):
            if time.monotonic() > ends:
                return False
            time.sleep(0.02)
        [(number, body, seen)] = taken
        if self.fault == "acks before the commit":
            self.delete(number)
        if self.fault == "expires whatever a message names":
            self.without_looking(json.loads(body))
        verdict = worker(Delivery(body.encode(), f"t-{number}", seen > 1))
        if self.fault == "reopens what was expired":
            self.reopen(json.loads(body))
        if verdict is Verdict.ACK and self.fault != "forgets acks":
            self.delete(number)
        return True

    def tick(self, act: Callable[[], None], patience: float) -> bool:
        if self.fault == "never ticks":
            return False
        act()
        return True

    def advance(self, by: timedelta) -> bool:
        self.sql("UPDATE transport_clock SET ahead = ahead + :by", by=by.total_seconds())
        return True

    def doorway(self) -> Doorway:
        return Doorway(__name__, {"url": self.url, "fault": self.fault})

    def serve(self, worker: Worker) -> None:
        while True:
            self.deliver(worker, 1.0)

    def stop(self) -> None:
        self.sql("DROP TABLE IF EXISTS transport, transport_clock")
        self.db.close()

    # -- below --------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return float(self.sql("SELECT extract(epoch FROM clock_timestamp()) + max(ahead) FROM transport_clock")[0][0])

    def delete(self, number: int) -> None:
        self.sql("DELETE FROM transport WHERE id = :id", id=number)

    def without_looking(self, body: Any) -> None:
        statement = "UPDATE holds SET status = 'expired', closed_at = now() WHERE id = :id AND status = 'held'"
        self.sql(statement, id=body.get("reservation_id", ""))

    def reopen(self, body: Any) -> None:
        """Undo an expiry as if it had never been, so that the next copy expires the hold again."""
        for statement in (
            "DELETE FROM events WHERE hold_id = :id AND type = 'reservation.expired'",
            "DELETE FROM effects WHERE hold_id = :id AND kind = 'expired'",
            "ALTER TABLE ledger DISABLE TRIGGER USER",
            "DELETE FROM ledger WHERE hold_id = :id AND side = 'close'",
            "ALTER TABLE ledger ENABLE TRIGGER USER",
            _REOPEN,
        ):
            self.sql(statement, **({"id": body.get("reservation_id", "")} if ":id" in statement else {}))

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.db.transaction() as tx:
            result = tx.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []


def attach(address: Mapping[str, Any]) -> TableQueue:
    return TableQueue(address["url"], address["fault"])
