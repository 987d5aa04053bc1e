"""Sweep runs: begin a tick, claim what is due, release what could not be published."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from db.engine import Tx, by_index
from domain.identity import HoldId
from domain.paths import Path
from domain.references import Reference
from domain.sweeping import ClaimPolicy

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every deadline."""

_BEGIN_UNLESS_JUST_BEGUN = text("""
INSERT INTO sweeps AS s (name, began_at) VALUES (:name, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET began_at = excluded.began_at, ticks = s.ticks + 1
WHERE s.began_at NOT BETWEEN excluded.began_at - CAST(:apart AS interval)
                         AND excluded.began_at + CAST(:apart AS interval)
RETURNING s.began_at
""")

_DUE = """
h.status = 'held' AND NOT h.set_aside AND h.expires_at <= now()
AND (h.claimed_until IS NULL OR h.claimed_until <= now())
AND (h.cohort = ANY(ARRAY(SELECT c.cohort FROM cohort_paths AS c WHERE c.path = :path))
     OR (:path = 'sweep' AND h.expires_at <= now() - CAST(:grace AS interval)))
"""

ANYTHING_DUE = text(f"SELECT EXISTS (SELECT FROM holds AS h WHERE {_DUE})")  # noqa: S608 - a constant of this file

_OPEN_RUN = text("""
WITH run AS (INSERT INTO sweep_runs (sweep, started_at) VALUES (:name, clock_timestamp()) RETURNING id)
UPDATE sweeps SET last_run = run.id FROM run WHERE name = :name RETURNING run.id
""")

_CLAIM_DUE_AND_UNCLAIMED = text(f"""
WITH due AS (
    SELECT h.id FROM holds AS h
    WHERE {_DUE} AND h.expires_at >= :since
      AND NOT EXISTS (SELECT FROM sweep_runs AS r WHERE r.id = :run AND r.error LIKE 'stopped: %')
    ORDER BY h.expires_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE holds AS h
    SET claimed_run = :run, claimed_until = now() + CAST(:lease AS interval), claims = h.claims + 1
    FROM due WHERE h.id = due.id
    RETURNING h.id, h.version, h.expires_at, h.cohort
)
SELECT l.id, l.version, l.expires_at, c.path <> :path AS rescue
FROM claimed AS l JOIN cohort_paths AS c ON c.cohort = l.cohort
""")  # noqa: S608 - a constant of this file

_FORGETTABLE = text("SET LOCAL synchronous_commit = off")

_IN_FLIGHT = text("""
SELECT count(*) FILTER (WHERE claimed_until > now() AND claimed_run IS NOT NULL) FROM (
    SELECT claimed_until, claimed_run FROM holds
    WHERE status = 'held' AND NOT set_aside AND expires_at <= now()
    ORDER BY expires_at LIMIT :window
) AS oldest
""")

_RELEASE = text("""
UPDATE holds SET claimed_until = NULL, claims = greatest(claims - 1, 0)
WHERE id = ANY(CAST(:ids AS text[])) AND claimed_run = :run AND status = 'held'
""")

_ADVANCE = text("""
UPDATE sweep_runs SET observed = observed + :observed, published = published + :published WHERE id = :run
""")

_FINISH = text("""
UPDATE sweep_runs SET finished_at = clock_timestamp(), error = coalesce(error, :error) WHERE id = :run
""")


@dataclass(frozen=True, slots=True)
class TooSoon:
    """The sweep began less than half an interval ago: this tick is a copy."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is due."""


@dataclass(frozen=True, slots=True)
class Run:
    """Something is due; the run is on record."""

    id: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim took: for this path, and for paths that lost a message."""

    own: list[Reference]
    rescued: list[Reference]

    @property
    def ids(self) -> list[HoldId]:
        """The holds claimed."""
        return [reference.hold_id for reference in (*self.own, *self.rescued)]

    @property
    def latest(self) -> datetime:
        """The latest deadline claimed."""
        return max(reference.expires_at for reference in (*self.own, *self.rescued))


def sweep_name(path: Path) -> str:
    """What `status` calls the expiry sweep of a path."""
    return f"expiry:{path}"


def tick(tx: Tx, name: str, *, apart: timedelta) -> bool:
    """Begin a tick of the sweep of this name, unless one began less than `apart` ago by the database's clock."""
    return tx.execute(_BEGIN_UNLESS_JUST_BEGUN, {"name": name, "apart": apart}).one_or_none() is not None


