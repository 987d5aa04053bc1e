"""The bridge: how it stands, which messages are to be published next, and what was published."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Row, text

from db.bridging import HORIZON
from db.columns import lines, texts
from db.engine import Tx, by_index
from domain.identity import HoldId
from domain.instants import rfc3339
from domain.references import Reference

NAME = "infrai"
PUBLISHING = "bridge:publish"
CONSUMING = "bridge:consume"
"""What `status` calls the bridge's two sweeps."""

_STANDING = text("SELECT paused_at, paused_by, wait_until, reason, wait_until > now() AS waiting FROM bridge")

_PAUSE = text("UPDATE bridge SET paused_at = now(), paused_by = :by WHERE paused_at IS NULL")
_RESUME = text("UPDATE bridge SET paused_at = NULL, paused_by = NULL, wait_until = NULL, reason = NULL")
_REST = text("""
UPDATE bridge SET wait_until = greatest(wait_until, now() + CAST(:rest AS interval)), reason = :reason
""")

_ANYTHING_TO_PUBLISH = text("""
SELECT EXISTS (
    SELECT FROM bridge_messages WHERE published_at IS NULL AND batch IS NULL AND publish_at <= now()
) OR EXISTS (
    SELECT FROM bridge_messages WHERE published_at IS NULL AND batch IS NOT NULL AND claimed_until <= now()
)
""")

_OLD = """
m.published_at IS NULL AND m.batch IS NOT NULL AND m.claimed_until <= now()
AND m.batch_at < now() - CAST(:old AS interval)
"""
_OVERTAKEN = """
EXISTS (
    SELECT FROM bridge_messages AS n WHERE n.hold_id = m.hold_id AND n.version = m.version AND n.try > m.try
)
"""

_FORGET_OLD_IF_OVERTAKEN = text(f"DELETE FROM bridge_messages AS m WHERE {_OLD} AND {_OVERTAKEN}")  # noqa: S608 - constants of this file
_GIVE_UP_OLD_BATCHES = text(f"""
UPDATE bridge_messages AS m SET batch = NULL, batch_at = NULL, claimed_until = NULL, try = try + 1
WHERE {_OLD} AND NOT {_OVERTAKEN}
""")  # noqa: S608 - constants of this file

_TAKE_A_BATCH_WHOSE_LEASE_ENDED = text("""
WITH ended AS (
    SELECT batch FROM bridge_messages
    WHERE published_at IS NULL AND batch IS NOT NULL AND claimed_until <= now() ORDER BY batch LIMIT 1
), locked AS MATERIALIZED (
    SELECT m.hold_id, m.version, m.try FROM bridge_messages AS m, ended
    WHERE m.published_at IS NULL AND m.batch IS NOT NULL AND m.batch = ended.batch AND m.claimed_until <= now()
    ORDER BY m.hold_id, m.version, m.try FOR UPDATE OF m
)
UPDATE bridge_messages AS m SET claimed_until = now() + CAST(:lease AS interval)
FROM locked AS l WHERE (m.hold_id, m.version, m.try) = (l.hold_id, l.version, l.try)
RETURNING m.hold_id, m.version, m.try, m.expires_at, m.batch, m.batch_at
""")

_LOCK_THE_NEXT = text("""
SELECT m.hold_id, m.version, m.try, m.expires_at,
       EXISTS (SELECT FROM holds AS h WHERE h.id = m.hold_id AND h.version = m.version AND h.status = 'held') AS wanted
FROM bridge_messages AS m
WHERE m.published_at IS NULL AND m.batch IS NULL AND m.publish_at <= now()
ORDER BY m.publish_at LIMIT :limit FOR UPDATE OF m SKIP LOCKED
""")

_THESE = f"""
unnest({texts("ids")}, CAST(:versions AS integer[]), CAST(:tries AS integer[])) AS k(hold_id, version, try)
WHERE (m.hold_id, m.version, m.try) = (k.hold_id, k.version, k.try)
"""

_FORGET = text(f"DELETE FROM bridge_messages AS m USING {_THESE}")  # noqa: S608 - a constant of this file

