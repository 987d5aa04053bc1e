"""Whether Infrai's discovery still tells of the calls this client makes, and what is different if not."""

import re
from collections.abc import Iterable, Iterator, Mapping
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
    return [found for name in names for found in _compared(name, _document(caller, name))]


def fields_if_unchanged(caller: Caller, name: str) -> frozenset[str]:
    """The fields that discovery knows of this call's body.

    Raises:
        ContractChanged: it tells of the call in another way; with what changed, in one line.
    """
    document = _document(caller, name)
    if found := list(_compared(name, document)):
        raise _changed(name, found)
    return _properties(document) or frozenset()


def ensure_known(name: str, body: Iterable[str], known: frozenset[str]) -> None:
    """Refuse to send a field that discovery does not know: it would be refused there, or ignored.

    Raises:
        ContractChanged: with these fields, in one line.
    """
    if unknown := frozenset(body) - known:
        raise _changed(name, [_unknown(name, unknown, known)])


def _changed(name: str, found: Iterable[Difference]) -> ContractChanged:
    return ContractChanged(name, Told(None, "CONTRACT_CHANGED", "; ".join(map(str, found))))


def _document(caller: Caller, name: str) -> Mapping[str, Json] | None:
    try:
        return caller.document(name)
    except NotThere:
        return None


def _compared(name: str, document: Mapping[str, Json] | None) -> Iterator[Difference]:
    ours = CAPABILITIES[name]
    if document is None:
        yield Difference(name, "capability", f"{ours.method} {ours.path}", "not in discovery")
        return
    if document.get("available") is False:
        yield Difference(name, "available", "true", "false")
    if document.get("method") != ours.method:
        yield Difference(name, "method", ours.method, _shown(document.get("method")))
    if _path(document.get("path")) not in {ours.path, ours.path.removesuffix("/{}")}:
        yield Difference(name, "path", ours.path, _shown(document.get("path")))
    yield from _params(name, ours, document)


def _params(name: str, ours: Capability, document: Mapping[str, Json]) -> Iterator[Difference]:
    """What is always sent must be known there, and what is required there must be sent."""
    properties = _properties(document)
    if properties is None:
        yield Difference(name, "params", "a JSON Schema with `properties`", "not readable")
        return
    if unknown := ours.sends - properties:
        yield _unknown(name, unknown, properties)
    schema = document.get("params")
    required = schema.get("required", []) if isinstance(schema, dict) else []
    required = {str(one) for one in required} if isinstance(required, list) else set()
    in_path = {"queue", "id", "job_id", "cron_id"} if "{}" in ours.path else set()
    if lacking := sorted(required - ours.sends - ours.may_send - _BY_HEADER - in_path):
        yield Difference(name, "params", "not sent", f"required: {', '.join(lacking)}")


def _properties(document: Mapping[str, Json] | None) -> frozenset[str] | None:
    schema = None if document is None else document.get("params")
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else None


def _unknown(name: str, fields: frozenset[str], known: frozenset[str]) -> Difference:
    return Difference(name, "params", f"also {', '.join(sorted(fields))}", f"only {', '.join(sorted(known)) or 'none'}")


def _path(raw: Json) -> str | None:
    """A path with its placeholder in our spelling."""
    return _PLACEHOLDER.sub("/{}", raw) if isinstance(raw, str) else None


def _shown(raw: Json) -> str:
    return repr(raw)[:100] if raw is not None else "missing"
