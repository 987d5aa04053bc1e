"""The reference: what any transport carries about one expiry. Ids and instants only, the same on every path."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from domain.errors import BadInput
from domain.identity import EffectKey, HoldId, expiry_key, hold_id
from domain.instants import parse_instant, rfc3339

FIELDS = frozenset({"job_id", "reservation_id", "hold_version", "expected_expires_at"})

_LARGEST_VERSION = 2**31 - 1


class MalformedReference(BadInput):
    """A reference no hold can be found by; it is never retried."""


class Reference(NamedTuple):
    """One version of one hold, and the deadline it was published for."""

    job_id: EffectKey
    hold_id: HoldId
    version: int
    expires_at: datetime

    @classmethod
    def to(cls, hold: HoldId, version: int, expires_at: datetime) -> "Reference":
        """The reference to this version of a hold."""
        return cls(expiry_key(hold, version, expires_at), hold, version, expires_at)

    def as_data(self) -> dict[str, str | int]:
        """The four fields as they travel."""
        return {
            "job_id": self.job_id,
            "reservation_id": self.hold_id,
            "hold_version": self.version,
            "expected_expires_at": rfc3339(self.expires_at),
        }


def parse_reference(raw: object) -> Reference:
    """Read what a transport delivered.

    Raises:
        MalformedReference: a field is unknown, missing or of the wrong type, the time is naive, or `job_id` does
            not belong to the rest.
    """
    if not isinstance(raw, Mapping):
        raise MalformedReference("reference", "must be a JSON object with the four fields of a reference")
    if raw.keys() != FIELDS:
        for name in sorted(FIELDS - raw.keys()):
            raise MalformedReference(name, "is missing")
        for name in sorted(map(str, raw.keys() - FIELDS)):
            raise MalformedReference(repr(name[:70])[1:-1], "is no field of a reference")
    version = raw["hold_version"]
    if type(version) is not int or not 1 <= version <= _LARGEST_VERSION:
        raise MalformedReference("hold_version", f"must be a whole number from 1 to {_LARGEST_VERSION}")
    reservation, job_id = raw["reservation_id"], raw["job_id"]
    if not isinstance(reservation, str) or not isinstance(job_id, str):
        raise MalformedReference("job_id" if isinstance(reservation, str) else "reservation_id", "must be a text")
    try:
        hold = hold_id(reservation, "reservation_id")
        expires_at = parse_instant(raw["expected_expires_at"], "expected_expires_at")
    except BadInput as problem:
        raise MalformedReference(problem.field, problem.cause) from None
    if expires_at.microsecond:
        raise MalformedReference("expected_expires_at", "must be in whole seconds")
    reference = Reference.to(hold, version, expires_at)
    if reference.job_id != job_id:
        raise MalformedReference("job_id", f"does not belong to the rest; it would be {reference.job_id}")
    return reference
