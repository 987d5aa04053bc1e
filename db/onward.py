"""From one delivery to the next in one statement, for what goes well: the hot path of the webhook lane."""

import re
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from db.deliveries import NEXT, TAKE_NEXT, UNWELL, Nothing, Taken, asked_for, taken_from
from db.engine import Tx
from db.slots import Slot
from domain.endpoints import DeliveryPolicy
from domain.webhooks import Answered


def _for_driver(statement: str) -> str:
    """The statement with the driver's placeholders, and short.

    The driver reads a text of more than 4096 signs anew each time, which took a third of this statement's time here.
    """
    placed = re.sub(r":([a-z_]+)", r"%(\1)s", " ".join(statement.split()))
    return re.sub(r"CAST\((%\([a-z_]+\)s) AS ([a-z]+)\)", r"\1::\2", placed)


# The event itself is excepted: a statement must not change a row twice. That what has a token is pending goes without
# saying, as in `settle`.
_SETTLE_DELIVERED_IF_TOKEN_IS_NEWEST_AND_ENDPOINT_WELL_AND_TAKE_NEXT = _for_driver(f"""
WITH settled AS (
    UPDATE deliveries AS d
    SET state = 'delivered', settled_at = clock_timestamp(), lease_token = NULL, lease_until = NULL
    FROM endpoints AS p
    WHERE d.event_id = :event AND d.endpoint_id = :endpoint AND d.lease_token = :lease_token
      AND p.id = d.endpoint_id AND NOT ({UNWELL})
    RETURNING d.event_id
), answered AS (
    UPDATE attempts SET duration = :duration, peer = :peer, status = :status, detail = :detail
    WHERE event_id = :event AND endpoint_id = :endpoint AND number = :number AND duration IS NULL
      AND EXISTS (SELECT FROM settled)
), {TAKE_NEXT.format(if_so="EXISTS (SELECT FROM settled)", except_for=":event")}
SELECT w.settled, {NEXT}
FROM (SELECT EXISTS (SELECT FROM settled) AS settled) AS w
LEFT JOIN (judged AS j CROSS JOIN keys AS k LEFT JOIN taken AS t ON true) ON true
""")  # noqa: S608 - the parts are constants of this project


def settle_delivered_and_take(
    tx: Tx, taken: Taken, answer: Answered, slot: Slot, policy: DeliveryPolicy, *, took: timedelta, worker: str
) -> Taken | Nothing | None:
    """Settle what a well endpoint has accepted and take its next: one round trip that commits by itself.

    `tx` must be one in which nothing was done yet. None: nothing was changed, since the token is not the newest, the
    endpoint's health has to be looked after, or a row cannot be written; `settle` and `take` go into that. Nothing: it
    is settled, and what may be next needs `take`. The guards are those two's own, so what they say of twice, at once
    and dies holds here.
    """
    values = asked_for(slot, policy, worker, took) | {
        "event": taken.event_id, "number": taken.number, "lease_token": taken.token, "duration": took,
        "peer": answer.peer, "status": answer.status, "detail": answer.body_cut,
    }  # fmt: skip
    row = _at_once(tx, _SETTLE_DELIVERED_IF_TOKEN_IS_NEWEST_AND_ENDPOINT_WELL_AND_TAKE_NEXT, values)
    if row is None or not row.settled:
        return None
    return Nothing.DUE if row.number is None else taken_from(row, slot, policy)


def _at_once(tx: Tx, statement: str, values: dict[str, Any]) -> Any:
    """One row of a statement that is its own transaction; None for an error, which has changed nothing.

    An error in the connection itself shows again at its next use, where it is an error.
    """
    driver = tx.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    driver.autocommit = True
    try:
        with driver.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(statement, values).fetchone()
    except psycopg.Error:
        return None
    finally:
        if not driver.closed:
            driver.autocommit = False
