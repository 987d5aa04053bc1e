"""How Holdfast stands: what is live, overdue and waiting, what became of references, and what is alarming."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text

from db import bridge, cohorts, endpoint_status, reminder_status, reminding, schema, slots
from db.bridge import Backlog, Paused, Standing
from db.endpoint_status import EndpointHealth
from db.engine import Tx
from db.reminder_status import ReminderStatus
from db.sweeps import sweep_name
from domain.cohorts import format_cohorts
from domain.durations import format_duration
from domain.holds import Status as HoldStatus
from domain.instants import rfc3339
from domain.outcomes import Outcome, Tally
from domain.paths import Path

LAST_HOUR = timedelta(hours=1)
"""How far back outcomes and stopped runs are counted."""

_ERRORS_TOLD = 5
"""Different errors of runs that are told, at most."""

# One pass over the table, so that its figures belong together: about 0.35 s for a million holds on two cores. What
# is overdue is what the due index holds, word for word.
_HOLDS = text("""
SELECT status, currency, count(*) AS holds, count(*) FILTER (WHERE set_aside) AS set_aside,
       count(*) FILTER (WHERE overdue) AS overdue,
       min(expires_at) FILTER (WHERE overdue) AS oldest,
       count(*) FILTER (WHERE overdue AND claimed_until > :now AND claimed_run IS NOT NULL) AS in_flight,
       sum(amount) AS amount
FROM (SELECT *, status = 'held' AND NOT set_aside AND expires_at <= :now AS overdue FROM holds) AS h
GROUP BY status, currency ORDER BY currency
""")

_SWEEPS = text("SELECT name, :now - began_at AS age, ticks, last_run FROM sweeps ORDER BY name")

_DRIVING = text("SELECT DISTINCT path FROM cohort_paths")

_OPEN_DEAD_LETTERS = text("""
SELECT kind, count(*) AS letters FROM dead_letters WHERE replayed_at IS NULL GROUP BY kind ORDER BY kind
""")

# By the index on receipts.at; 0.1 to 0.3 s for a million counts (a receipt has one for each outcome and cohort in it).
_OUTCOMES = text("""
SELECT o.outcome, sum(CAST(c.n AS bigint)) AS references,
       coalesce(sum(CAST(c.n AS bigint)) FILTER (WHERE r.path = 'rescue'), 0) AS by_rescue