_TAKE = text(f"""
UPDATE bridge_messages AS m SET batch = :batch, batch_at = now(), claimed_until = now() + CAST(:lease AS interval)
FROM {_THESE} RETURNING m.batch_at
""")  # noqa: S608 - a constant of this file

_PUBLISHED = text(f"""
UPDATE bridge_messages AS m SET published_at = clock_timestamp(), message_id = told.id
FROM unnest({texts("ids")}, CAST(:versions AS integer[]), CAST(:tries AS integer[]), {texts("messages")})
     AS told(hold_id, version, try, id)
WHERE (m.hold_id, m.version, m.try) = (told.hold_id, told.version, told.try)
  AND m.batch = :batch AND m.published_at IS NULL
""")  # noqa: S608 - the parts are constants of this project

_GIVE_BACK = text("""
UPDATE bridge_messages SET claimed_until = now() WHERE batch = :batch AND published_at IS NULL AND batch IS NOT NULL
""")

_ANOTHER_TRY = text(f"""
INSERT INTO bridge_messages (hold_id, version, try, expires_at, publish_at)
SELECT h.id, h.version, newest.try + 1, h.expires_at, greatest(now(), h.expires_at - {HORIZON})
FROM holds AS h JOIN LATERAL (
    SELECT m.try, m.published_at FROM bridge_messages AS m WHERE m.hold_id = h.id AND m.version = h.version
    ORDER BY m.try DESC LIMIT 1
) AS newest ON newest.published_at IS NOT NULL
WHERE h.id = :id AND h.status = 'held'
ON CONFLICT DO NOTHING
RETURNING try
""")  # noqa: S608 - the part is a constant of this project

_BACKLOG = text("""
SELECT count(*) AS due, min(publish_at) AS oldest FROM bridge_messages
WHERE published_at IS NULL AND batch IS NULL AND publish_at <= now()
""")
_LATER = text(
    "SELECT count(*) FROM bridge_messages WHERE published_at IS NULL AND batch IS NULL AND publish_at > now()"
)
_UNDER_WAY = text("SELECT count(*) FROM bridge_messages WHERE published_at IS NULL AND batch IS NOT NULL")


@dataclass(frozen=True, slots=True)
class Open:
    """The bridge may be used."""

    def __str__(self) -> str:
        return "open"


@dataclass(frozen=True, slots=True)
class Paused:
    """An operator has paused it."""

    since: datetime
    by: str

    def __str__(self) -> str:
        return f"paused by {self.by} since {rfc3339(self.since.replace(microsecond=0))}"


@dataclass(frozen=True, slots=True)
class Resting:
    """The service asked to be left alone until then, or a call failed a moment ago."""

    until: datetime
    reason: str

    def __str__(self) -> str:
        return f"left alone until {rfc3339(self.until.replace(microsecond=0))}: {self.reason}"


Standing = Open | Paused | Resting


class Line(NamedTuple):
    """One message of a batch."""

    hold_id: HoldId
    version: int
    try_: int
    expires_at: datetime

    @property
    def reference(self) -> Reference:
        """What it says."""
        return Reference.to(self.hold_id, self.version, self.expires_at)


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that one call publishes. `id` names that call for ever, and delays are counted from `at`."""

    id: str
    at: datetime
    lines: list[Line]

    def delay(self, line: Line) -> timedelta:
        """How long after `at` a message is to come."""
        return max(line.expires_at - self.at, timedelta(0))


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages not yet published: due now, under way, and those that wait for the horizon."""

    due: int
    oldest: datetime | None
    under_way: int
    later: int

    def as_data(self) -> dict[str, int]:
        """As JSON carries it."""
        return {"due": self.due, "under_way": self.under_way, "later": self.later}


def standing(tx: Tx) -> Standing:
    """How the bridge stands."""
    row = tx.execute(_STANDING).one()
    if row.paused_at is not None:
        return Paused(row.paused_at, row.paused_by)
    return Resting(row.wait_until, row.reason or "") if row.waiting else Open()


def pause(tx: Tx, by: str) -> None:
    """Publish and consume nothing until it is resumed. Holds that come due meanwhile are rescued by the sweep."""
    tx.execute(_PAUSE, {"by": by})


def resume(tx: Tx) -> None:
    """Go on, at once."""
    tx.execute(_RESUME)


