"""Costs as a table of 80 columns and as JSON; a number that is not known is never shown as one."""

from collections.abc import Sequence
from decimal import Decimal

from rich.console import Console
from rich.table import Table

from comparison.cost import Cost
from comparison.prices import UNKNOWN, Prices

_WIDTH = 80


def print_costs(console: Console, costs: Sequence[Cost], prices: Prices) -> None:
    """A row a candidate; then what is unknown, and where each price comes from."""
    currency = next((price.currency for price in prices.values() if price.currency), "")
    table = Table(width=_WIDTH, title=f"a month, and a million correct expiries, in {currency}", title_justify="left")
    for name in ("candidate", "operations", "month", "per million", "by duplicates"):
        table.add_column(name, justify="left" if name == "candidate" else "right")
    for cost in costs:
        duplicates = cost.for_duplicates
        table.add_row(
            cost.candidate, f"{cost.operations:,f}", money(cost.month), money(cost.per_million(cost.month)),
            money(cost.per_million(duplicates)),
        )  # fmt: skip
    console.print(table)
    for cost in costs:
        for item in cost.items:
            told = f"{cost.candidate}: {item.operation} {grouped(item.operations)}"
            again = f", {grouped(item.for_duplicates)} of it by duplicates" if item.for_duplicates else ""
            console.print(f"{told}{again}: {money(item.cost)}", soft_wrap=True)
        if cost.unknown:
            least = "" if cost.known is None else f" (at least {money(cost.known)} a month)"
            console.print(f"{cost.candidate}: unknown are {', '.join(cost.unknown)}{least}", soft_wrap=True)
    for (candidate, operation), price in prices.items():
        if price.amount is not None:
            found = f", {price.source} read {price.read}" if price.source else ", yours"
            said = f"{candidate}.{operation}: {price.amount} {price.currency or currency} per {price.per:,}{found}"
            console.print(said, soft_wrap=True)


def as_data(costs: Sequence[Cost], prices: Prices) -> dict[str, object]:
    """Costs as JSON carries them: decimals as texts, so that nothing rounds them; what is unknown says so."""
    return {
        "candidates": [_as_data(cost) for cost in costs],
        "prices": [
            {
                "candidate": candidate,
                "operation": operation,
                "price": UNKNOWN if price.amount is None else str(price.amount),
                "per": price.per,
                "currency": price.currency,
                "from": price.source,
                "read": None if price.read is None else price.read.isoformat(),
                "note": price.note,
            }
            for (candidate, operation), price in prices.items()
        ],
    }


def _as_data(cost: Cost) -> dict[str, object]:
    duplicates = cost.for_duplicates
    return {
        "candidate": cost.candidate,
        "operations": plain(cost.operations),
        "month": exact(cost.month),
        "month_at_least": exact(cost.known),
        "unknown": cost.unknown,
        "per_million_expiries": exact(cost.per_million(cost.month)),
        "per_million_by_duplicates": exact(cost.per_million(duplicates)),
        "items": [
            {
                "operation": item.operation,
                "operations": plain(item.operations),
                "by_duplicates": plain(item.for_duplicates),
                "cost": exact(item.cost),
            }
            for item in cost.items
        ],
    }


def money(amount: Decimal | None) -> str:
    """Two places, for reading."""
    return UNKNOWN if amount is None else f"{amount:,.2f}"


def exact(amount: Decimal | None) -> str:
    """All of it."""
    return UNKNOWN if amount is None else plain(amount)


def grouped(number: Decimal) -> str:
    """All of it, with thousands set apart."""
    whole, point, rest = plain(number).partition(".")
    return f"{int(whole):,}{point}{rest}"


def plain(number: Decimal) -> str:
    """Without an exponent and without idle zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
