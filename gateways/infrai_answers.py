"""Reading what Infrai answers: each form that public material shows is taken, and the field that is none is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateways.infrai_errors import Told, Unreadable

Json = Any


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of one message. Whatever else came with it is not relied on."""

    message_id: str
    payload: Json


@dataclass(frozen=True, slots=True)
class Stats:
    """How a queue stands. None: the service does not say, or says it in another way."""

    visible: int | None
    in_flight: int | None
    delayed: int | None
    dlq: int | None
    oldest_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scheduled call."""

    run_id: str
    status: str | None
    fields: Mapping[str, Json]
    """All of it, as it came."""


@dataclass(frozen=True, slots=True)
class Job:
    """A scheduled call."""

    job_id: str
    fields: Mapping[str, Json]
    """All of it, as it came: articles leave it unread, so nothing is relied on but the id."""


def messages(capability: str, data: Json) -> list[Message]:
    """What was consumed: `items`, `messages`, or a bare list.

    Raises:
        Unreadable: none of them, or an element without `message_id` or `payload`.
    """
    place, elements = _listed(capability, data, ("items", "messages"))
    return [_message(capability, f"{place}[{number}]", element) for number, element in enumerate(elements)]


def _message(capability: str, place: str, raw: Json) -> Message:
    fields = _fields(capability, place, raw)
    if "payload" not in fields:
        raise unreadable(capability, f"{place}.payload")
    return Message(_identity(capability, place, fields, ("message_id",)), fields["payload"])


def message_id(capability: str, data: Json) -> str:
    """The id of what was published."""
    return _identity(capability, "data", _fields(capability, "data", data), ("message_id",))


def message_ids(capability: str, data: Json, expected: int) -> list[str]:
    """The ids of a batch, in its order.

    Raises:
        Unreadable: another number of them than was published, or something else than ids.
    """
    place, ids = _listed(capability, data, ("message_ids",))
    if len(ids) != expected or not all(isinstance(one, str) and one for one in ids):
        raise unreadable(capability, place)
    return [str(one) for one in ids]


def stats(capability: str, data: Json) -> Stats:
    """How a queue stands; a number that is missing or none is None."""
    fields = _fields(capability, "data", data)
    visible, in_flight, delayed, dlq = (_count(fields.get(name)) for name in ("visible", "in_flight", "delayed", "dlq"))
    age = fields.get("oldest_age_seconds")
    is_number = isinstance(age, int | float) and not isinstance(age, bool)
    return Stats(visible, in_flight, delayed, dlq, float(age or 0) if is_number else None)


def job(capability: str, data: Json, place: str = "data") -> Job:
    """A scheduled call, whose id is `job_id`, else `cron_id`, else `id`."""
    fields = _fields(capability, place, data)
    return Job(_identity(capability, place, fields, ("job_id", "cron_id", "id")), fields)


def jobs(capability: str, data: Json) -> list[Job]:
    """A list of them."""
    place, elements = _listed(capability, data, ("items",))
    return [job(capability, element, f"{place}[{number}]") for number, element in enumerate(elements)]


def run(capability: str, data: Json, place: str = "data") -> Run:
    """One run."""
    fields = _fields(capability, place, data)
    status = fields.get("status")
    run_id = _identity(capability, place, fields, ("run_id", "id"))
    return Run(run_id, status if isinstance(status, str) else None, fields)


def runs(capability: str, data: Json) -> list[Run]:
    """A list of them."""
    place, elements = _listed(capability, data, ("items",))
    return [run(capability, element, f"{place}[{number}]") for number, element in enumerate(elements)]


def unreadable(capability: str, field: str) -> Unreadable:
    """The error that names a field."""
    return Unreadable(capability, Told(200, "UNREADABLE", f"`{field}` cannot be read"), field)


def _fields(capability: str, place: str, raw: Json) -> dict[str, Json]:
    if not isinstance(raw, dict):
        raise unreadable(capability, place)
    return raw


def _listed(capability: str, data: Json, names: tuple[str, ...]) -> tuple[str, list[Json]]:
    """A list under one of these names, or bare; with its place."""
    if isinstance(data, list):
        return "data", data
    fields = _fields(capability, "data", data)
    for name in names:
        if isinstance(fields.get(name), list):
            return f"data.{name}", fields[name]
    raise unreadable(capability, f"data.{'|'.join(names)}")


def _identity(capability: str, place: str, fields: Mapping[str, Json], names: tuple[str, ...]) -> str:
    for name in names:
        if isinstance(fields.get(name), str) and fields[name]:
            return str(fields[name])
    raise unreadable(capability, f"{place}.{'|'.join(names)}")


def _count(value: Json) -> int | None:
    return value if type(value) is int else None