def rest(tx: Tx, length: timedelta, reason: str) -> None:
    """Leave the service alone for so long from now: what it asked for is kept here, and no worker sleeps for it."""
    tx.execute(_REST, {"rest": length, "reason": reason})


def anything_to_publish(tx: Tx) -> bool:
    """Whether a message is due, or a batch's lease has ended: two looks at the ends of two small indexes."""
    by_index(tx)
    return bool(tx.execute(_ANYTHING_TO_PUBLISH).scalar_one())


def take(tx: Tx, limit: int, *, lease: timedelta, old: timedelta) -> Batch | None:
    """The next messages to publish, for one lease: a batch whose publisher did not say how it ended, else a new one.

    Two at once: rows that one has locked are skipped by the other, and a batch has one lease. Dies after the commit,
    before or during the call, or before `published`: one lease later the very same batch is taken again, with the same
    id and delays, so that the service knows the call. One that is `old` is given up instead: its delays no longer fit,
    so its messages are published by another call, as their next try, unless a routing has written that already; if the
    first was taken after all, the copy is a duplicate. What its hold no longer needs is forgotten here.
    """
    by_index(tx)
    tx.execute(_FORGET_OLD_IF_OVERTAKEN, {"old": old})
    tx.execute(_GIVE_UP_OLD_BATCHES, {"old": old})
    again = tx.execute(_TAKE_A_BATCH_WHOSE_LEASE_ENDED, {"lease": lease}).all()
    if again:
        return Batch(again[0].batch, again[0].batch_at, sorted(_line(row) for row in again))
    while found := tx.execute(_LOCK_THE_NEXT, {"limit": limit}).all():
        unwanted = [_line(row) for row in found if not row.wanted]
        if unwanted:
            tx.execute(_FORGET, _keys(unwanted))
        wanted = sorted(_line(row) for row in found if row.wanted)
        if wanted:
            name = _name(wanted)
            at = tx.execute(_TAKE, _keys(wanted) | {"batch": name, "lease": lease}).scalars().all()[0]
            return Batch(name, at, wanted)
    return None


def published(tx: Tx, batch: Batch, message_ids: Sequence[str | None]) -> int:
    """Note that the service has these messages; how many were not noted before.

    Twice, as by two that published the same batch: the first stands. Dies before this commits: the batch is published
    again under the same id.
    """
    by_index(tx)
    asked = _keys(batch.lines) | {"messages": lines(message_ids), "batch": batch.id}
    return tx.execute(_PUBLISHED, asked).rowcount


def give_back(tx: Tx, batch: Batch) -> None:
    """Let the batch be taken again as soon as the bridge is used: whether its call took effect is not known."""
    by_index(tx)
    tx.execute(_GIVE_BACK, {"batch": batch.id})


def publish_again(tx: Tx, hold: HoldId) -> int | None:
    """Have a hold's message published once more; the number of the try, or None where there is nothing to repeat.

    Two at once: the key lets one through.
    """
    by_index(tx)
    found: int | None = tx.execute(_ANOTHER_TRY, {"id": hold}).scalar_one_or_none()
    return found


def backlog(tx: Tx, *, later: bool = True) -> Backlog:
    """What is not yet published; counting what waits for the horizon reads its index, which may be long."""
    due = tx.execute(_BACKLOG).one()
    waiting = tx.execute(_LATER).scalar_one() if later else 0
    return Backlog(due.due, due.oldest, tx.execute(_UNDER_WAY).scalar_one(), waiting)


def _name(batch: Sequence[Line]) -> str:
    """The batch's id follows from what it says."""
    told = "\n".join(f"{line.reference.job_id}#{line.try_}" for line in batch)
    return hashlib.sha256(told.encode()).hexdigest()[:40]


def _keys(rows: Sequence[Line]) -> dict[str, object]:
    return {
        "ids": lines(row.hold_id for row in rows),
        "versions": [row.version for row in rows],
        "tries": [row.try_ for row in rows],
    }


def _line(row: Row[tuple[object, ...]]) -> Line:
    return Line(HoldId(row.hold_id), row.version, getattr(row, "try"), row.expires_at)
