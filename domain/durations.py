"""Durations as people write them: `90s`, `30m`, `1h30m`, `2d`, `1w`. Elapsed time: a day is 86,400 s."""

import re
from datetime import timedelta

from domain.errors import BadInput

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile(
    r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?", re.ASCII
)


def parse_duration(raw: str, field: str = "duration") -> timedelta:
    """The duration a text means.

    Raises:
        BadInput: it is not of the form, or not longer than zero.
    """
    match = _FORM.fullmatch(raw.strip())
    if match is None or not any(match.groups()):
        raise BadInput(field, f"{raw!r} is no duration; write it like 90s, 30m, 1h30m or 2d")
    seconds = sum(float(n) * unit for n, unit in zip(match.groups(default="0"), _UNITS.values(), strict=True))
    if seconds <= 0:
        raise BadInput(field, "is zero; it must be longer than that")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise BadInput(field, f"{raw!r} is too long") from None


def parse_length(raw: str, field: str = "duration") -> timedelta:
    """The duration a text means, which may be zero: `0s`. Raises BadInput as `parse_duration`."""
    return timedelta(0) if raw.strip() in {"0", "0s"} else parse_duration(raw, field)


def parse_lengths(raw: str, field: str = "durations") -> tuple[timedelta, ...]:
    """Durations with commas between, each as `parse_length` reads it: `0s,5s,5m`."""
    return tuple(parse_length(one, field) for one in raw.split(","))


def format_duration(length: timedelta) -> str:
    """The shortest text that means this duration, in whole seconds: `1h30m`, `0s`."""
    left = round(length.total_seconds())
    sign, left = ("-", -left) if left < 0 else ("", left)
    parts = []
    for name, size in list(_UNITS.items())[1:]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{name}")
    return sign + ("".join(parts) or "0s")
