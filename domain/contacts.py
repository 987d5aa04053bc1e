"""How a customer is reached: what is taken when a hold is placed, and how little of it a log shows."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formataddr, getaddresses
from typing import Any

import phonenumbers
from email_validator import EmailNotValidError, validate_email

from domain.durations import format_duration
from domain.errors import BadInput

LONGEST_LEAD = timedelta(days=30)
MOST_LEADS = 5

_E164 = re.compile(r"\+[1-9]\d{1,14}", re.ASCII)
_LOCALE = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|\d{3}))?", re.ASCII)
_LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_email(raw: str) -> str:
    """The address in the one form it is kept and sent in: domain in lower case, an international one in ASCII.

    Whether the domain takes mail is not asked: the provider will tell.

    Raises:
        BadInput: it is no address, or one that needs mail servers of a kind we cannot count on.
    """
    one_line("email", raw)
    try:
        checked = validate_email(raw, check_deliverability=False, allow_smtputf8=False, strict=True)
    except EmailNotValidError as problem:
        cause = str(problem).splitlines()[0].rstrip(".")
        raise BadInput("email", f"is no address: {cause}; write it like anna@example.com") from None
    return checked.ascii_email or checked.normalized


def check_phone(raw: str) -> str:
    """The number in E.164.

    Its length must fit its country's plan. Whether its range is in use is left to the provider, since ranges are opened
    more often than a deployment updates its tables.

    Raises:
        BadInput: it is no such number.
    """
    advice = "write it in E.164 like +4915112345678: plus, country code, number, no spaces"
    if _E164.fullmatch(raw) is None:
        raise BadInput("phone", f"is no international number; {advice}")
    try:
        number = phonenumbers.parse(raw)
    except phonenumbers.NumberParseException:
        raise BadInput("phone", f"has a country code that does not exist; {advice}") from None
    if not phonenumbers.is_possible_number(number):
        raise BadInput("phone", f"has too many or too few digits for its country; {advice}")
    return raw


def check_locale(raw: str) -> str:
    """The locale as `de`, `de-AT` or `zh-Hant-TW`.

    Raises:
        BadInput: it is no such tag.
    """
    match = _LOCALE.fullmatch(raw)
    if match is None:
        raise BadInput("locale", f"{raw[:40]!r} is no locale; write it like de or de-AT")
    language, script, region = match.groups()
    parts = (language.lower(), script and script.title(), region and region.upper())
    return "-".join(part for part in parts if part)


def check_leads(leads: Sequence[timedelta]) -> tuple[timedelta, ...]:
    """How long before the deadline reminders are due, the longest first.

    Raises:
        BadInput: none or too many, one twice, or one that is not of whole seconds from 1 s to 30 d.
    """
    if not 1 <= len(leads) <= MOST_LEADS:
        raise BadInput("leads", f"are {len(leads)}; give 1 to {MOST_LEADS}")
    for lead in leads:
        if not timedelta(0) < lead <= LONGEST_LEAD:
            raise BadInput("leads", f"hold {_shown(lead)}; each must be longer than zero and at most 30d")
        if lead.microseconds:
            raise BadInput("leads", f"hold {lead.total_seconds():g}s; give whole seconds")
    if len(set(leads)) < len(leads):
        raise BadInput("leads", "hold one twice; one reminder is sent for each")
    return tuple(sorted(leads, reverse=True))


def _shown(lead: timedelta) -> str:
    return format_duration(lead) if not lead.microseconds else f"{lead.total_seconds():g}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contacts:
    """How a hold's customer is reached, checked and in the one form it is kept in.

    Raises:
        BadInput: one of them cannot be used; or they cannot be used together.
    """

    email: str | None = field(default=None, repr=False)
    phone: str | None = field(default=None, repr=False)
    locale: str | None = None
    leads: tuple[timedelta, ...] | None = None
    """None: as the deployment has set."""
    timezone: str | None = None
    """The hold's own, checked elsewhere."""

    def __post_init__(self) -> None:
        self._keep("email", check_email)
        self._keep("phone", check_phone)
        self._keep("locale", check_locale)
        self._keep("leads", check_leads)
        if self.phone and self.timezone is None:
            raise BadInput("phone", "needs a timezone, since nobody is texted at night; add one like Europe/Berlin")
        if (self.leads or self.locale) and not (self.email or self.phone):
            raise BadInput("leads" if self.leads else "locale", "is for reminders; add an email or a phone")

    def _keep(self, name: str, check: Callable[[Any], object]) -> None:
        given = getattr(self, name)
        if given is not None:
            object.__setattr__(self, name, check(given))


def one_line(name: str, raw: str) -> str:
    """The text as it is, if it may stand in a header.

    Raises:
        BadInput: it holds a line break or another control character, by which a second header could be smuggled in.
    """
    if found := _LINE_ENDS.search(raw):
        raise BadInput(name, f"holds U+{ord(found.group()):04X}, which no header may; remove it")
    return raw


def credential(name: str, raw: str) -> str:
    """The secret, or the name that goes with it, as it is, if it can be sent. What it is stays unsaid.

    Raises:
        BadInput: it holds what no provider's key or password can, which was copied along with it.
    """
    if not raw.isascii():
        raise BadInput(name, "holds a character outside of ASCII, which cannot be sent; copy it anew")
    return one_line(name, raw)


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Who an email is from."""

    name: str
    """May be empty."""
    address: str

    @property
    def domain(self) -> str:
        """The address's."""
        return self.address.rpartition("@")[2]

    def __str__(self) -> str:
        return formataddr((self.name, self.address))


def check_mailbox(raw: str) -> Mailbox:
    """`Holdfast <holds@example.com>`, or the address alone.

    Raises:
        BadInput: it is neither.
    """
    one_line("from", raw)
    try:
        ((name, address),) = getaddresses([raw])
        return Mailbox(name, check_email(address))
    except ValueError:
        raise BadInput("from", f"{raw[:80]!r} is no sender; write it like Holds <holds@example.com>") from None


def mask_email(address: str) -> str:
    """Enough to tell two apart at a glance: `a***@e***.com`."""
    local, _, domain = address.rpartition("@")
    host, _, top = domain.rpartition(".")
    return f"{local[:1]}***@{host[:1]}***.{top}"


def mask_phone(number: str) -> str:
    """Where it is from, more or less, and its end: `+49***78`."""
    return f"{number[:3]}***{number[-2:]}"
