"""Check from the rows alone what must always hold, and name each hold for which it does not."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import text

from db.engine import Tx
from db.invariants import INVARIANTS, Invariant
from db.invariants_bridge import BRIDGE_INVARIANTS
from db.invariants_reminders import REMINDER_INVARIANTS
from db.invariants_webhooks import WEBHOOK_INVARIANTS
from domain.identity import HoldId, cohort
from domain.webhooks import RetryPolicy

_ONE_SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

# Whole tables are compared. Without fresh statistics (after an import) a nested loop would look cheap and never end.
_WHOLE_TABLES = text("""
SELECT set_config('enable_nestloop', 'off', true), set_config('work_mem', '64MB', true)
""")

_BOUNDS = RetryPolicy()

_BATCH = 10_000
"""Rows fetched at once where this process must look at each."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must hold and does not. `hold_id` is None where it is no one hold's: a sum, a receipt."""

    check: str
    hold_id: str | None
    detail: str

    def as_data(self) -> dict[str, str | None]:
        """As JSON carries it."""
        return asdict(self)


def _in_the_wrong_cohort(tx: Tx) -> Generator[Violation]:
    """Postgres has crc32() from version 18 on; until then it is counted here."""
    with tx.execute(text("SELECT id, cohort FROM holds"), execution_options={"yield_per": _BATCH}) as rows:
        for hold, stored in rows:
            right = cohort(HoldId(hold))
            if stored != right:
                yield Violation("cohort", hold, f"is in cohort {stored}; its id belongs to {right}")


def _with_a_wrong_body(tx: Tx) -> Generator[Violation]:
    """Postgres has a test for JSON that does not raise from version 16 on; until then it is parsed here."""
    query = text("SELECT hold_id, event_id, type, body FROM events WHERE hold_id IS NOT NULL")
    with tx.execute(query, execution_options={"yield_per": _BATCH}) as rows:
        for hold, event, kind, body in rows:
            problem = _body_problem(body, kind, hold)
            if problem is not None:
                yield Violation("event-body", hold, f"event {event}: {problem}")


def _body_problem(body: bytes, kind: str, hold: str) -> str | None:
    try:
        told = json.loads(body.decode())
    except ValueError:
        return "the body is no JSON in UTF-8"
    match told:
        case {"type": str(type_), "data": {"reservation_id": str(reservation)}}:
            if (type_, reservation) == (kind, hold):
                return None
            return f"the body says {type_} of {reservation}"
        case _:
            return "the body lacks type or data.reservation_id"


_ALL: Mapping[str, Invariant] = {**INVARIANTS, **WEBHOOK_INVARIANTS, **REMINDER_INVARIANTS, **BRIDGE_INVARIANTS}

_LOOKED_AT_ONE_BY_ONE: Mapping[str, tuple[str, Callable[[Tx], Generator[Violation]]]] = {
    "event-body": ("the bytes of each event's body are JSON that says its type and hold", _with_a_wrong_body),
    "cohort": ("each hold is in the cohort that its id belongs to", _in_the_wrong_cohort),
}

CHECKS: Mapping[str, str] = {
    **{name: invariant.meaning for name, invariant in _ALL.items()},
    **{name: meaning for name, (meaning, _) in _LOOKED_AT_ONE_BY_ONE.items()},
}
"""Name of each check → what must hold, in one line."""


def violations(
    tx: Tx, *, limit_per_check: int = 1000, kept: timedelta = timedelta(0), bounds: RetryPolicy = _BOUNDS,
    bounds_since: datetime | None = None,
) -> list[Violation]:  # fmt: skip
    """Where something that must hold does not: at most so many of each check, in the order of CHECKS. Empty: all well.

    It must be the first thing done in its transaction, which becomes one read-only snapshot: traffic goes on and
    raises no false alarm. It reads whole tables (25 s for a million holds on two cores), so the connection should
    have no statement timeout; vacuum waits meanwhile. `kept` is how long closed holds are kept at least: within that
    time a receipt must count exactly the expiries that point to it. `bounds` hold for deliveries whose endpoint has
    none of its own, `bounds_since` an instant: attempts before it were made under others.

    Raises:
        DBAPIError: the transaction has been used before (SQLSTATE 25001).
    """
    tx.execute(_ONE_SNAPSHOT)
    tx.execute(_WHOLE_TABLES)
    found: list[Violation] = []
    asked = {"kept": kept, "attempts": bounds.attempts, "max_age": bounds.max_age, "bounds_since": bounds_since}
    for name in _ALL:
        found += _run(tx, name, asked, limit=limit_per_check)
    for _, look in _LOOKED_AT_ONE_BY_ONE.values():
        with closing(look(tx)) as violations_here:
            found += islice(violations_here, limit_per_check)
    return found


def _run(tx: Tx, name: str, asked: Mapping[str, object], *, limit: int) -> list[Violation]:
    # materialized: planned for all rows, since a plan for the first few would walk an index hold by hold
    query = text(f"""
        WITH violation(hold_id, detail) AS MATERIALIZED ({_ALL[name].violations})
        SELECT hold_id, detail FROM violation ORDER BY hold_id, detail LIMIT :limit
    """)  # noqa: S608 - constants of db.invariants
    values = {key: value for key, value in asked.items() if key in query.compile().params}
    return [Violation(name, hold, detail) for hold, detail in tx.execute(query, values | {"limit": limit})]
