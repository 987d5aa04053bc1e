"""Everything about one hold, found by keys that follow from its id: no table is read through.

Only the dead letters of a pruned hold are looked for by its id, in a table that is short since people empty it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, text

from db import holds, trace_reminders
from db.deliveries import letter_key
from db.engine import Tx
from domain.changes import Kind, ledger_side
from domain.holds import LAPSED, Hold
from domain.identity import (
    EffectKey,
    HoldId,
    cancelled_key,
    confirmed_key,
    event_id,
    expiry_key,
    extended_key,
    placed_key,
)
from domain.tracing import Step, Trace, in_time

_EFFECTS = text("""
SELECT kind, version, expires_at, at, receipt, imported FROM effects
WHERE key = ANY(CAST(:once AS text[]))
   OR (key > :extended AND key < :extended_end) OR (key > :expired AND key < :expired_end)
""")

_CLAIM = text("SELECT claimed_run, claimed_until, claims FROM holds WHERE id = :hold")

_RECEIPTS = text("""
SELECT id, message_id, path, sweep_run, retries, redelivered, worker, at FROM receipts
WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id
""")

_RUNS = text("SELECT id, sweep, started_at FROM sweep_runs WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id")

_ENTRIES = text("SELECT side, amount, currency, reason, at FROM ledger WHERE hold_id = :hold")

_EVENTS = text("SELECT event_id, type, occurred_at FROM events WHERE event_id = ANY(CAST(:ids AS text[]))")

_DELIVERIES = text("""
SELECT event_id, endpoint_id, state, trigger, created_at, next_attempt_at, settled_at, replays, replayed_at, replayed_by
FROM deliveries WHERE event_id = ANY(CAST(:ids AS text[])) ORDER BY event_id, endpoint_id
""")

_ATTEMPTS = text("""
SELECT event_id, endpoint_id, number, trigger, started_at, duration, peer, status, failure, worker
FROM attempts WHERE event_id = ANY(CAST(:ids AS text[])) ORDER BY event_id, endpoint_id, number
""")

_CARRIED = text("""
SELECT version, try, message_id, published_at FROM bridge_messages
WHERE hold_id = :hold AND published_at IS NOT NULL ORDER BY version, try
""")

_LETTER = "SELECT id, kind, sweep_run, error, attempts, created_at, replayed_at, replayed_by, outcome FROM dead_letters"

_LETTERS = text(f"{_LETTER} WHERE key = ANY(CAST(:keys AS text[])) ORDER BY id")

_LETTERS_OF_A_PRUNED_HOLD = text(f"{_LETTER} WHERE hold_id = :hold ORDER BY id")


def trace(tx: Tx, hold: HoldId, *, show_contacts: bool = False) -> Trace | None:
    """Everything about a hold in order of time; None if nothing is known of it. Contacts are masked unless asked for.

    A pruned hold gives what remains: ledger entries and dead letters. While the hold is changing, later statements
    may see more than earlier ones; in a REPEATABLE READ transaction all see the same.
    """
    now = holds.get(tx, hold)
    effects = sorted(tx.execute(_EFFECTS, _keys(hold)), key=_in_order_of_causes)
    entries = {row.side: row for row in tx.execute(_ENTRIES, {"hold": hold})}
    ids = [event_id(effect.kind, hold, effect.version) for effect in effects]
    sendings = tx.execute(_DELIVERIES, {"ids": ids}).all()
    reminders = trace_reminders.of_hold(tx, hold)
    letters = _letters(tx, hold, now, effects, sent=_letters_of(sendings, reminders))
    if now is None and not effects and not entries and not letters and not reminders:
        return None
    steps = [
        *_changes(tx, hold, now, effects, entries=entries, letters=letters),
        *trace_reminders.steps(tx, reminders, show_contacts=show_contacts),
        *_sendings(sendings, tx.execute(_ATTEMPTS, {"ids": ids}).all()),
        *(step for letter in letters for step in _letter(letter)),
        *(_carried(row) for row in tx.execute(_CARRIED, {"hold": hold})),
    ]
    return Trace(hold, now, in_time(steps))


def _changes(
    tx: Tx, hold: HoldId, now: Hold | None, effects: Sequence[Row[Any]],
    *, entries: dict[str, Row[Any]], letters: Sequence[Row[Any]],
) -> Iterator[Step]:  # fmt: skip
    """Each change after what led to it, and before its ledger entry and its event."""
    ids = [event_id(effect.kind, hold, effect.version) for effect in effects]
    events = {row.event_id: row for row in tx.execute(_EVENTS, {"ids": ids})}
    untold = dict(entries)
    before = None
    for effect, event in zip(effects, ids, strict=True):
        kind = Kind(effect.kind)
        if kind is Kind.EXPIRED:
            yield from _lapse(tx, effect.expires_at, now, effect.receipt, letters)
        yield _change(kind, effect, now, before)
        yield from _entry(untold.pop(ledger_side(kind) or "", None))
        yield from _event(events.get(event))
        before = effect.expires_at
    if now is not None and now.standing == LAPSED:
        yield from _lapse(tx, now.expires_at, now, None, letters)
    for entry in untold.values():
        yield from _entry(entry)


def _carried(row: Row[Any]) -> Step:
    facts = {"message": row.message_id, "version": row.version, "try": getattr(row, "try")}
    return Step(row.published_at, "published over the bridge", facts)


def _keys(hold: HoldId) -> dict[str, object]:
    """The effect keys of a hold: those that stand once, and the ranges of those that carry a version."""
    extended = extended_key(hold, 0).removesuffix("0")
    expired = expiry_key(hold, 0, datetime(1970, 1, 1, tzinfo=UTC)).removesuffix("0:0")
    after_digits = ":"  # the character after 9; keys are compared byte by byte
    return {
        "once": [placed_key(hold), confirmed_key(hold), cancelled_key(hold)],
        "extended": extended,
        "extended_end": extended + after_digits,
        "expired": expired,
        "expired_end": expired + after_digits,
    }


_ORDER = (Kind.PLACED, Kind.EXTENDED, Kind.CONFIRMED, Kind.CANCELLED, Kind.EXPIRED)


def _in_order_of_causes(effect: Row[Any]) -> tuple[int, int]:
    return _ORDER.index(Kind(effect.kind)), effect.version


def _letters_of(sendings: Sequence[Row[Any]], reminders: Sequence[Row[Any]]) -> list[str]:
    deliveries = [letter_key(row.event_id, row.endpoint_id) for row in sendings]
    return deliveries + trace_reminders.letter_keys(reminders)


def _letters(
    tx: Tx, hold: HoldId, now: Hold | None, effects: Sequence[Row[Any]], *, sent: Sequence[str]
) -> Sequence[Row[Any]]:
    """The dead letters of its expiries, and those with the keys of what was to be sent."""
    if now is None and not effects:
        return tx.execute(_LETTERS_OF_A_PRUNED_HOLD, {"hold": hold}).all()
    versions = {(effect.version, effect.expires_at) for effect in effects}
    if now is not None:
        versions.add((now.version, now.expires_at))
    jobs: set[EffectKey] = {expiry_key(hold, version, deadline) for version, deadline in versions}
    keys = [f"expiry:{job}" for job in jobs] + [*sent]
    return tx.execute(_LETTERS, {"keys": sorted(keys)}).all()


def _lapse(
    tx: Tx, deadline: datetime, now: Hold | None, receipt: int | None, letters: Sequence[Row[Any]]
) -> Iterator[Step]:
    """What leads from a deadline to an expiry: the lapse, the runs that observed it, the message, its attempt."""
    receipts = tx.execute(_RECEIPTS, {"ids": [] if receipt is None else [receipt]}).all()
    claim = None if now is None else tx.execute(_CLAIM, {"hold": now.id}).one_or_none()
    yield Step(deadline, "lapsed", {"claims": claim.claims if claim else None})
    claimed_until = {claim.claimed_run: claim.claimed_until} if claim else {}
    runs = {*claimed_until, *(row.sweep_run for row in (*receipts, *letters))}
    for run in tx.execute(_RUNS, {"ids": [run for run in runs if run is not None]}):
        facts = {"run": run.id, "sweep": run.sweep, "started": run.started_at}
        yield Step(max(run.started_at, deadline), "observed", {**facts, "claimed_until": claimed_until.get(run.id)})
    for row in receipts:
        yield Step(row.at, "message", {"message": row.message_id, "path": row.path, "run": row.sweep_run})
        attempt = {"attempt": row.retries + 1, "redelivered": row.redelivered, "worker": row.worker}
        yield Step(row.at, "attempt", {**attempt, "receipt": row.id})


def _change(kind: Kind, effect: Row[Any], now: Hold | None, before: datetime | None) -> Step:
    facts: dict[str, object] = {"version": effect.version, "deadline": effect.expires_at}
    if kind is Kind.EXTENDED:
        facts["deadline_before"] = before
    elif kind is Kind.EXPIRED:
        facts["late_s"] = (effect.at - effect.expires_at).total_seconds()
    elif kind in {Kind.CONFIRMED, Kind.CANCELLED} and now is not None:
        facts["reason"] = now.close_reason
    if effect.imported:
        facts["imported"] = True
    return Step(effect.at, kind.value, facts)


def _entry(entry: Row[Any] | None) -> Iterator[Step]:
    if entry is not None:
        facts = {"side": entry.side, "amount": entry.amount, "currency": entry.currency, "reason": entry.reason}
        yield Step(entry.at, "ledger entry", facts)


def _event(event: Row[Any] | None) -> Iterator[Step]:
    if event is not None:
        yield Step(event.occurred_at, "event", {"event": event.event_id, "type": event.type})


def _sendings(sendings: Sequence[Row[Any]], attempts: Sequence[Row[Any]]) -> Iterator[Step]:
    """Each delivery of the hold's events, its requests, and how it ended."""
    mine = defaultdict(list)
    for made in attempts:
        mine[made.event_id, made.endpoint_id].append(made)
    for row in sendings:
        where = {"event": row.event_id, "endpoint": row.endpoint_id}
        waiting = row.next_attempt_at if row.state == "pending" else None
        yield Step(row.created_at, "delivery", {**where, "state": row.state, "next_attempt": waiting})
        if row.replayed_at is not None:
            yield Step(row.replayed_at, "delivery replayed", {**where, "by": row.replayed_by, "replays": row.replays})
        for made in mine[row.event_id, row.endpoint_id]:
            yield Step(made.started_at, "request", {**where, **_request(made)})
        if row.settled_at is not None:
            yield Step(row.settled_at, "delivered" if row.state == "delivered" else f"delivery {row.state}", where)


def _request(made: Row[Any]) -> dict[str, object]:
    """What is known of one request; without a duration nobody recorded how it ended."""
    return {
        "number": made.number,
        "trigger": made.trigger,
        "status": made.status,
        "failure": made.failure,
        "took_s": None if made.duration is None else made.duration.total_seconds(),
        "peer": made.peer,
        "worker": made.worker,
    }


def _letter(letter: Row[Any]) -> Iterator[Step]:
    facts = {"number": letter.id, "kind": letter.kind, "attempts": letter.attempts, "error": letter.error}
    yield Step(letter.created_at, "dead letter", {**facts, "run": letter.sweep_run})
    if letter.replayed_at is not None:
        settled = {"number": letter.id, "outcome": letter.outcome, "by": letter.replayed_by}
        yield Step(letter.replayed_at, "dead letter settled", settled)
