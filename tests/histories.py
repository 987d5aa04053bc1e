"""What happens to holds over time, as production makes it happen: runs, dead letters, imports, pruning."""

from datetime import timedelta
from typing import Any

from db import dead_letters, importing, sweeps
from domain.importing import read_hold
from domain.outcomes import Outcome
from domain.paths import Path
from domain.terms import For
from tests.helpers import POLICY, Desk, carrier, whole_second

HOUR = For(timedelta(hours=1))
EUR: dict[str, Any] = {"currency": "EUR"}


def sweep(desk: Desk, path: Path = Path.SWEEP) -> int:
    """One run that claims and expires what is due; its number."""
    desk.sql("UPDATE sweeps SET began_at = began_at - interval '1 minute'")
    with desk.database.transaction() as tx:
        run = sweeps.begin(tx, path, POLICY, apart=timedelta(seconds=0.5))
        assert isinstance(run, sweeps.Run)
    with desk.database.transaction() as tx:
        claimed = sweeps.claim(tx, run, path, POLICY, limit=100)
    for by, references in ((path, claimed.own), (Path.RESCUE, claimed.rescued)):
        if references:
            outcomes = desk.expire(*references, by=carrier(f"m-{run.id}", path=by, run=run.id))
            assert set(outcomes) == {Outcome.EXPIRED}
    with desk.database.transaction() as tx:
        sweeps.finish(tx, run)
    return run.id


def set_aside(desk: Desk, hold: str) -> int:
    """The hold's dead letter, after its third claim."""
    desk.sql("UPDATE holds SET claims = 3 WHERE id = :hold", hold=hold)
    with desk.database.transaction() as tx:
        became = dead_letters.fail_alone(tx, desk.read(hold).reference, "numeric field overflow", POLICY, run=None)
    assert isinstance(became, dead_letters.SetAside)
    return became.dead_letter


def settle(desk: Desk, letter: int, outcome: str) -> None:
    with desk.database.transaction() as tx:
        known = dead_letters.get(tx, letter)
        assert known is not None
        dead_letters.settle(tx, known, outcome, "ops")


def take(desk: Desk, *holds: dict[str, object], emit: bool = False) -> None:
    """Import these."""
    with desk.database.transaction() as tx:
        now = whole_second(tx)
        batch = [
            read_hold(line, {"resource": "seat", "customer": "acme", **fields}, now)
            for line, fields in enumerate(holds, start=1)
        ]
        assert importing.take(tx, importing.prepare(batch, emit=emit)) == importing.Answer(len(batch), 0, [])


def forget(desk: Desk, hold: str) -> None:
    """What pruning does to one hold."""
    for table, key in (("events", "hold_id"), ("effects", "hold_id"), ("holds", "id")):
        desk.sql(f"DELETE FROM {table} WHERE {key} = :hold", hold=hold)


def live_through_everything(desk: Desk) -> None:
    """Holds in every state that a hold can be in, each come by the way production takes."""
    desk.placed("live", amount=100, **EUR)
    desk.placed("free")
    desk.placed("longer", amount=200, **EUR)
    desk.extend("longer", 1, HOUR)
    desk.extend("longer", 2, HOUR)
    for hold in ("kept", "dropped", "pruned"):
        desk.placed(hold, amount=300, **EUR)
    desk.confirm("kept")
    desk.cancel("dropped")
    desk.confirm("pruned")
    take(
        desk,
        {"id": "old-live", "expires_in": "3h", "version": 4, "amount": 600, "currency": "JPY"},
        {"id": "old-kept", "expires_in": "-3h", "status": "confirmed", "amount": 700, "currency": "JPY"},
        {"id": "old-dropped", "expires_in": "3h", "status": "cancelled"},
        {"id": "old-expired", "expires_in": "-2h", "status": "expired", "version": 2, "amount": 1, "currency": "USD"},
        {"id": "old-due", "expires_in": "-2h", "version": 7, "amount": 2, "currency": "USD"},
    )
    take(desk, {"id": "told", "expires_in": "-1h", "status": "cancelled", "version": 3}, emit=True)
    desk.extend("old-live", 4, HOUR)
    desk.overdue("gone", amount=500, **EUR)
    sweep(desk)
    lost = desk.overdue("rescued", by=timedelta(minutes=6))
    desk.sql("UPDATE cohort_paths SET path = 'infrai' WHERE cohort = :cohort", cohort=lost.cohort)
    sweep(desk)
    desk.expire(desk.overdue("by-hand").reference, by=carrier("cli:1", path=Path.SWEEP))
    desk.overdue("aside", amount=900, **EUR)
    set_aside(desk, "aside")
    replayed = desk.overdue("replayed")
    letter = set_aside(desk, "replayed")
    desk.expire(replayed.reference)
    settle(desk, letter, Outcome.EXPIRED)
    desk.overdue("discarded")
    settle(desk, set_aside(desk, "discarded"), dead_letters.DISCARDED)
    desk.overdue("overdue")
    forget(desk, "pruned")
