"""Holds from elsewhere, one a line: what a line may say, and what the history it tells entails."""

import csv
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from domain.changes import Change, Kind
from domain.durations import parse_duration
from domain.errors import BadInput
from domain.holds import Status
from domain.identity import HoldId, hold_id
from domain.instants import ceil_second, parse_instant, rfc3339
from domain.terms import LONGEST_HOLD, Terms, Until, read_contacts
from domain.text import clean_label

LONGEST_LINE = 65_536
"""Bytes in one line, at most: a field has 200 characters at most."""

FIELDS = (
    "id", "resource", "customer", "expires_at", "expires_in", "status", "version", "timezone", "amount", "currency",
    "exclusive", "placed_at", "closed_at", "close_reason", "email", "phone", "locale", "leads",
)  # fmt: skip
"""What a line may say of a hold. `expires_in` stands for `expires_at` in examples and tests: `8s`, `-2h`."""

_KNOWN = frozenset(FIELDS)
_STATUSES = {status.value: status for status in Status}
_LARGEST_VERSION = 10**9
"""Far below what the column takes, so that an imported hold can still be extended."""
_OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


class BadLine(NamedTuple):
    """A line that is no hold to take, and why."""

    number: int
    problem: BadInput

    def __str__(self) -> str:
        return f"line {self.number}: {self.problem}"

    def as_data(self) -> dict[str, object]:
        """The bad line as JSON carries it."""
        return {"line": self.number, "field": self.problem.field, "cause": self.problem.cause}


class Incoming(NamedTuple):
    """A hold as a line tells it, checked. `relative` when its deadline was counted from the moment of the import."""

    line: int
    id: HoldId
    terms: Terms
    status: Status
    version: int
    expires_at: datetime
    placed_at: datetime
    closed_at: datetime | None
    close_reason: str | None
    relative: bool


Fields = Mapping[str, object]
Reader = Callable[[bytes], Fields]
"""Reads one line's fields; raises BadInput where it cannot."""


def read_json(raw: bytes) -> Fields:
    """The fields of a line that is one JSON object. `null` counts as absent.

    Raises:
        BadInput: it is no UTF-8, no JSON, no object, or names a field twice.
    """
    text = _utf8(raw)
    try:
        data = _JSON.decode(text)
    except json.JSONDecodeError as problem:
        raise BadInput("JSON", f"{problem.msg} at character {problem.colno}; write one object a line") from None
    except BadInput:
        raise
    except (ValueError, RecursionError):
        raise BadInput("JSON", "holds a number too long or a nesting too deep") from None
    if not isinstance(data, dict):
        raise BadInput("JSON", "must be an object, one hold a line")
    return data


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise BadInput(_shown(twice), "is given twice")
    return data


_JSON = json.JSONDecoder(object_pairs_hook=_once)


def csv_reader(header: bytes) -> Reader:
    """What reads the lines below this header. An empty cell counts as absent; a cell holds no line break.

    Raises:
        BadInput: the header names an unknown column, one twice, or lacks one that every hold needs.
    """
    columns = _cells(header)
    for name in columns:
        if name not in _KNOWN:
            raise _unknown(name, "column")
        if columns.count(name) > 1:
            raise BadInput(name, "is a column twice")
    for name in ("id", "resource", "customer"):
        if name not in columns:
            raise BadInput(name, "is no column of the header; every hold needs it")
    if not {"expires_at", "expires_in"} & set(columns):
        raise BadInput("expires_at", "is no column of the header; every hold needs it")

    def read(raw: bytes) -> Fields:
        cells = _cells(raw)
        if len(cells) != len(columns):
            raise BadInput("cells", f"are {len(cells)} where the header has {len(columns)}")
        return {name: _value(name, cell) for name, cell in zip(columns, cells, strict=True) if cell}

    return read


def _cells(raw: bytes) -> list[str]:
    try:
        return next(csv.reader([_utf8(raw)], strict=True))
    except csv.Error as problem:
        raise BadInput("CSV", f"{problem}; quote a cell on one line, a quote in it doubled") from None


def _value(name: str, cell: str) -> object:
    """A cell as JSON would have it; what has the wrong form stays a text, and is refused as one."""
    if name in {"amount", "version"}:
        return int(cell) if _DIGITS.fullmatch(cell) else cell
    if name == "exclusive":
        return {"true": True, "false": False}.get(cell, cell)
    return cell


