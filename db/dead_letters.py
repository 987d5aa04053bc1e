"""Commands that cannot be applied, and the holds set aside with them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.expression import bindparam

from db.engine import Tx
from db.tables import dead_letters
from domain.references import Reference
from domain.sweeping import ClaimPolicy

EXPIRY = "expiry"
"""The kind of a dead letter whose hold is set aside with it."""

DISCARDED = "discarded"
"""What stands instead of an outcome where an operator closed a dead letter without applying it."""

LONGEST_ERROR = 500
"""Characters kept of an error."""

_POSTPONE = text("""
UPDATE holds
SET claimed_run = NULL,
    claimed_until = now() + least(CAST(:lease AS interval) * power(2, least(claims, 20)), interval '1 day')
WHERE id = :id AND status = 'held' AND version = :version AND expires_at = :expires_at AND NOT set_aside
  AND expires_at <= now()
RETURNING claims
""")

_SET_ASIDE = text("UPDATE holds SET set_aside = true WHERE id = :id AND status = 'held' AND version = :version")

BURY = "INSERT INTO dead_letters AS d"
OR_ONCE_MORE = """
ON CONFLICT (key) DO UPDATE
SET error = excluded.error, attempts = d.attempts + 1, sweep_run = excluded.sweep_run,
    replayed_at = NULL, replayed_by = NULL, outcome = NULL
"""
"""SQL: the beginning and the end of every statement that buries: one that lies there already is opened again."""

_BURY = text(f"""
{BURY} (key, kind, reference, hold_id, sweep_run, error, attempts, created_at)
VALUES (:key, :kind, :reference, :hold_id, :run, :error, :attempts, clock_timestamp())
{OR_ONCE_MORE}
RETURNING d.id
""").bindparams(bindparam("reference", type_=JSONB))

_SET_ASIDE_BY_RUN = text("SELECT count(*) FROM dead_letters WHERE sweep_run = :run AND kind = 'expiry'")

_STOP_RUN = text("UPDATE sweep_runs SET error = :error WHERE id = :run AND error IS NULL")


@dataclass(frozen=True, slots=True)
class Postponed:
    """The hold is left alone for longer than before."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """The hold waits for an operator, with this dead letter."""

    dead_letter: int


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run has set aside as many holds as it may; it sets aside no more and claims nothing more."""


FailedAlone = Postponed | SetAside | RunStopped


def fail_alone(tx: Tx, reference: Reference, error: str, policy: ClaimPolicy, *, run: int | None) -> FailedAlone:
    """Deal with a reference whose hold cannot be expired even alone: postpone it, on its third claim set it aside.

    Two at once: the hold's row is the lock, and the dead letter's key is unique. The count of what one run has set
    aside is read under that run's lock, so that it cannot be passed by two. Dies before commit: the claim runs out
    and the hold fails again.
    """
    where = {"id": reference.hold_id, "version": reference.version, "expires_at": reference.expires_at}
    claims = tx.execute(_POSTPONE, where | {"lease": policy.lease}).scalar_one_or_none()
    if claims is None or claims < policy.claims_before_set_aside:
        return Postponed()
    if run is not None and _used_up(tx, run, policy.set_aside_limit):
        return RunStopped()
    tx.execute(_SET_ASIDE, where)
    return SetAside(
        bury(
            tx,
            f"expiry:{reference.job_id}",
            EXPIRY,
            reference.as_data(),
            error,
            hold=reference.hold_id,
            run=run,
            attempts=claims,
        )
    )


def _used_up(tx: Tx, run: int, limit: int) -> bool:
    tx.execute(text("SELECT FROM sweep_runs WHERE id = :run FOR UPDATE"), {"run": run})
    if tx.execute(_SET_ASIDE_BY_RUN, {"run": run}).scalar_one() < limit:
        return False
    tx.execute(_STOP_RUN, {"run": run, "error": f"stopped: it would set aside more than {limit} holds"})
    return True


def is_stopped(tx: Tx, run: int) -> bool:
    """Whether a run was stopped because it would have set aside too many; another error of it does not count."""
    query = text("SELECT EXISTS (SELECT FROM sweep_runs WHERE id = :run AND error LIKE 'stopped: %')")
    return bool(tx.execute(query, {"run": run}).scalar_one())


def bury(
    tx: Tx, key: str, kind: str, reference: object, error: str,
    *, hold: str | None = None, run: int | None = None, attempts: int = 1,
) -> int:  # fmt: skip
    """Keep a command that cannot be applied; the same one again counts an attempt. Returns the dead letter's id."""
    values = {
        "key": key, "kind": kind, "reference": reference, "hold_id": hold, "run": run,
        "error": error[:LONGEST_ERROR], "attempts": attempts,
    }  # fmt: skip
    return int(tx.execute(_BURY, values).scalar_one())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A command that cannot be applied. Open until a replay has an outcome."""

    id: int
    key: str
    kind: str
    reference: Any
    hold_id: str | None
    sweep_run: int | None
    error: str
    attempts: int
    created_at: datetime
    replayed_at: datetime | None
    replayed_by: str | None
    outcome: str | None


def listing(tx: Tx, *, replayed: bool, limit: int) -> list[DeadLetter]:
    """The newest dead letters first: the open ones, or all."""
    query = select(dead_letters).order_by(dead_letters.c.id.desc()).limit(limit)
    if not replayed:
        query = query.where(dead_letters.c.replayed_at.is_(None))
    return [_dead_letter(row) for row in tx.execute(query)]


def get(tx: Tx, dead_letter: int, *, lock: bool = False) -> DeadLetter | None:
    """One dead letter, locked for a replay if asked."""
    query = select(dead_letters).where(dead_letters.c.id == dead_letter)
    row = tx.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _dead_letter(row)


def settle(tx: Tx, dead_letter: DeadLetter, outcome: str, operator: str) -> None:
    """Note what an operator made of it: an Outcome, or DISCARDED. A hold set aside with it is set aside no more."""
    if dead_letter.kind == EXPIRY:
        tx.execute(
            text("UPDATE holds SET set_aside = false, claims = 0, claimed_until = NULL WHERE id = :id AND set_aside"),
            {"id": dead_letter.hold_id},
        )
    tx.execute(
        text("""UPDATE dead_letters SET replayed_at = clock_timestamp(), replayed_by = :operator, outcome = :outcome
                WHERE id = :id"""),
        {"id": dead_letter.id, "operator": operator, "outcome": outcome},
    )


def still_failing(tx: Tx, dead_letter: int, error: str) -> None:
    """Note that a replay failed: the dead letter stays open."""
    tx.execute(
        text("UPDATE dead_letters SET attempts = attempts + 1, error = :error WHERE id = :id"),
        {"id": dead_letter, "error": error[:LONGEST_ERROR]},
    )


def _dead_letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(**row._asdict())
