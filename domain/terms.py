"""What a caller asks for when placing a hold, and the deadline that follows from it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.errors import BadInput
from domain.instants import ceil_second, rfc3339, zone_name
from domain.money import check_money
from domain.text import clean_label

LONGEST_HOLD = timedelta(days=3660)
"""No hold lasts longer than about ten years."""


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
        }
