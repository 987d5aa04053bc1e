"""What follows from a change, in the transaction that made it: effect, ledger entry, event, deliveries, message."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import TextClause, text

from db.bridging import messages_of
from db.columns import lines, texts
from db.engine import Tx
from db.fanout import audience_of, deliveries_of
from domain.changes import Change, Kind, effect_key, event_of, ledger_side
from domain.identity import cohort
from domain.instants import unix


def _write(*further: str) -> TextClause:
    """The statement; `further` are CTEs of the change beside the usual ones."""
    return text(f"""
WITH change AS (
    SELECT * FROM unnest(
        {texts("keys")}, {texts("hold_ids")}, CAST(:versions AS integer[]), CAST(:deadlines AS bigint[]),
        CAST(:amounts AS bigint[]), {texts("currencies")}, {texts("event_ids")}, {texts("bodies")}
    ) AS c(key, hold_id, version, deadline, amount, currency, event_id, body)
), effect AS (
    INSERT INTO effects (key, hold_id, kind, version, expires_at, at, receipt)
    SELECT key, hold_id, :kind, version, to_timestamp(deadline), :at, :receipt FROM change
), entry AS (
    INSERT INTO ledger (hold_id, side, amount, currency, reason, at)
    SELECT hold_id, :side, CASE :side WHEN 'open' THEN amount ELSE -amount END, currency, :kind, :at
    FROM change WHERE amount IS NOT NULL AND CAST(:side AS text) IS NOT NULL
), delivery AS (
    {deliveries_of("change", event_id="event_id", event_type=":type", at="CAST(:at AS timestamptz)")}
){"".join(f", {cte}" for cte in further)}
INSERT INTO events (event_id, hold_id, type, occurred_at, body, audience)
SELECT event_id, hold_id, :type, :at, convert_to(body, 'UTF8'), {audience_of(":type")} FROM change
""")  # noqa: S608 - the parts are constants of this project


_COHORTS = f"cohort AS (SELECT * FROM unnest({texts('hold_ids')}, CAST(:cohorts AS smallint[])) AS c(hold_id, cohort))"  # noqa: S608

_CLOSED = _write()
_HELD = _write(
    _COHORTS,
    "message AS ("
    + messages_of(
        "change JOIN cohort USING (hold_id)", expires_at="to_timestamp(deadline)", at="CAST(:at AS timestamptz)"
    )
    + ")",
)
"""A change that leaves a hold held also writes its message, where a bridge carries its cohort."""


def record(tx: Tx, kind: Kind, changes: Sequence[Change], *, at: datetime, receipt: int | None = None) -> None:
    """Write what these changes of one kind entail: one statement, however many they are.

    Two at once, or a message twice: the effect's, the ledger's and the event's unique keys let one through and fail
    the other's whole transaction. Dies before commit: neither the change nor what follows exists.
    """
    if not changes:
        return
    events = [event_of(change) for change in changes]
    stays_held = kind in {Kind.PLACED, Kind.EXTENDED}
    cohorts = {"cohorts": [cohort(change.hold_id) for change in changes]} if stays_held else {}
    tx.execute(
        _HELD if stays_held else _CLOSED,
        cohorts
        | {
            "kind": kind.value,
            "at": at,
            "receipt": receipt,
            "side": ledger_side(kind),
            "type": events[0].type,
            "keys": lines(effect_key(change) for change in changes),
            "hold_ids": lines(change.hold_id for change in changes),
            "versions": [change.version for change in changes],
            "deadlines": [unix(change.expires_at) for change in changes],
            "amounts": [change.amount for change in changes],
            "currencies": lines(change.currency for change in changes),
            "event_ids": lines(event.event_id for event in events),
            "bodies": lines(event.body.decode() for event in events),
        },
    )
