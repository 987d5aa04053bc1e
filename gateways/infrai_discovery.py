"""Whether Infrai's discovery still tells of the calls this client makes, and what is different if not."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from domain.infrai import CAPABILITIES, Capability
from gateways.infrai_calls import Caller, Json
from gateways.infrai_errors import ContractChanged, NotThere, Told

_PLACEHOLDER = re.compile(r"/(?:\{[^/}]*\}|:[^/]+|<[^/>]*>)(?=/|$)")
_BY_HEADER = frozenset({"idempotency_key"})
"""Sent as a header instead, which the conventions name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that discovery says otherwise."""

    capability: str
    part: str
    """`method`, `path`, `available`, `params`, or `capability` where there is none."""
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.capability}: {self.part} is {self.theirs}, this client has {self.ours}"


def differences(caller: Caller, names: Iterable[str] = CAPABILITIES) -> list[Difference]:
    """Ask discovery about each of these capabilities; reads only, and needs no key.

    Raises:
        InfraiError: discovery itself gives no answer that can be read.
    """
    return [found for name in names for found in _of(caller, name)]


def ensure_unchanged(caller: Caller, name: str) -> None:
    """Refuse to make a call that discovery tells of in another way.

    Raises:
        ContractChanged: with what changed, in one line.
    """
    if found := differences(caller, [name]):
        raise ContractChanged(name, Told(None, "CONTRACT_CHANGED", "; ".join(map(str, found))))


def _of(caller: Caller, name: str) -> Iterator[Difference]:
    ours = CAPABILITIES[name]
    try:
        document = caller.document(name)
    except NotThere:
        yield Difference(name, "capability", f"{ours.method} {ours.path}", "not in discovery")
        return
    if document.get("available") is False:
        yield Difference(name, "available", "true", "false")
    if document.get("method") != ours.method:
        yield Difference(name, "method", ours.method, _shown(document.get("method")))
    if _path(document.get("path")) not in {ours.path, ours.path.removesuffix("/{}")}:
        yield Difference(name, "path", ours.path, _shown(document.get("path")))
    yield from _params(name, ours, document.get("params"))


def _params(name: str, ours: Capability, schema: Json) -> Iterator[Difference]:
    """What is sent must be known there, and what is required there must be sent."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        yield Difference(name, "params", "a JSON Schema with `properties`", "not readable")
        return
    if unknown := sorted(ours.sends - properties.keys()):
        yield Difference(
            name, "params", f"also {', '.join(unknown)}", f"only {', '.join(sorted(properties)) or 'none'}"
        )
    required = schema.get("required", [])
    required = {str(one) for one in required} if isinstance(required, list) else set()
    in_path = {"queue", "id", "job_id", "cron_id"} if "{}" in ours.path else set()
    if lacking := sorted(required - ours.sends - _BY_HEADER - in_path):
        yield Difference(name, "params", "not sent", f"required: {', '.join(lacking)}")


def _path(raw: Json) -> str | None:
    """A path with its placeholder in our spelling."""
    return _PLACEHOLDER.sub("/{}", raw) if isinstance(raw, str) else None


def _shown(raw: Json) -> str:
    return repr(raw)[:100] if raw is not None else "missing"
