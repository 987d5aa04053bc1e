"""When a scheduled call is due: five-field expressions in a time zone (U23).

Days follow the rule of Vixie cron: with both a day of the month and a day of the week, either will do. A local time
that does not exist is skipped; one that comes twice is used once, the first time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from domain.errors import BadInput
from domain.instants import zone_name

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(?:\*|([0-9a-z]{1,3})(?:-([0-9a-z]{1,3}))?)(?:/([0-9]{1,3}))?", re.ASCII)
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_FARTHEST = timedelta(days=366 * 9)
"""29 February, on any day of the week the rule may ask for, comes up within so long."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """An expression, read."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    zone: str

    @classmethod
    def parse(cls, expression: str, zone: str) -> "Schedule":
        """Read an expression.

        Raises:
            BadInput: it is none of five fields, never comes up, or the zone is unknown.
        """
        words = expression.lower().split()
        if len(words) != len(_FIELDS):
            raise BadInput("cron_expr", f"has {len(words)} fields; it has five: minute hour day month weekday")
        minutes, hours, days, months, weekdays = (
            _field(word, name, low, high) for word, (name, low, high) in zip(words, _FIELDS, strict=True)
        )
        either = not words[2].startswith("*") and not words[4].startswith("*")
        sundays = frozenset(day % 7 for day in weekdays)
        found = cls(minutes, hours, days, months, sundays, either, zone_name(zone))
        if found.after(datetime(2024, 1, 1, tzinfo=UTC)) is None:
            raise BadInput("cron_expr", "names a day that no year has")
        return found

    def after(self, instant: datetime) -> datetime | None:
        """The next time after an instant, in UTC; None if there is none."""
        zone = ZoneInfo(self.zone)
        begin = instant.astimezone(zone).replace(tzinfo=None)
        times = [time(hour, minute) for hour, minute in product(sorted(self.hours), sorted(self.minutes))]
        day = begin.date()
        while day - begin.date() < _FARTHEST:
            for local in times if self._on(day) else ():
                found = _once(datetime.combine(day, local), zone)
                if found is not None and found > instant:
                    return found
            day += timedelta(days=1)
        return None

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either_day else in_month and in_week


def _once(local: datetime, zone: ZoneInfo) -> datetime | None:
    """The instant of a local time; the first of two, and None where a clock jumps over it."""
    found = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return found if found.astimezone(zone).replace(tzinfo=None, fold=0) == local else None


def _field(word: str, name: str, low: int, high: int) -> frozenset[int]:
    """The numbers one field stands for."""
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise BadInput("cron_expr", f"has {part[:20]!r} as its {name}; use *, a number, a-b, */n or a list of them")
        first, last, step = match.groups()
        begin = low if first is None else _number(first, name, low, high)
        end = high if first is None else begin if last is None else _number(last, name, low, high)
        if end < begin or step == "0" or (step and first is not None and last is None):
            raise BadInput("cron_expr", f"has {part[:20]!r} as its {name}, which is no range")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(word: str, name: str, low: int, high: int) -> int:
    names = {"month": {m: n for n, m in enumerate(_MONTHS, 1)}, "day of the week": {d: n for n, d in enumerate(_DAYS)}}
    known = names.get(name, {})
    value = known.get(word, int(word) if word.isdigit() else -1)
    if not low <= value <= high:
        raise BadInput("cron_expr", f"has {word!r} as its {name}; it goes from {low} to {high}")
    return value
