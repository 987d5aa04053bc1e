"""The expiry task: apply a chunk of references; one that cannot be applied is found, and the others are done."""

from collections.abc import Sequence
from typing import assert_never

import structlog
from sqlalchemy.exc import DBAPIError

from db import dead_letters, expiry, faults
from db.engine import Database
from domain.outcomes import Outcome, Tally
from domain.paths import Carrier
from domain.references import Reference
from domain.sweeping import ClaimPolicy
from settings import settings
from tasks.app import database, policy, task, this_message
from tasks.messages import MalformedMessage, bury, read_message, read_references

log = structlog.get_logger(__name__)

_RETRIES = 3


@task(
    "expiry.expire",
    soft_limit=settings().expiry_soft_limit,
    hard_limit=settings().expiry_hard_limit,
    retries=_RETRIES,
)
def expire(*unnamed: object, **fields: object) -> dict[str, int]:
    """Expire what these references still point at."""
    try:
        message = read_message(unnamed, fields)
    except MalformedMessage as problem:
        bury(database(), this_message(path=None, run=None), fields, problem)
        return {}
    structlog.contextvars.bind_contextvars(run=message.run, path=message.path.value)
    by = this_message(path=message.path, run=message.run)
    tally = apply(database(), read_references(database(), message.refs, by), by, policy())
    log.info("expiry.applied", **tally.as_data())
    return tally.as_data()


def apply(db: Database, references: Sequence[Reference], by: Carrier, bounds: ClaimPolicy) -> Tally:
    """Apply these in one transaction; on an error that lies in the data, in halves.

    Raises:
        DBAPIError: the fault lies elsewhere (connection, permission, disk): nothing is split or set aside.
    """
    return Tally.of(outcome for outcome in apply_each(db, references, by, bounds) if outcome is not None)


def apply_each(
    db: Database, references: Sequence[Reference], by: Carrier, bounds: ClaimPolicy
) -> list[Outcome | None]:  # fmt: skip
    """What became of each of these, as `apply` does it; None: its hold fails alone, and was not changed.

    Raises:
        DBAPIError: as `apply`.
    """
    if not references:
        return []
    try:
        with db.transaction() as tx:
            return [*expiry.expire(tx, references, by, grace=bounds.grace)]
    except DBAPIError as error:
        if not faults.lies_in_the_data(faults.sqlstate(error)):
            raise
        return _isolate(db, references, by, bounds, faults.cause(error))


def _isolate(
    db: Database, references: Sequence[Reference], by: Carrier, bounds: ClaimPolicy, error: str
) -> list[Outcome | None]:  # fmt: skip
    if len(references) == 1:
        _fails_alone(db, references[0], by, bounds, error)
        return [None]
    if by.run is not None and _is_stopped(db, by.run):
        return [None] * len(references)
    middle = len(references) // 2
    return apply_each(db, references[:middle], by, bounds) + apply_each(db, references[middle:], by, bounds)


def _is_stopped(db: Database, run: int) -> bool:
    with db.transaction() as tx:
        return dead_letters.is_stopped(tx, run)


def _fails_alone(db: Database, reference: Reference, by: Carrier, bounds: ClaimPolicy, error: str) -> None:
    with db.transaction() as tx:
        became = dead_letters.fail_alone(tx, reference, error, bounds, run=by.run)
    where = {"hold": reference.hold_id, "job": reference.job_id}
    match became:
        case dead_letters.Postponed():
            log.warning("expiry.postponed", error=error, **where)
        case dead_letters.SetAside(dead_letter=number):
            log.error("expiry.set_aside", error=error, dead_letter=number, **where)
        case dead_letters.RunStopped():
            log.error("expiry.run_stopped", error=error, **where)
        case _:
            assert_never(became)
