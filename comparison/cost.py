"""What a workload takes on each transport, in operations and money. Exact decimals; an unknown price stays unknown.

docs/comparison.md writes the same formulae down for readers.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any, Self

from comparison.prices import Price, Prices
from domain.errors import BadInput

MONTH = Decimal(30 * 86_400)
"""Seconds of a month."""
_GB = Decimal(10**9)
_MILLION = Decimal(1_000_000)
_DIGITS = 50
_SEARCH_EACH = Decimal(5)
"""Seconds between a Celery worker's two searches for what nobody acknowledged, as celeryconfig.py sets it."""
_PUBLISH, _RECEIVE, _ACK, _POLL, _SEARCH, _RESTORE = map(Decimal, (1, 5, 4, 1, 5, 7))
"""Redis commands, counted on Valkey 9.1 with kombu 5.7: LPUSH · BRPOP, then ZADD and HSET between MULTI and EXEC ·
ZREM and HDEL between MULTI and EXEC · BRPOP · SET, ZRANGE, EVALSHA, GET, DEL · WATCH, HGET, then ZREM, HDEL and RPUSH
between MULTI and EXEC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A month of reservations, and how a transport treats their messages."""

    reservations_per_month: Decimal
    payload_bytes: Decimal
    retry_rate: Decimal
    """Deliveries again because nobody acknowledged, for each message."""
    duplicate_rate: Decimal
    """Copies delivered beside it, for each message."""
    fan_out: Decimal
    """Queues that each expiry goes to."""
    audit_months: Decimal
    """How long receipts and effects are kept."""
    poll_seconds: Decimal
    """Seconds between two looks of one consumer, or two ticks."""
    consumers: Decimal
    """Consumers that look, for each queue."""
    batch: Decimal
    """Messages of one call, where a transport takes several."""

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """A workload from TOML: every field, none else.

        Raises:
            BadInput: names file and field.
        """
        try:
            given: Mapping[str, Any] = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as problem:
            raise BadInput(name, f"is no TOML: {problem}") from None
        fields = cls.__dataclass_fields__
        for field in fields:
            if field not in given:
                raise BadInput(f"{name}: {field}", "is missing")
        for field in given.keys() - fields.keys():
            raise BadInput(f"{name}: {field}", f"is no field; there are {', '.join(fields)}")
        return cls(**{field: _number(f"{name}: {field}", field, given[field]) for field in fields})

    @property
    def messages(self) -> Decimal:
        """Messages published a month."""
        return self.reservations_per_month * self.fan_out

    @property
    def deliveries(self) -> Decimal:
        """Messages delivered a month, with those that come again."""
        return self.messages * (1 + self.retry_rate + self.duplicate_rate)

    @property
    def retries(self) -> Decimal:
        """Messages brought again a month, since nobody acknowledged them."""
        return self.messages * self.retry_rate

    @property
    def acks(self) -> Decimal:
        """Acknowledgements a month: of every delivery but those that came again for want of one."""
        return self.deliveries - self.retries

    @property
    def looks(self) -> Decimal:
        """How often consumers look, or a tick comes, a month."""
        return MONTH / self.poll_seconds


@dataclass(frozen=True, slots=True)
class Item:
    """One kind of operation: how often a month, how often of it for duplicates alone, and its price."""

    operation: str
    operations: Decimal
    for_duplicates: Decimal
    price: Price

    @property
    def cost(self) -> Decimal | None:
        """A month's cost; None: unknown."""
        return self.price.of(self.operations)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a candidate takes for a workload in a month."""

    candidate: str
    items: Sequence[Item]
    expiries: Decimal

    @property
    def operations(self) -> Decimal:
        """Operations on the transport; a month of it and a gigabyte of audit trail are none."""
        return sum((item.operations for item in self.items if item.operation not in {"month", "gb_month"}), Decimal(0))

    @property
    def month(self) -> Decimal | None:
        """A month's cost; unknown as soon as one price is."""
        return _sum(item.cost for item in self.items)

    @property
    def known(self) -> Decimal | None:
        """What the known prices come to: the month costs at least this. None: not one is known."""
        parts = [item.cost for item in self.items if item.cost is not None]
        return sum(parts, Decimal(0)) if parts else None

    @property
    def unknown(self) -> list[str]:
        """The operations whose price is unknown."""
        return [item.operation for item in self.items if item.price.amount is None]

    @property
    def for_duplicates(self) -> Decimal | None:
        """The part of the month's cost that duplicates alone cause."""
        return _sum(item.price.of(item.for_duplicates) for item in self.items if item.for_duplicates)

    def per_million(self, cost: Decimal | None) -> Decimal | None:
        """A cost of this month for a million correct expiries: each reservation expires once, whatever comes twice."""
        return None if cost is None else cost * _MILLION / self.expiries


