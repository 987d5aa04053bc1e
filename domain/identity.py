"""Names that never change: a hold's id, its cohort, and the keys that guard each of its effects."""

import re
import secrets
import zlib
from datetime import datetime, timedelta
from typing import NewType

from domain.errors import BadInput
from domain.instants import unix
from domain.reminding import Channel

HoldId = NewType("HoldId", str)
EffectKey = NewType("EffectKey", str)
EventId = NewType("EventId", str)

COHORTS = 100
_HOLD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_EVENT_ID = re.compile(r"[A-Za-z0-9_:-]{1,200}", re.ASCII)


def hold_id(raw: str, field: str = "id") -> HoldId:
    """The text as a hold's id.

    Raises:
        BadInput: it is not 1 to 64 of A-Z a-z 0-9 _ -.
    """
    if _HOLD_ID.fullmatch(raw) is None:
        raise BadInput(field, f"{raw[:70]!r} is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -")
    return HoldId(raw)


def new_hold_id() -> HoldId:
    """An id for a hold whose caller gave none."""
    return HoldId(f"h_{secrets.token_hex(10)}")


def cohort(hold: HoldId) -> int:
    """The fixed slice of holds this one belongs to, 0 to 99: crc32 of the id, modulo 100."""
    return zlib.crc32(hold.encode()) % COHORTS


def placed_key(hold: HoldId) -> EffectKey:
    """Guards that a hold is placed once."""
    return EffectKey(f"hold-placed:{hold}")


def extended_key(hold: HoldId, version: int) -> EffectKey:
    """Guards that a hold reaches each version once."""
    return EffectKey(f"hold-extended:{hold}:v{version}")


def confirmed_key(hold: HoldId) -> EffectKey:
    """Guards that a hold is confirmed once."""
    return EffectKey(f"hold-confirmed:{hold}")


def cancelled_key(hold: HoldId) -> EffectKey:
    """Guards that a hold is cancelled once."""
    return EffectKey(f"hold-cancelled:{hold}")


def expiry_key(hold: HoldId, version: int, expires_at: datetime) -> EffectKey:
    """Guards that a version of a hold expires once; also the `job_id` of every message about it."""
    return EffectKey(f"hold-expiry:{hold}:v{version}:{unix(expires_at)}")


def reminder_key(hold: HoldId, channel: Channel, expires_at: datetime, lead: timedelta) -> EffectKey:
    """Guards that a customer is told once by each channel of each deadline and lead; both in whole seconds."""
    return EffectKey(f"hold-reminder:{hold}:{channel.value}:{unix(expires_at)}:{lead // timedelta(seconds=1)}")


def event_id(kind: str, hold: HoldId, version: int) -> EventId:
    """The one identity of a fact for others; no dot in it, as Standard Webhooks asks."""
    return EventId(f"reservation-{kind}:{hold}:{version}")


def parse_event_id(raw: str, field: str = "event") -> EventId:
    """The text as an event's id, of whatever kind the event is.

    Raises:
        BadInput: it is not 1 to 200 of A-Z a-z 0-9 _ : -.
    """
    if _EVENT_ID.fullmatch(raw) is None:
        raise BadInput(field, f"{raw[:70]!r} is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -")
    return EventId(raw)