def open_run(tx: Tx, name: str) -> Run:
    """Put on record that the sweep of this name saw something to do."""
    return Run(tx.execute(_OPEN_RUN, {"name": name}).scalar_one())


def begin(tx: Tx, path: Path, policy: ClaimPolicy, *, apart: timedelta) -> TooSoon | Idle | Run:
    """Begin a tick, unless one began less than `apart` ago by the database's clock.

    Two beats, a pile of old ticks: the sweep's row is the lock, and all but one return after this query. A clock set
    back does not silence the sweep: a beginning in the future counts as none. Nothing here must survive a crash of
    the database, so an idle tick does not wait for the disk.
    """
    name = sweep_name(path)
    if not tick(tx, name, apart=apart):
        return TooSoon()
    by_index(tx)
    if not tx.execute(ANYTHING_DUE, {"path": path, "grace": policy.grace}).scalar_one():
        forgettable(tx)
        return Idle()
    return open_run(tx, name)


def claim(tx: Tx, run: Run, path: Path, policy: ClaimPolicy, *, limit: int, since: datetime = LONG_AGO) -> Claimed:
    """Claim up to `limit` due holds of this path's cohorts, oldest deadline first, for one lease.

    `since` is the latest deadline this run has claimed: what it took before is not read again. A hold that it passed
    over, since somebody had it locked, is the next run's.

    Two sweepers at once: each skips what the other has locked. Dies after commit, before publishing: the claim runs
    out after one lease, and the next run takes the holds. The commit waits for the disk: what a run observed must be on
    record before anybody can apply it. Only the sweep's own path also takes what other paths have left overdue by the
    grace time.
    """
    asked = {
        "run": run.id, "path": path, "grace": policy.grace, "lease": policy.lease, "limit": limit, "since": since,
    }  # fmt: skip
    by_index(tx)
    own: list[Reference] = []
    rescued: list[Reference] = []
    for row in tx.execute(_CLAIM_DUE_AND_UNCLAIMED, asked):
        reference = Reference.to(row.id, row.version, row.expires_at)
        (rescued if row.rescue else own).append(reference)
    if own or rescued:
        observed(tx, run, len(own) + len(rescued))
    return Claimed(own, rescued)


def in_flight(tx: Tx, window: int) -> int:
    """How many of the oldest `window` due holds are claimed and not yet expired: bounded work, whatever is overdue.

    Holds that failed alone and were postponed do not count, or they would hide those behind them.
    """
    by_index(tx)
    return int(tx.execute(_IN_FLIGHT, {"window": window}).scalar_one())


def published(tx: Tx, run: Run, count: int) -> None:
    """Note that a run has handed this many references to the broker."""
    forgettable(tx)
    tx.execute(_ADVANCE, {"run": run.id, "observed": 0, "published": count})


def forgettable(tx: Tx) -> None:
    """Let this commit not wait for the disk: nothing in it must survive a crash of the database."""
    tx.execute(_FORGETTABLE)


def observed(tx: Tx, run: Run, count: int) -> None:
    """Note that a run has found this much to do."""
    tx.execute(_ADVANCE, {"run": run.id, "observed": count, "published": 0})


def release(tx: Tx, run: Run, holds: Sequence[HoldId]) -> None:
    """Give claimed holds back at once, when the broker took no message about them.

    If it took one all the same, that message and the next run's make one effect, as any two do.
    """
    tx.execute(_RELEASE, {"run": run.id, "ids": sorted(holds)})


def finish(tx: Tx, run: Run, error: str | None = None) -> None:
    """Close a run; an error already on record stays."""
    tx.execute(_FINISH, {"run": run.id, "error": error})
