"""What a caller asks for when placing a hold, and the deadline that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.contacts import Contacts, check_leads
from domain.durations import parse_duration
from domain.errors import BadInput
from domain.instants import ceil_second, rfc3339, zone_name
from domain.money import check_money
from domain.text import clean_label

LONGEST_HOLD = timedelta(days=3660)
"""No hold lasts longer than about ten years."""

DEFAULT_LEADS = (timedelta(days=1),)
"""How long before its deadline a customer is reminded, where neither the terms nor the deployment say."""

CONTACTS = "contacts"
"""Where contacts stand in terms as they are kept: not at all where none were given, null once they were erased."""


def read_leads(raw: str) -> tuple[timedelta, ...]:
    """Leads as people write them: `24h,5m`.

    Raises:
        BadInput: one is no duration, or they cannot be used.
    """
    return check_leads([parse_duration(lead, "leads") for lead in raw.replace(",", " ").split()])


def read_contacts(
    *, email: str | None, phone: str | None, locale: str | None, leads: str | None, timezone: str | None
) -> Contacts | None:
    """Contacts as they were written; None where none were given.

    Raises:
        BadInput: one of them cannot be used.
    """
    if email is None and phone is None and locale is None and leads is None:
        return None
    chosen = None if leads is None else read_leads(leads)
    return Contacts(email=email, phone=phone, locale=locale, leads=chosen, timezone=timezone)


@dataclass(frozen=True, slots=True)
class For:
    """Lasting this long, counted from the moment the command is carried out."""

    length: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) < self.length <= LONGEST_HOLD:
            raise BadInput("for", f"must be longer than zero and at most {LONGEST_HOLD.days}d")

    def deadline(self, start: datetime) -> datetime:
        """The deadline in whole seconds, rounded up."""
        return ceil_second(start + self.length)

    def as_data(self) -> dict[str, float | str]:
        """As it is kept with the terms: `for`, in seconds."""
        return {"for": self.length.total_seconds()}


@dataclass(frozen=True, slots=True)
class Until:
    """Lasting until this instant."""

    instant: datetime

    def __post_init__(self) -> None:
        if self.instant.tzinfo is None:
            raise BadInput("until", f"{self.instant.isoformat()} has no zone; add an offset like +01:00 or Z")
        try:
            ceil_second(self.instant)
        except OverflowError:
            raise BadInput("until", "lies outside the calendar") from None

    def deadline(self, _start: datetime) -> datetime:
        """The deadline in whole seconds, rounded up."""
        return ceil_second(self.instant)

    def as_data(self) -> dict[str, float | str]:
        """As it is kept with the terms: `until`, in UTC."""
        return {"until": rfc3339(self.instant)}


Lasting = For | Until


def deadline_ahead(lasting: Lasting, start: datetime, now: datetime) -> datetime:
    """The deadline counted from `start`, if it lies ahead of `now` and not more than ten years.

    Raises:
        BadInput: it has passed, or is too far away.
    """
    try:
        deadline = lasting.deadline(start)
    except OverflowError:
        raise BadInput("until", "lies outside the calendar") from None
    if deadline <= now:
        raise BadInput("until", f"{rfc3339(deadline)} is not after now ({rfc3339(now.replace(microsecond=0))})")
    if deadline - now > LONGEST_HOLD + timedelta(seconds=1):
        raise BadInput("until", f"{rfc3339(deadline)} is more than {LONGEST_HOLD.days} days ahead")
    return deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is asked for. The same id with equal terms is the same hold; with others it is refused.

    Raises:
        BadInput: a text, the zone or the money cannot be used.
    """

    resource: str
    customer: str
    lasting: Lasting
    timezone: str | None = None
    amount: int | None = None
    currency: str | None = None
    exclusive: bool = False
    contacts: Contacts | None = None
    """How the customer is reminded; its zone is that of the hold."""

    def __post_init__(self) -> None:
        clean_label("resource", self.resource)
        clean_label("customer", self.customer)
        if self.timezone is not None:
            zone_name(self.timezone)
        check_money(self.amount, self.currency)

    def as_data(self) -> dict[str, object]:
        """As they are kept beside the hold and compared with a repeat."""
        return {
            "resource": self.resource,
            "customer": self.customer,
            "timezone": self.timezone,
            "amount": self.amount,
            "currency": self.currency,
            "exclusive": self.exclusive,
            **self.lasting.as_data(),
            **({} if self.contacts is None else {CONTACTS: _as_data(self.contacts)}),
        }


def _as_data(contacts: Contacts) -> dict[str, object]:
    leads = contacts.leads
    return {
        "email": contacts.email,
        "phone": contacts.phone,
        "locale": contacts.locale,
        "leads": None if leads is None else [lead.total_seconds() for lead in leads],
    }


def same_terms(kept: Mapping[str, object], asked: Terms) -> bool:
    """Whether a hold's terms as they are kept are these. Erased contacts are taken to have been the same ones."""
    told = asked.as_data()
    if CONTACTS in kept and kept[CONTACTS] is None and CONTACTS in told:
        told[CONTACTS] = None
    return kept == told
