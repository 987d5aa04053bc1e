"""How reminders stand: by channel and state, what is late, and what waits for an operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from db.engine import Tx
from db.reminder_desk import WAITING
from domain.durations import format_duration

# One pass over the table, so that its figures belong together.
_BY_CHANNEL = text(f"""
SELECT r.channel,
       count(*) FILTER (WHERE r.state = 'scheduled') AS scheduled,
       count(*) FILTER (WHERE r.state = 'claimed') AS under_way,
       count(*) FILTER (WHERE {WAITING}) AS waiting,
       count(*) FILTER (WHERE r.state = 'sent' AND recent) AS sent,
       count(*) FILTER (WHERE r.state = 'suppressed' AND recent) AS suppressed,
       count(*) FILTER (WHERE r.state = 'failed' AND recent) AS failed,
       :now - min(r.next_at) FILTER (WHERE r.state IN ('scheduled', 'claimed') AND r.next_at <= :now) AS late
FROM (SELECT *, settled_at > CAST(:now AS timestamptz) - interval '1 day' AS recent FROM reminders) AS r
GROUP BY r.channel ORDER BY r.channel
""")  # noqa: S608 - a constant of this project

_NO_GATEWAY = text("""
SELECT DISTINCT channel FROM reminders
WHERE state = 'suppressed' AND reason LIKE 'no gateway is set for %'
  AND settled_at > CAST(:now AS timestamptz) - interval '1 hour' ORDER BY channel
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """How one channel stands. `sent`, `suppressed` and `failed` are those of the last day.

    `late` is how long the oldest that is due has waited, `waiting` those that only an operator can settle.
    """

    channel: str
    scheduled: int
    under_way: int
    waiting: int
    sent: int
    suppressed: int
    failed: int
    late: timedelta | None

    def as_data(self) -> dict[str, object]:
        """As JSON carries it; the time in seconds."""
        return {
            "channel": self.channel,
            "scheduled": self.scheduled,
            "under_way": self.under_way,
            "waiting": self.waiting,
            "sent_last_day": self.sent,
            "suppressed_last_day": self.suppressed,
            "failed_last_day": self.failed,
            "late_s": None if self.late is None else round(self.late.total_seconds(), 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderStatus:
    """Every channel that has or had a reminder, and which of them lack a gateway."""

    channels: Sequence[ChannelStatus] = ()
    without_gateway: Sequence[str] = ()

    @property
    def wanted(self) -> bool:
        """Whether the lane has anything to do."""
        return any(one.scheduled or one.under_way for one in self.channels)

    def red(self, grace: timedelta) -> list[str]:
        """What is alarming, each in one line that says what to do."""
        waiting = sum(one.waiting for one in self.channels)
        late = max((one.late for one in self.channels if one.late is not None), default=timedelta(0))
        lines = [f"no gateway is set for {name}, and a reminder was dropped: set one" for name in self.without_gateway]
        if late > grace:
            wait = f"a reminder is late by {format_duration(late)}, more than {format_duration(grace)}"
            lines.append(f"{wait}: see that a worker of its lane runs, and its provider answers")
        if waiting:
            lines.append(
                f"nobody knows whether some reminders were accepted ({waiting}): see "
                "`holdfast reminders list --waiting`, then resend or leave each"
            )
        return lines


def of_all(tx: Tx, now: datetime) -> ReminderStatus:
    """How reminders stood at `now`."""
    return ReminderStatus(
        channels=tuple(ChannelStatus(**row._asdict()) for row in tx.execute(_BY_CHANNEL, {"now": now})),
        without_gateway=tuple(tx.execute(_NO_GATEWAY, {"now": now}).scalars()),
    )
