"""What follows from one change of a hold: its effect key, its ledger entry, its event. The law, in one place."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple, assert_never

from domain.identity import (
    EffectKey,
    EventId,
    HoldId,
    cancelled_key,
    confirmed_key,
    event_id,
    expiry_key,
    extended_key,
    placed_key,
)
from domain.instants import rfc3339


class Kind(StrEnum):
    """The five changes of a hold."""

    PLACED = "placed"
    EXTENDED = "extended"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Change(NamedTuple):
    """One change as it was applied: the hold afterwards, and the instant by the database's clock."""

    kind: Kind
    hold_id: HoldId
    version: int
    expires_at: datetime
    resource: str
    amount: int | None
    currency: str | None
    at: datetime


Side = Literal["open", "close"]


def effect_key(change: Change) -> EffectKey:
    """The unique key that lets this change happen once."""
    match change.kind:
        case Kind.EXPIRED:
            return expiry_key(change.hold_id, change.version, change.expires_at)
        case Kind.PLACED:
            return placed_key(change.hold_id)
        case Kind.EXTENDED:
            return extended_key(change.hold_id, change.version)
        case Kind.CONFIRMED:
            return confirmed_key(change.hold_id)
        case Kind.CANCELLED:
            return cancelled_key(change.hold_id)
        case _:
            assert_never(change.kind)


def ledger_side(kind: Kind) -> Side | None:
    """Placing opens the money, leaving `held` closes it, extending touches none."""
    if kind is Kind.PLACED:
        return "open"
    return None if kind is Kind.EXTENDED else "close"


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class Event(NamedTuple):
    """A fact for others, with the exact bytes that every attempt will send."""

    event_id: EventId
    type: str
    body: bytes


def event_of(change: Change) -> Event:
    """The event a change makes, in Standard Webhooks' shape: type, timestamp, data.

    The data are ids and instants. The resource is the id that the caller has for what is held, passed on as given.
    """
    kind = change.kind.value
    body = {
        "type": f"reservation.{kind}",
        "timestamp": rfc3339(change.at),
        "data": {
            "reservation_id": change.hold_id,
            "hold_version": change.version,
            "resource": change.resource,
            "expires_at": rfc3339(change.expires_at),
        },
    }
    return Event(
        event_id(kind, change.hold_id, change.version),
        f"reservation.{kind}",
        _encode(body).encode(),
    )