def costs(workload: Workload, prices: Prices, candidates: Sequence[str]) -> list[Cost]:
    """What each candidate takes."""
    with localcontext(prec=_DIGITS):
        return [_cost(name, workload, prices) for name in candidates]


def _cost(candidate: str, workload: Workload, prices: Prices) -> Cost:
    if candidate == "sweep":  # it has no messages that could come again
        workload = replace(workload, duplicate_rate=Decimal(0), retry_rate=Decimal(0))
    with_them = _OPERATIONS[candidate](workload) | _storage(workload)
    without = replace(workload, duplicate_rate=Decimal(0))
    base = _OPERATIONS[candidate](without) | _storage(without)
    items = [
        Item(operation, count, count - base[operation], prices[_priced(candidate, operation)])
        for operation, count in with_them.items()
    ]
    return Cost(candidate, items, workload.reservations_per_month)


def _priced(candidate: str, operation: str) -> tuple[str, str]:
    return ("storage", operation) if operation == "gb_month" else (candidate, operation)


def _redis(load: Workload) -> dict[str, Decimal]:
    idle = load.fan_out * load.consumers * (load.looks * _POLL + MONTH / _SEARCH_EACH * _SEARCH)
    carried = load.messages * _PUBLISH + load.deliveries * _RECEIVE + load.acks * _ACK + load.retries * _RESTORE
    return {"command": _whole(carried + idle), "month": Decimal(1)}


def _rabbitmq(load: Workload) -> dict[str, Decimal]:
    """Published, delivered and acknowledged are one message each; a consumer is called, it does not look."""
    return {"message": _whole(load.messages + load.deliveries + load.acks), "month": Decimal(1)}


def _infrai(load: Workload) -> dict[str, Decimal]:
    """A call may publish and consume several; it acknowledges one. Its cron ticks once a minute."""
    return {
        "publish": _whole(load.messages / load.batch),
        "consume": _whole(load.deliveries / load.batch + load.fan_out * load.consumers * load.looks),
        "ack": _whole(load.acks),
        "cron_run": _whole(MONTH / 60),
    }


def _sweep(load: Workload) -> dict[str, Decimal]:
    return {"tick": _whole(load.looks)}


_OPERATIONS: Mapping[str, Callable[[Workload], dict[str, Decimal]]] = {
    "celery-redis": _redis,
    "celery-rabbitmq": _rabbitmq,
    "infrai": _infrai,
    "sweep": _sweep,
}

CANDIDATES = tuple(_OPERATIONS)


def _storage(load: Workload) -> dict[str, Decimal]:
    """Gigabytes kept in the steady state: the reference of each delivery's receipt, for as long as it is kept."""
    return {"gb_month": load.deliveries * load.payload_bytes * load.audit_months / _GB}


def _sum(parts: Any) -> Decimal | None:
    total = Decimal(0)
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _whole(count: Decimal) -> Decimal:
    """Operations are whole; a begun one counts."""
    return count.to_integral_value(ROUND_CEILING)


_RATES = frozenset({"retry_rate", "duplicate_rate"})
_WHOLE = frozenset({"reservations_per_month", "fan_out", "consumers", "batch"})


def _number(where: str, field: str, raw: object) -> Decimal:
    if isinstance(raw, bool) or not isinstance(raw, int | Decimal):
        raise BadInput(where, "must be a number")
    number = Decimal(raw)
    least = Decimal(0) if field in _RATES or field in {"audit_months", "payload_bytes"} else Decimal("0.001")
    if field in _WHOLE:
        least = Decimal(1)
        if number != number.to_integral_value():
            raise BadInput(where, "must be a whole number")
    if not number.is_finite() or not least <= number <= Decimal(10**15):
        raise BadInput(where, f"must lie between {least} and 1e15")
    return number
