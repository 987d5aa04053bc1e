"""The price table: found in public text with address and day, or unknown. Exact decimals throughout."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

from domain.errors import BadInput

UNKNOWN = "unknown"
_FIELDS = frozenset({"price", "per", "currency", "from", "read", "note"})


@dataclass(frozen=True, slots=True)
class Price:
    """What so many operations cost. `amount` None: unknown."""

    amount: Decimal | None
    per: int = 1
    currency: str | None = None
    source: str | None = None
    read: date | None = None
    note: str = ""

    def of(self, operations: Decimal) -> Decimal | None:
        """What these operations cost; unknown stays unknown, however few they are."""
        return None if self.amount is None else operations * self.amount / self.per


Prices = Mapping[tuple[str, str], Price]
"""By candidate and operation."""


def published() -> Prices:
    """The table this release ships with."""
    return read((files("comparison") / "prices.toml").read_text(encoding="utf-8"), "comparison/prices.toml", None)


def read(text: str, name: str, base: Prices | None) -> Prices:
    """A table; with a base, one that replaces some of its prices.

    Raises:
        BadInput: names file and entry: no TOML, an unknown entry or field, a price that is no decimal, a price without
            the page and day it was found on (in the table that is shipped), or more than one currency.
    """
    try:
        tables: Mapping[str, Any] = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(name, f"is no TOML: {problem}") from None
    found: dict[tuple[str, str], Price] = dict(base or {})
    for candidate, entries in tables.items():
        if not isinstance(entries, Mapping):
            raise BadInput(f"{name}: {candidate}", "must be a table of prices")
        for operation, entry in entries.items():
            where = f"{name}: {candidate}.{operation}"
            if base is not None and (candidate, operation) not in base:
                known = ", ".join(".".join(one) for one in base)
                raise BadInput(where, f"is no price of this table; there are {known}")
            found[candidate, operation] = _price(where, entry, shipped=base is None)
    currencies = {price.currency for price in found.values() if price.currency is not None}
    if len(currencies) > 1:
        raise BadInput(name, f"has more than one currency: {', '.join(sorted(currencies))}; give all in one")
    return found


def _price(where: str, entry: object, *, shipped: bool) -> Price:
    if not isinstance(entry, Mapping):
        raise BadInput(where, "must be a table with at least `price`")
    for name in entry.keys() - _FIELDS:
        raise BadInput(where, f"has no field {name!r}")
    amount, per = _amount(where, entry.get("price")), entry.get("per", 1)
    if type(per) is not int or per < 1:
        raise BadInput(where, "`per` must be a whole number from 1 on")
    day = entry.get("read")
    if day is not None and type(day) is not date:
        raise BadInput(where, "`read` must be a day like 2026-11-09")
    texts = {name: entry.get(name) for name in ("currency", "from", "note")}
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise BadInput(where, f"`{name}` must be a text")
    if amount is not None and shipped and not (texts["from"] and day):
        raise BadInput(where, "has a price, but not the page (`from`) and the day (`read`) it was found")
    return Price(amount, per, texts["currency"], texts["from"], day, texts["note"] or "")


def _amount(where: str, raw: object) -> Decimal | None:
    if raw == UNKNOWN:
        return None
    try:
        amount = Decimal(raw) if isinstance(raw, str | int | Decimal) and not isinstance(raw, bool) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or amount < 0:
        raise BadInput(where, '`price` must be a decimal like "0.20", or "unknown"')
    return amount
