"""Expire what references still point at: one transaction, a fixed number of statements for the whole chunk."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.expression import bindparam

from db import reminders
from db.columns import lines, texts
from db.engine import Tx, by_index
from db.facts import record
from domain.changes import Change, Kind
from domain.identity import cohort
from domain.instants import unix
from domain.outcomes import Outcome
from domain.paths import Carrier
from domain.references import Reference

_LOCK_IN_ID_ORDER = text(f"""
SELECT nextval('receipts_id_seq') AS receipt, coalesce(CAST(:now AS timestamptz), now()) AS now, count(*) AS found
FROM (SELECT FROM holds WHERE id = ANY({texts("ids")}) ORDER BY id FOR UPDATE) AS locked
""")  # noqa: S608 - the parts are constants of this project

_REFERENCES = f"""
unnest({texts("ids")}, CAST(:versions AS integer[]), CAST(:deadlines AS bigint[]), {texts("keys")})
"""

_DRIVEN = """
(CAST(:path AS text) IS NULL OR c.path = :path
 OR (:path = 'rescue' AND h.expires_at <= CAST(:now AS timestamptz) - CAST(:grace AS interval)))
"""

_EXPIRE_IF_HELD_DUE_AND_UNCHANGED = text(f"""
UPDATE holds AS h
SET status = 'expired', closed_at = :now, close_reason = 'deadline passed', set_aside = false
FROM {_REFERENCES} AS r(id, version, deadline, key), cohort_paths AS c
WHERE h.id = r.id AND h.version = r.version AND h.expires_at = to_timestamp(r.deadline)
  AND h.status = 'held' AND h.expires_at <= CAST(:now AS timestamptz)
  AND c.cohort = h.cohort AND {_DRIVEN}
RETURNING h.id, h.version, h.expires_at, h.resource, h.amount, h.currency, h.leads IS NOT NULL AS reminded
""")  # noqa: S608 - the parts are constants of this project

# A hold left over although it is due had another path when its row was judged, even if its cohort moved since.
_CLASSIFY_THE_REST = text(f"""
SELECT r.n, CASE
    WHEN h.id IS NULL THEN 'missing'
    WHEN EXISTS (SELECT FROM effects AS e WHERE e.key = r.key) THEN 'duplicate'
    WHEN h.status <> 'held' OR h.version <> r.version OR h.expires_at <> to_timestamp(r.deadline) THEN 'stale'
    WHEN NOT {_DRIVEN} OR h.expires_at <= CAST(:now AS timestamptz) THEN 'elsewhere'
    ELSE 'early' END AS outcome
FROM {_REFERENCES} WITH ORDINALITY AS r(id, version, deadline, key, n)
LEFT JOIN holds AS h ON h.id = r.id
LEFT JOIN cohort_paths AS c ON c.cohort = h.cohort
""")  # noqa: S608 - the parts are constants of this project

_RECEIPT = text("""
INSERT INTO receipts (id, message_id, path, sweep_run, retries, redelivered, worker, tally, at)
VALUES (:id, :message_id, :path, (SELECT r.id FROM sweep_runs AS r WHERE r.id = CAST(:sweep_run AS bigint)),
        :retries, :redelivered, :worker, :tally, :at)
""").bindparams(bindparam("tally", type_=JSONB))


def expire(
    tx: Tx,
    references: Sequence[Reference],
    by: Carrier,
    *,
    grace: timedelta,
    now: datetime | None = None,
) -> list[Outcome]:
    """Expire the holds that are still held, due and unchanged; say of each reference what became of it.

    `now` is the transaction's start by the database's clock unless given: it errs late only. `grace` is how long
    overdue a hold must be for path `rescue`.

    Two at once: rows are locked in id order, so nobody deadlocks, and the loser classifies in a new snapshot that
    sees what it waited for. Message twice, late, early, never: duplicate, stale, early, or the next sweep run. Dies
    before commit: nothing happened; after commit, before ack: the redelivered message finds the effect key.
    """
    first = {reference.job_id: reference for reference in reversed(references)}
    unique = sorted(first.values(), key=lambda reference: reference.hold_id)
    by_index(tx)
    locked = tx.execute(_LOCK_IN_ID_ORDER, {"ids": lines(r.hold_id for r in unique), "now": now}).one()
    asked = {"path": by.path, "grace": grace, "now": locked.now}
    changed = tx.execute(_EXPIRE_IF_HELD_DUE_AND_UNCHANGED, _columns(unique) | asked).all()
    changes = [
        Change(Kind.EXPIRED, r.id, r.version, r.expires_at, r.resource, r.amount, r.currency, locked.now)
        for r in changed
    ]
    record(tx, Kind.EXPIRED, changes, at=locked.now, receipt=locked.receipt)
    reminded = [row.id for row in changed if row.reminded]
    if reminded:
        reminders.call_off(tx, reminded, f"the hold was {Kind.EXPIRED}")
    outcomes = {Reference.to(c.hold_id, c.version, c.expires_at).job_id: Outcome.EXPIRED for c in changes}
    rest = [reference for reference in unique if reference.job_id not in outcomes]
    if rest:
        for row in tx.execute(_CLASSIFY_THE_REST, _columns(rest) | asked):
            outcomes[rest[row.n - 1].job_id] = Outcome(row.outcome)
    told = _in_order(references, outcomes)
    _write_receipt(tx, locked.receipt, by, _tally_by_cohort(references, told), locked.now)
    return told


def _columns(references: Sequence[Reference]) -> dict[str, Any]:
    return {
        "ids": lines(r.hold_id for r in references),
        "versions": [r.version for r in references],
        "deadlines": [unix(r.expires_at) for r in references],
        "keys": lines(r.job_id for r in references),
    }


def _in_order(references: Sequence[Reference], outcomes: dict[Any, Outcome]) -> list[Outcome]:
    """The outcome of each reference as it came; a further copy is a duplicate, unless the hold is missing."""
    told: list[Outcome] = []
    seen: set[str] = set()
    for reference in references:
        outcome = outcomes[reference.job_id]
        again = reference.job_id in seen and outcome is not Outcome.MISSING
        told.append(Outcome.DUPLICATE if again else outcome)
        seen.add(reference.job_id)
    return told


def _tally_by_cohort(references: Sequence[Reference], outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    tally: dict[str, Counter[str]] = {}
    for reference, outcome in zip(references, outcomes, strict=True):
        tally.setdefault(outcome.value, Counter())[str(cohort(reference.hold_id))] += 1
    return {outcome: dict(counts) for outcome, counts in tally.items()}


def _write_receipt(tx: Tx, receipt: int, by: Carrier, tally: dict[str, Any], at: datetime) -> None:
    tx.execute(
        _RECEIPT,
        {
            "id": receipt,
            "message_id": by.message_id,
            "path": by.path,
            "sweep_run": by.run,
            "retries": by.retries,
            "redelivered": by.redelivered,
            "worker": by.worker,
            "tally": tally,
            "at": at,
        },
    )