def _utf8(raw: bytes) -> str:
    if len(raw) > LONGEST_LINE:
        raise BadInput("text", f"is longer than {LONGEST_LINE} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise BadInput("text", f"is not UTF-8 at byte {problem.start + 1}") from None


def read_hold(line: int, fields: Fields, now: datetime) -> Incoming:
    """The hold a line tells, judged at `now` by the database's clock.

    Its deadline may have passed; then it is expired by the next sweep. Closed holds may be told with their end.

    Raises:
        BadInput: a field is unknown, missing, of the wrong type, or contradicts another.
    """
    if not fields.keys() <= _KNOWN:
        raise _unknown(min(fields.keys() - _KNOWN), "field")
    hold = hold_id(_text(fields, "id"))
    deadline = _deadline(fields, now)
    status = _status(fields)
    terms = Terms(
        resource=_text(fields, "resource"),
        customer=_text(fields, "customer"),
        lasting=Until(deadline),
        timezone=_optional_text(fields, "timezone"),
        amount=_optional_whole(fields, "amount", "must be a whole number of minor units (cents), in digits"),
        currency=_optional_text(fields, "currency"),
        exclusive=_flag(fields, "exclusive"),
        contacts=read_contacts(
            email=_optional_text(fields, "email"),
            phone=_optional_text(fields, "phone"),
            locale=_optional_text(fields, "locale"),
            leads=_optional_text(fields, "leads"),
            timezone=_optional_text(fields, "timezone"),
        ),
    )
    closed_at = _closed_at(fields, status, deadline, now)
    return Incoming(
        line, hold, terms, status, _version(fields), deadline, _placed_at(fields, deadline, closed_at, now),
        closed_at, _close_reason(fields, status), fields.get("expires_in") is not None,
    )  # fmt: skip


def changes_of(hold: Incoming) -> list[Change]:
    """What the history of an imported hold entails: it was placed and, if it is closed, left `held`."""
    terms = hold.terms
    placed = Change(
        Kind.PLACED, hold.id, hold.version, hold.expires_at, terms.resource, terms.amount, terms.currency,
        hold.placed_at,
    )  # fmt: skip
    if hold.closed_at is None:
        return [placed]
    return [placed, placed._replace(kind=Kind(hold.status.value), at=hold.closed_at)]


def _deadline(fields: Fields, now: datetime) -> datetime:
    at, within = fields.get("expires_at"), fields.get("expires_in")
    if at is not None and within is not None:
        raise BadInput("expires_in", "stands beside expires_at; give one of them")
    asked = _instant(fields, "expires_at") if within is None else now + _signed(within)
    if asked - now > LONGEST_HOLD:
        raise BadInput("expires_at", f"{rfc3339(asked)} is more than {LONGEST_HOLD.days} days ahead")
    return ceil_second(asked)


def _signed(raw: object) -> timedelta:
    if not isinstance(raw, str):
        raise BadInput("expires_in", "must be a text like 8s or -2h")
    length = parse_duration(raw.removeprefix("-"), "expires_in")
    if length > LONGEST_HOLD:
        raise BadInput("expires_in", f"is longer than {LONGEST_HOLD.days}d")
    return -length if raw.startswith("-") else length


def _status(fields: Fields) -> Status:
    raw = fields.get("status")
    if raw is None:
        return Status.HELD
    status = _STATUSES.get(raw) if isinstance(raw, str) else None
    if status is None:
        raise BadInput("status", f"must be one of {', '.join(_STATUSES)}")
    return status


def _version(fields: Fields) -> int:
    advice = f"must be a whole number from 1 to {_LARGEST_VERSION}"
    version = _optional_whole(fields, "version", advice)
    if version is None:
        return 1
    if not 1 <= version <= _LARGEST_VERSION:
        raise BadInput("version", advice)
    return version


def _closed_at(fields: Fields, status: Status, deadline: datetime, now: datetime) -> datetime | None:
    told = fields.get("closed_at") is not None
    if status is Status.HELD:
        if told:
            raise BadInput("closed_at", "is given for a hold that is held; give its status too")
        return None
    closed = _past(fields, "closed_at", now) if told else min(now, deadline)
    if status is Status.EXPIRED and closed < deadline:
        raise BadInput("status", f"is expired, but the hold would end before its deadline {rfc3339(deadline)}")
    return closed


def _close_reason(fields: Fields, status: Status) -> str | None:
    reason = _optional_text(fields, "close_reason")
    if reason is not None and status is Status.HELD:
        raise BadInput("close_reason", "is given for a hold that is held; give its status too")
    return None if reason is None else clean_label("close_reason", reason)


def _placed_at(fields: Fields, deadline: datetime, closed: datetime | None, now: datetime) -> datetime:
    latest = deadline if closed is None else min(deadline, closed)
    if fields.get("placed_at") is None:
        return min(now, latest)
    placed = _past(fields, "placed_at", now)
    if placed > latest:
        raise BadInput("placed_at", f"is after the hold's end, {rfc3339(latest)}")
    return placed


def _past(fields: Fields, name: str, now: datetime) -> datetime:
    instant = _instant(fields, name)
    if instant > now:
        raise BadInput(name, f"{rfc3339(instant)} lies ahead of the database's clock")
    return instant


def _instant(fields: Fields, name: str) -> datetime:
    raw = fields.get(name)
    if raw is None:
        raise BadInput(name, "is missing")
    instant = parse_instant(raw, name)
    if instant < _OLDEST:
        raise BadInput(name, f"{rfc3339(instant)} lies before 1970")
    return instant


def _text(fields: Fields, name: str) -> str:
    text = _optional_text(fields, name)
    if text is None:
        raise BadInput(name, "is missing")
    return text


def _optional_text(fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise BadInput(name, "must be a text")


def _optional_whole(fields: Fields, name: str, advice: str) -> int | None:
    value = fields.get(name)
    if value is None or type(value) is int:
        return value
    raise BadInput(name, advice)


def _flag(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise BadInput(name, "must be true or false")


def _unknown(name: str, what: str) -> BadInput:
    return BadInput(_shown(name), f"is no {what} of a hold; there are {', '.join(FIELDS)}")


def _shown(name: str) -> str:
    """A name from outside, short and printable."""
    return repr(name[:40])[1:-1]
