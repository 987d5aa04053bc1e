"""Instants: always with a zone, kept in UTC, deadlines in whole seconds."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from domain.errors import BadInput

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)
"""The form, zone or not. Python alone would take more, and each version of it something else."""


def parse_instant(raw: object, field: str) -> datetime:
    """The instant an RFC 3339 text means, in UTC.

    Raises:
        BadInput: it is no such text, has no offset, or lies outside the calendar.
    """
    if not isinstance(raw, str):
        raise BadInput(field, "must be a text like 2026-12-01T10:00:00+01:00")
    try:
        instant = datetime.fromisoformat(raw.upper() if _RFC3339.fullmatch(raw) else "")
    except ValueError:
        raise BadInput(field, f"{raw[:40]!r} is no time; write it like 2026-12-01T10:00:00+01:00") from None
    if instant.tzinfo is None:
        raise BadInput(field, f"{raw!r} has no zone; add an offset like +01:00 or Z")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise BadInput(field, f"{raw!r} lies outside the calendar") from None


def ceil_second(instant: datetime) -> datetime:
    """The instant in whole seconds, rounded up: no hold is ever shorter than what was asked."""
    if instant.microsecond == 0:
        return instant
    return instant.replace(microsecond=0) + timedelta(seconds=1)


def rfc3339(instant: datetime) -> str:
    """An instant in UTC as `2026-12-01T09:00:00Z`, with a fraction only where there is one."""
    return _written(instant.astimezone(UTC))


@lru_cache(maxsize=4096)
def _written(utc: datetime) -> str:
    """Kept for the next: a chunk has few instants. Only in UTC, since two that look equal elsewhere may differ."""
    return utc.isoformat().replace("+00:00", "Z")


def unix(instant: datetime) -> int:
    """Whole seconds since 1970; the instant must be in whole seconds."""
    return int(instant.timestamp())


_ZONES = available_timezones() - {"localtime", "Factory"}
"""Not the host's own zone, which is another one elsewhere, nor the mark of a host that has none."""

_OFFSET_ZONE = re.compile(r"Etc/GMT[+-](?!0$)\d+")
"""Offsets under the name of zones, with the sign turned round: Etc/GMT+5 is 5 hours *behind* UTC."""


def zone_name(raw: str) -> str:
    """The IANA name, if there is such a zone.

    Raises:
        BadInput: an unknown name, or a fixed offset, which does not know daylight saving.
    """
    if raw not in _ZONES or _OFFSET_ZONE.fullmatch(raw):
        advice = "an offset is no zone" if raw[:1] in {"+", "-"} or raw in _ZONES else "no such zone"
        raise BadInput("timezone", f"{raw[:40]!r}: {advice}; use an IANA name like Europe/Berlin")
    return raw


def in_zone(instant: datetime, zone: str | None) -> datetime:
    """The same instant on the wall clock of a zone (UTC without one)."""
    return instant.astimezone(ZoneInfo(zone) if zone else UTC)
