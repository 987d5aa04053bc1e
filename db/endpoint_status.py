"""How each endpoint fares: what waits for it, how late, and how its requests of the last hour went."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text

from db.engine import Tx
from domain.endpoints import EndpointId, breaker
from domain.instants import rfc3339

LAST_HOUR = timedelta(hours=1)
"""How far back requests are looked at."""

# What waits is counted by the partial index on due deliveries: 0.05 s for 100,000. Requests under way have no
# duration yet, and are left out. Requests are read through: 0.8 s for a million.
_HEALTH = text("""
SELECT p.id, p.label, p.state, p.reason, p.failures, p.failing_since, p.breaker_until,
       waiting.backlog, waiting.oldest, coalesce(made.attempts, 0) AS attempts, made.succeeded, made.percentiles
FROM endpoints AS p CROSS JOIN LATERAL (
    SELECT count(*) AS backlog, min(d.next_attempt_at) AS oldest
    FROM deliveries AS d WHERE d.endpoint_id = p.id AND d.state = 'pending'
) AS waiting LEFT JOIN (
    SELECT a.endpoint_id, count(*) AS attempts, count(*) FILTER (WHERE a.status BETWEEN 200 AND 299) AS succeeded,
           percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY a.duration) AS percentiles
    FROM attempts AS a
    WHERE a.started_at > CAST(:now AS timestamptz) - CAST(:back AS interval) AND a.duration IS NOT NULL
      AND (CAST(:only AS text) IS NULL OR a.endpoint_id = :only)
    GROUP BY a.endpoint_id
) AS made ON made.endpoint_id = p.id
WHERE CASE WHEN CAST(:only AS text) IS NULL THEN p.state <> 'deleted' ELSE p.id = :only END
ORDER BY p.id
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHealth:
    """How one endpoint stood at an instant. Rates and durations are None where the last hour has no request."""

    id: str
    label: str | None
    state: str
    reason: str | None
    breaker: str
    """`closed`, `open` or `half-open`."""
    failures: int
    """Charged failures in a row."""
    failing_since: datetime | None
    """As `Endpoint` has it."""
    backlog: int
    """Deliveries that wait, due or not."""
    oldest_due: timedelta | None
    """How long the first of them has been due; None while none is."""
    attempts: int
    success_rate: float | None
    """From 0 to 1."""
    p50: timedelta | None
    p95: timedelta | None

    def as_data(self) -> dict[str, object]:
        """As JSON carries it; lengths in seconds."""
        return {
            "id": self.id,
            "label": self.label,
            "state": self.state,
            "reason": self.reason,
            "breaker": self.breaker,
            "failures": self.failures,
            "failing_since": None if self.failing_since is None else rfc3339(self.failing_since),
            "backlog": self.backlog,
            "oldest_due_s": _seconds(self.oldest_due),
            "attempts_last_hour": self.attempts,
            "success_rate": self.success_rate,
            "p50_s": _seconds(self.p50),
            "p95_s": _seconds(self.p95),
        }


def of_all(tx: Tx, now: datetime) -> list[EndpointHealth]:
    """How every endpoint that is not deleted stands, in the order of their ids."""
    return [_health(row, now) for row in _rows(tx, now, None)]


def of_one(tx: Tx, endpoint: EndpointId, now: datetime) -> EndpointHealth | None:
    """How one endpoint stands, also a deleted one; None if there is none."""
    rows = _rows(tx, now, endpoint)
    return _health(rows[0], now) if rows else None


def _rows(tx: Tx, now: datetime, only: EndpointId | None) -> Sequence[Row[Any]]:
    return tx.execute(_HEALTH, {"now": now, "back": LAST_HOUR, "only": only}).all()


def _health(row: Row[Any], now: datetime) -> EndpointHealth:
    p50, p95 = row.percentiles or (None, None)
    due = row.oldest is not None and row.oldest <= now
    return EndpointHealth(
        id=row.id,
        label=row.label,
        state=row.state,
        reason=row.reason,
        breaker=breaker(row.breaker_until, now),
        failures=row.failures,
        failing_since=row.failing_since,
        backlog=row.backlog,
        oldest_due=now - row.oldest if due else None,
        attempts=row.attempts,
        success_rate=round(row.succeeded / row.attempts, 4) if row.attempts else None,
        p50=p50,
        p95=p95,
    )


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else round(length.total_seconds(), 3)
