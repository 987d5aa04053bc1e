"""An endpoint's health: failures in a row, the breaker, the warning, and the end after failing for days."""

from sqlalchemy import text

from db import endpoints
from db.endpoint_events import tell
from db.engine import Tx
from domain.durations import format_duration
from domain.endpoints import EndpointId, HealthPolicy, State, Told

_OPENS_AFTER_ENOUGH = """
breaker_until = CASE WHEN failures + our_failures + 1 >= :breaker_after
    THEN clock_timestamp() + least(CAST(:pause AS interval)
        * power(2, least(failures + our_failures + 1 - :breaker_after, 20)), CAST(:longest AS interval))
    ELSE breaker_until END
WHERE id = :id AND state <> 'deleted' AND (breaker_until IS NULL OR breaker_until <= clock_timestamp())
"""
"""SQL: a failure that comes in while the breaker is open belongs to a request from before: it says nothing new."""

_FAILING = "greatest(coalesce(still_since, clock_timestamp()) - failing_since, '0')"
"""SQL: how long an endpoint has failed. A request may end while it is paused, and the pause counts toward no streak."""

_COUNT_FAILURE_UNLESS_OPEN = text(f"""
UPDATE endpoints
SET failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp()), {_OPENS_AFTER_ENOUGH}
RETURNING told, state, failures, {_FAILING} AS failing, {_FAILING} >= CAST(:warn_after AS interval) AS warn,
          {_FAILING} >= CAST(:disable_after AS interval) AS disable
""")  # noqa: S608 - the parts are constants of this file

_COUNT_OURS_UNLESS_OPEN = text(f"""
UPDATE endpoints SET our_failures = our_failures + 1, {_OPENS_AFTER_ENOUGH}
""")  # noqa: S608 - the parts are constants of this file

# Who was told of a disabled endpoint is told that it is well once it is enabled again, and not by a request that was
# under way when it was disabled.
_SEEN_WELL = text("""
UPDATE endpoints AS p
SET failing_since = NULL, failures = 0, our_failures = 0, breaker_until = NULL
FROM (SELECT id, told FROM endpoints WHERE id = :id FOR UPDATE) AS before
WHERE p.id = before.id
RETURNING CASE WHEN p.state NOT IN ('disabled', 'deleted') THEN before.told END
""")


def failed(tx: Tx, endpoint: EndpointId, policy: HealthPolicy, why: str, *, quietly: bool) -> None:
    """Count a completed attempt that failed and is charged to the receiver.

    Enough in a row open the breaker, longer each time. Failing for `warn_after` without a success warns the others,
    once; for `disable_after`, and warned before, disables it. `quietly` (an attempt of an `endpoint.*` event) tells
    nobody and disables nothing: facts about endpoints raise no further ones.
    """
    asked = _breaker(endpoint, policy) | {"warn_after": policy.warn_after, "disable_after": policy.disable_after}
    row = tx.execute(_COUNT_FAILURE_UNLESS_OPEN, asked).one_or_none()
    if row is None or quietly or row.state == "disabled":
        return
    reason = f"failing for {format_duration(row.failing)} without a success, at last with {why}"
    if row.told == Told.FAILING.value:
        if row.disable and row.failures >= policy.breaker_after:
            endpoints.disable(tx, endpoint, reason)
    elif row.warn:
        tell(tx, endpoint, Told.FAILING, reason)


def failed_by_us(tx: Tx, endpoint: EndpointId, policy: HealthPolicy) -> None:
    """Count a completed attempt that failed and is charged to nobody.

    Whoever is at fault, the next one would most likely fail too, and may hold a thread until its deadline (a name
    server that is silent): so these open the breaker as others do. They never warn, nor disable.
    """
    tx.execute(_COUNT_OURS_UNLESS_OPEN, _breaker(endpoint, policy))


def _breaker(endpoint: EndpointId, policy: HealthPolicy) -> dict[str, object]:
    return {
        "id": endpoint, "breaker_after": policy.breaker_after, "pause": policy.breaker_pause,
        "longest": policy.breaker_longest,
    }  # fmt: skip


def succeeded(tx: Tx, endpoint: EndpointId, *, quietly: bool) -> None:
    """Forget failures and close the breaker; others who were told of trouble are told that it is over.

    Of an endpoint that is disabled meanwhile that is told at its first success after it was enabled.
    """
    told = tx.execute(_SEEN_WELL, {"id": endpoint}).scalar_one_or_none()
    if told is not None and not quietly:
        tell(tx, endpoint, Told.RECOVERED, "a request succeeded")


def gone(tx: Tx, endpoint: EndpointId, *, quietly: bool) -> None:
    """The receiver answered 410: it is disabled, and what waits for it is paused."""
    state = tx.execute(text("SELECT state FROM endpoints WHERE id = :id FOR UPDATE"), {"id": endpoint}).scalar_one()
    if state != State.DELETED.value:
        endpoints.disable(tx, endpoint, "the receiver answered 410 Gone", quietly=quietly)
