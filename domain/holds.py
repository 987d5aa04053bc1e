"""A hold as it is read, and the closed set of answers to a command about it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from domain.contacts import mask_email, mask_phone
from domain.durations import format_duration
from domain.identity import HoldId
from domain.instants import rfc3339
from domain.references import Reference
from domain.reminding import Channel


class Status(StrEnum):
    """Where a hold stands. It leaves HELD once."""

    HELD = "held"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


LAPSED = "lapsed"
"""What readers see of a held hold from its deadline on, whether or not a sweep has run yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold as it stood at `read_at` by the database's clock. Instants are in UTC, money in minor units."""

    id: HoldId
    resource: str
    customer: str
    status: Status
    version: int
    expires_at: datetime
    timezone: str | None
    amount: int | None
    currency: str | None
    exclusive: bool
    cohort: int
    placed_at: datetime
    closed_at: datetime | None
    close_reason: str | None
    set_aside: bool
    read_at: datetime
    email: str | None = field(default=None, repr=False)
    phone: str | None = field(default=None, repr=False)
    locale: str | None = None
    leads: tuple[timedelta, ...] | None = None
    """How long before the deadline its reminders are due; None: it came without contacts."""

    @property
    def counts(self) -> bool:
        """Whether the claim on the resource still stands."""
        return self.status is Status.HELD and self.expires_at > self.read_at

    @property
    def standing(self) -> str:
        """The status as readers see it: a held hold past its deadline is `lapsed`."""
        return LAPSED if self.status is Status.HELD and not self.counts else self.status.value

    @property
    def reference(self) -> Reference:
        """What a transport carries about this version's expiry."""
        return Reference.to(self.id, self.version, self.expires_at)

    def as_data(self, *, show_contacts: bool = False) -> dict[str, object]:
        """The hold as JSON carries it, its contacts masked unless they are asked for."""
        email, phone = (self.email, self.phone) if show_contacts else self.masked
        return {
            "id": self.id,
            "resource": self.resource,
            "customer": self.customer,
            "status": self.standing,
            "version": self.version,
            "expires_at": rfc3339(self.expires_at),
            "timezone": self.timezone,
            "amount": self.amount,
            "currency": self.currency,
            "exclusive": self.exclusive,
            "cohort": self.cohort,
            "placed_at": rfc3339(self.placed_at),
            "closed_at": None if self.closed_at is None else rfc3339(self.closed_at),
            "close_reason": self.close_reason,
            "set_aside": self.set_aside,
            "email": email,
            "phone": phone,
            "locale": self.locale,
            "leads": None if self.leads is None else [format_duration(lead) for lead in self.leads],
        }

    @property
    def masked(self) -> tuple[str | None, str | None]:
        """Email and phone, enough of them to tell two apart."""
        return (
            None if self.email is None else mask_email(self.email),
            None if self.phone is None else mask_phone(self.phone),
        )


class Reason(StrEnum):
    """Why a command was refused. Nothing was changed."""

    MISSING = "missing"
    LAPSED = "lapsed"
    WRONG_VERSION = "wrong_version"
    CLOSED = "closed"
    TERMS_DIFFER = "terms_differ"
    RESOURCE_TAKEN = "resource_taken"
    ID_RETIRED = "id_retired"


@dataclass(frozen=True, slots=True)
class Done:
    """The command holds: applied now, or a repeat of what was applied before."""

    hold: Hold
    repeated: bool = False
    under_way: tuple[Channel, ...] = ()
    """Channels by which a reminder of what was changed is just being sent: the customer may still get it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The command was refused for this reason; `hold` is what stands in the way, if anything does."""

    reason: Reason
    hold: Hold | None = None


Answer = Done | Refused


def why_refused(hold: Hold | None, version: int) -> Refused:
    """The reason extend, confirm and cancel give, first match: missing, closed, lapsed, wrong version.

    A refused hold that counts and has the version asked for had lapsed when it was judged: the clock was set back.
    """
    if hold is None:
        return Refused(Reason.MISSING)
    if hold.status is not Status.HELD:
        return Refused(Reason.CLOSED, hold)
    if hold.counts and hold.version != version:
        return Refused(Reason.WRONG_VERSION, hold)
    return Refused(Reason.LAPSED, hold)