FROM receipts AS r, jsonb_each(r.tally) AS o(outcome, cohorts), jsonb_each_text(o.cohorts) AS c(cohort, n)
WHERE r.at > CAST(:now AS timestamptz) - CAST(:back AS interval) GROUP BY o.outcome
""")

# By the index on sweep_runs.started_at.
_STOPPED_RUNS = text("""
SELECT sweep, error, count(*) AS runs, max(id) AS latest FROM sweep_runs
WHERE error IS NOT NULL AND started_at > CAST(:now AS timestamptz) - CAST(:back AS interval)
GROUP BY sweep, error ORDER BY latest DESC LIMIT :most
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One sweep's heartbeat. `age` of its last tick is negative after a clock was set back."""

    name: str
    age: timedelta
    ticks: int
    last_run: int | None

    def as_data(self) -> dict[str, object]:
        """The heartbeat as JSON carries it; the age in seconds."""
        return {"name": self.name, "age_s": _seconds(self.age), "ticks": self.ticks, "last_run": self.last_run}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How Holdfast stood at `at` by the database's clock. Live, overdue and set aside together are the held holds.

    `overdue` are lapsed, neither expired nor set aside; `in_flight` are those of them that a run claims still (not
    those postponed because they failed alone).
    `rescued` are expiries of the last hour that another path had lost. Amounts are in minor units. `red` is empty
    where nothing is alarming. `bridge` are messages not yet published, None while no cohort is on path `infrai`.
    """

    at: datetime
    schema: str | None
    live: int = 0
    overdue: int = 0
    oldest_overdue: timedelta | None = None
    in_flight: int = 0
    set_aside: int = 0
    sweeps: Sequence[Sweep] = ()
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    outcomes: Tally = field(default_factory=Tally)
    rescued: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)
    open_amounts: Mapping[str, int] = field(default_factory=dict)
    endpoints: Sequence[EndpointHealth] = field(default_factory=list)
    reminders: ReminderStatus = field(default_factory=ReminderStatus)
    bridge: Backlog | None = None
    red: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, object]:
        """As JSON carries it; ages in seconds."""
        oldest = self.oldest_overdue
        return {
            "at": rfc3339(self.at),
            "schema": self.schema,
            "live": self.live,
            "overdue": self.overdue,
            "oldest_overdue_s": None if oldest is None else _seconds(oldest),
            "in_flight": self.in_flight,
            "set_aside": self.set_aside,
            "sweeps": [sweep.as_data() for sweep in self.sweeps],
            "dead_letters": dict(self.dead_letters),
            "outcomes_last_hour": self.outcomes.as_data(),
            "rescued_last_hour": self.rescued,
            "totals": dict(self.totals),
            "open_amounts": dict(self.open_amounts),
            "endpoints": [endpoint.as_data() for endpoint in self.endpoints],
            "reminders": [channel.as_data() for channel in self.reminders.channels],
            "bridge": None if self.bridge is None else self.bridge.as_data(),
            "red": self.red,
        }


def status(tx: Tx, *, grace: timedelta, silence: timedelta, now: datetime | None = None) -> Status:
    """How Holdfast stands. It is red where a hold is overdue by more than `grace`, or a sweep silent for `silence`.

    `now` is the transaction's start by the database's clock unless given. A database without a schema is red, no
    error.
    """
    now = now or tx.execute(text("SELECT now()")).scalar_one()
    current = schema.current(tx)
    if current is None:
        return Status(at=now, schema=None, red=["the database has no schema: run `holdfast migrate`"])
    holds = _holds(tx, now)
    sweeps = [Sweep(**row._asdict()) for row in tx.execute(_SWEEPS, {"now": now})]
    letters = {row.kind: row.letters for row in tx.execute(_OPEN_DEAD_LETTERS)}
    outcomes, rescued = _outcomes(tx, now)
    outdated = _outdated(current, schema.newest())
    endpoints = [] if outdated else endpoint_status.of_all(tx, now)  # an older schema may not have the tables
    reminders = ReminderStatus() if outdated else reminder_status.of_all(tx, now)
    carried, unwell = (None, []) if outdated else _bridge(tx, now, silence)
    red = [
        *outdated,
        *_stopped(tx.execute(_STOPPED_RUNS, {"now": now, "back": LAST_HOUR, "most": _ERRORS_TOLD}).all()),
        *_late(holds["oldest_overdue"], grace),
        *_silent(sweeps, _needed(tx, webhooks=bool(endpoints), reminders=reminders.wanted), silence),
        *reminders.red(grace),
        *_waiting(letters),
        *unwell,
    ]
    return Status(
        at=now,
        schema=current,
        sweeps=sweeps,
        dead_letters=letters,
        outcomes=outcomes,
        rescued=rescued,
        endpoints=endpoints,
        reminders=reminders,
        bridge=carried,
        red=red,
        **holds,
    )


def _holds(tx: Tx, now: datetime) -> dict[str, Any]:
    """What the holds themselves say, as fields of Status."""
    rows = tx.execute(_HOLDS, {"now": now}).all()
    totals = {status.value: sum(row.holds for row in rows if row.status == status.value) for status in HoldStatus}
    held = [row for row in rows if row.status == HoldStatus.HELD.value]
    overdue = sum(row.overdue for row in held)
    set_aside = sum(row.set_aside for row in held)
    oldest = min((row.oldest for row in held if row.oldest is not None), default=None)
    return {
        "live": totals[HoldStatus.HELD.value] - overdue - set_aside,
        "overdue": overdue,
        "oldest_overdue": None if oldest is None else now - oldest,
        "in_flight": sum(row.in_flight for row in held),
        "set_aside": set_aside,
        "totals": totals,
        "open_amounts": {row.currency: int(row.amount) for row in held if row.currency is not None},
    }


def _outcomes(tx: Tx, now: datetime) -> tuple[Tally, int]:
    rows = tx.execute(_OUTCOMES, {"now": now, "back": LAST_HOUR}).all()
    rescued = sum(int(row.by_rescue) for row in rows if row.outcome == Outcome.EXPIRED.value)
    return Tally({Outcome(row.outcome): int(row.references) for row in rows}), rescued


_ALWAYS = {sweep_name(Path.SWEEP), bridge.PUBLISHING, bridge.CONSUMING, slots.SWEEP, reminding.SWEEP}
"""Sweeps that have a row from their first tick on, whichever path drives what."""


def _needed(tx: Tx, *, webhooks: bool, reminders: bool) -> set[str]:
    """The sweeps that must tick: expiry's own (it rescues), those whose path drives a cohort, and those of use."""
    paths = {Path(path) for path in tx.execute(_DRIVING).scalars()}
    driving = {sweep_name(path) for path in paths - {Path.INFRAI}}
    carrying = {bridge.PUBLISHING, bridge.CONSUMING} if Path.INFRAI in paths else set()
    useful = ({slots.SWEEP} if webhooks else set()) | ({reminding.SWEEP} if reminders else set())
    return {sweep_name(Path.SWEEP)} | driving | carrying | useful


