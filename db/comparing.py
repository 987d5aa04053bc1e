"""Each cohort held against the source of truth: what its path left undone, how late it was, and what it was told."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import text

from db.engine import Tx
from domain.cohorts import Carried, Compared
from domain.outcomes import Outcome
from domain.paths import Path

_WANTED = "cohort = ANY(CAST(:cohorts AS integer[]))"

_STANDING = text(f"""
SELECT c.cohort, c.path, c.came_from, c.routed_at, c.path = 'infrai' AND c.bridged_at IS NULL AS unbridged,
       coalesce(h.held, 0) AS held, coalesce(h.overdue, 0) AS overdue, now() - h.oldest AS oldest
FROM cohort_paths AS c LEFT JOIN (
    SELECT cohort, count(*) AS held, count(*) FILTER (WHERE expires_at <= now() AND NOT set_aside) AS overdue,
           min(expires_at) FILTER (WHERE expires_at <= now() AND NOT set_aside) AS oldest
    FROM holds WHERE status = 'held' AND {_WANTED} GROUP BY cohort
) AS h ON h.cohort = c.cohort
WHERE c.{_WANTED} ORDER BY c.cohort
""")  # noqa: S608 - a constant of this file

_EXPIRED = f"""
SELECT h.id, h.cohort, h.closed_at - h.expires_at AS late, e.key, e.imported, e.at, r.path, v.event_id
FROM holds AS h
LEFT JOIN effects AS e ON e.hold_id = h.id AND e.kind = 'expired'
LEFT JOIN events AS v ON v.hold_id = h.id AND v.type = 'reservation.expired'
LEFT JOIN receipts AS r ON r.id = e.receipt
WHERE h.status = 'expired' AND h.closed_at > now() - CAST(:since AS interval) AND h.{_WANTED}
"""  # noqa: S608 - a constant of this file

_GAPS = text(f"""
SELECT cohort, count(*) FILTER (WHERE key IS NULL) AS without_effect,
       count(*) FILTER (WHERE key IS NOT NULL AND event_id IS NULL) AS without_event
FROM ({_EXPIRED}) AS x WHERE imported IS NOT TRUE GROUP BY cohort
""")  # noqa: S608 - a constant of this file

# A rescue is counted against the path that drove the cohort at that moment.
_LATENESS = text(f"""
SELECT x.cohort, CASE WHEN x.path <> 'rescue' THEN x.path WHEN x.path IS NULL THEN NULL
                      WHEN c.routed_at IS NULL OR x.at >= c.routed_at THEN c.path ELSE c.came_from END AS path,
       x.path IS NOT DISTINCT FROM 'rescue' AS rescue, count(*) AS expired,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY late) AS p50,
       percentile_disc(0.99) WITHIN GROUP (ORDER BY late) AS p99
FROM ({_EXPIRED}) AS x JOIN cohort_paths AS c ON c.cohort = x.cohort
WHERE x.key IS NOT NULL AND NOT x.imported GROUP BY 1, 2, 3
""")  # noqa: S608 - a constant of this file

_TOLD = text("""
SELECT CAST(c.cohort AS integer) AS cohort, r.path, o.outcome, sum(CAST(c.n AS bigint)) AS references
FROM receipts AS r, jsonb_each(r.tally) AS o(outcome, cohorts), jsonb_each_text(o.cohorts) AS c(cohort, n)
WHERE r.at > now() - CAST(:since AS interval) AND o.outcome <> 'expired'
  AND CAST(c.cohort AS integer) = ANY(CAST(:cohorts AS integer[]))
GROUP BY 1, 2, 3
""")


class _Row:
    """What is gathered of one cohort and path."""

    def __init__(self) -> None:
        self.expired = self.lost = 0
        self.p50: timedelta | None = None
        self.p99: timedelta | None = None
        self.outcomes: dict[Outcome, int] = {}

    def told(self, path: str | None) -> Carried:
        return Carried(
            path=path, expired=self.expired, p50=self.p50, p99=self.p99, outcomes=self.outcomes, lost=self.lost
        )


def compare(tx: Tx, cohorts: Sequence[int], *, since: timedelta) -> list[Compared]:
    """These cohorts, in order: what stands now, and what each path did within this time by the database's clock.

    It reads the holds once, and what closed within the time: an operator's command, not a tick's. Taken in one
    transaction of repeatable reads if figures must belong together.
    """
    asked = {"cohorts": list(cohorts), "since": since}
    gaps = {row.cohort: row for row in tx.execute(_GAPS, asked)}
    rows = _by_path(tx, asked)
    return [
        Compared(
            cohort=row.cohort, path=row.path, held=row.held, overdue=row.overdue, oldest=row.oldest,
            without_effect=gaps[row.cohort].without_effect if row.cohort in gaps else 0,
            without_event=gaps[row.cohort].without_event if row.cohort in gaps else 0,
            unbridged=row.unbridged,
            carried=tuple(one.told(path) for path, one in sorted(rows[row.cohort].items(), key=repr)),
        )
        for row in tx.execute(_STANDING, asked)
    ]  # fmt: skip


def _by_path(tx: Tx, asked: dict[str, object]) -> dict[int, dict[str | None, _Row]]:
    rows: dict[int, dict[str | None, _Row]] = defaultdict(lambda: defaultdict(_Row))
    for row in tx.execute(_LATENESS, asked):
        one = rows[row.cohort][row.path]
        if row.rescue:
            one.lost = row.expired
        else:
            one.expired, one.p50, one.p99 = row.expired, row.p50, row.p99
    for row in tx.execute(_TOLD, asked):
        path = Path.SWEEP.value if row.path == Path.RESCUE.value else row.path
        outcomes, outcome = rows[row.cohort][path].outcomes, Outcome(row.outcome)
        outcomes[outcome] = outcomes.get(outcome, 0) + int(row.references)
    return rows


def one_snapshot(tx: Tx) -> datetime:
    """Make the figures of this transaction belong together; must come first in it. Returns its instant."""
    tx.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
    now: datetime = tx.execute(text("SELECT now()")).scalar_one()
    return now