def _bridge(tx: Tx, now: datetime, silence: timedelta) -> tuple[Backlog | None, list[str]]:
    """What waits to be published, and what is wrong with it; nothing where no cohort needs the bridge."""
    if Path.INFRAI not in {Path(path) for path in tx.execute(_DRIVING).scalars()}:
        return None, []
    found = bridge.backlog(tx)
    waited = None if found.oldest is None else now - found.oldest
    return found, [*_unbridged(cohorts.unbridged(tx)), *_paused(bridge.standing(tx)), *_unpublished(waited, silence)]


def _unbridged(missing: Sequence[int]) -> list[str]:
    if not missing:
        return []
    names = format_cohorts(missing)
    cure = f"run `holdfast cohorts route {names} infrai` again"
    return [f"cohorts {names} are on path infrai, and not all of their messages are written: {cure}"]


def _paused(standing: Standing) -> list[str]:
    if not isinstance(standing, Paused):
        return []
    since = rfc3339(standing.since.replace(microsecond=0))
    return [f"the bridge was paused by {standing.by} at {since}: `holdfast bridge resume` lets it go on"]


def _unpublished(waited: timedelta | None, silence: timedelta) -> list[str]:
    if waited is None or waited <= silence:
        return []
    return [f"a message has waited {format_duration(waited)} to be published: see `holdfast bridge stats`"]


def _outdated(current: str, newest: str) -> list[str]:
    """Revisions are numbered, so a smaller one is older; a newer schema suits older code until that is deployed."""
    if current >= newest:
        return []
    return [f"the schema is at {current}, this code needs {newest}: run `holdfast migrate`"]


def _stopped(runs: Sequence[Row[Any]]) -> list[str]:
    return [
        f"run {row.latest} of {row.sweep} ended with an error ({row.runs} like it in the last hour): {row.error}; "
        "mend the cause, the next tick begins anew"
        for row in runs
    ]


def _late(oldest: timedelta | None, grace: timedelta) -> list[str]:
    if oldest is None or oldest <= grace:
        return []
    late = f"a hold is overdue by {format_duration(oldest)}, more than {format_duration(grace)}"
    return [f"{late}: see that beat and the workers run, or run `holdfast sweep`"]


def _silent(sweeps: Sequence[Sweep], needed: set[str], silence: timedelta) -> list[str]:
    """A sweep whose path drives nothing any more may rest, and those of webhooks and reminders that have nothing."""
    retired = {*(sweep_name(path) for path in Path), *_ALWAYS} - needed
    quiet = [
        f"{sweep.name} last ticked {format_duration(sweep.age)} ago, more than {format_duration(silence)}: "
        "see that beat and a worker of its lane run"
        for sweep in sweeps
        if sweep.age > silence and sweep.name not in retired
    ]
    never = (_ALWAYS & needed) - {sweep.name for sweep in sweeps}
    return quiet + [f"{name} has never ticked: start beat and a worker with `holdfast up`" for name in sorted(never)]


def _waiting(letters: Mapping[str, int]) -> list[str]:
    if not letters:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in letters.items())
    return [f"dead letters wait ({kinds}): see `holdfast dead-letters list`, then replay or discard each"]


def _seconds(length: timedelta) -> float:
    return round(length.total_seconds(), 3)
