"""Costs: the formulae with exact values, and that an unknown price is never a number."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from comparison.cost import CANDIDATES, Cost, Workload, costs
from comparison.prices import Price, Prices, published, read
from comparison.registry import REGISTRY
from comparison.report.costs import as_data, plain
from domain.errors import BadInput
from settings import ROOT

LOAD = Workload(
    reservations_per_month=Decimal(1_000_000), payload_bytes=Decimal(200), retry_rate=Decimal("0.02"),
    duplicate_rate=Decimal("0.10"), fan_out=Decimal(1), audit_months=Decimal(10), poll_seconds=Decimal(1),
    consumers=Decimal(2), batch=Decimal(1),
)  # fmt: skip


def known(amount: str) -> Prices:
    """The shipped table with every price at this amount for one operation."""
    return {place: Price(Decimal(amount), currency="USD") for place in published()}


def cost_of(candidate: str, load: Workload = LOAD, prices: Prices | None = None) -> Cost:
    [found] = costs(load, published() if prices is None else prices, [candidate])
    return found


def operations(cost: Cost) -> dict[str, tuple[str, str]]:
    return {item.operation: (plain(item.operations), plain(item.for_duplicates)) for item in cost.items}


def test_every_candidate_has_its_costs() -> None:
    assert set(CANDIDATES) == set(REGISTRY)


def test_redis_counts_commands_of_messages_looks_and_searches() -> None:
    # 1,000,000 published at 1; 1,120,000 delivered at 5; 1,100,000 acknowledged at 4; 20,000 brought again at 7;
    # 2 consumers look 2,592,000 times, and search 518,400 times with 5 commands
    assert operations(cost_of("celery-redis")) == {
        "command": ("21508000", "900000"),
        "month": ("1", "0"),
        "gb_month": ("2.24", "0.2"),
    }


def test_rabbitmq_counts_a_message_published_delivered_and_acknowledged() -> None:
    assert operations(cost_of("celery-rabbitmq"))["message"] == ("3220000", "200000")


@pytest.mark.parametrize("candidate", ["celery-redis", "celery-rabbitmq", "infrai"])
def test_what_came_again_was_not_acknowledged_the_first_time(candidate: str) -> None:
    none, all_twice = (operations(cost_of(candidate, replace(LOAD, retry_rate=Decimal(rate)))) for rate in (0, 1))
    more = {name: int(all_twice[name][0]) - int(none[name][0]) for name in none if name not in {"month", "gb_month"}}
    assert (
        more
        == {
            "celery-redis": {"command": 12_000_000},  # each received once more at 5, and brought again at 7
            "celery-rabbitmq": {"message": 1_000_000},
            "infrai": {"publish": 0, "consume": 1_000_000, "ack": 0, "cron_run": 0},
        }[candidate]
    )


def test_infrai_counts_calls_and_a_batch_saves_all_but_acks() -> None:
    assert operations(cost_of("infrai")) == {
        "publish": ("1000000", "0"),
        "consume": ("6304000", "100000"),
        "ack": ("1100000", "100000"),
        "cron_run": ("43200", "0"),
        "gb_month": ("2.24", "0.2"),
    }
    batched = operations(cost_of("infrai", replace(LOAD, batch=Decimal(100))))
    assert (batched["publish"][0], batched["consume"][0], batched["ack"][0]) == ("10000", "5195200", "1100000")


def test_the_sweep_counts_ticks_and_has_no_duplicates() -> None:
    assert operations(cost_of("sweep")) == {"tick": ("2592000", "0"), "gb_month": ("2", "0")}


def test_fan_out_multiplies_messages_and_consumers() -> None:
    assert operations(cost_of("celery-rabbitmq", replace(LOAD, fan_out=Decimal(3))))["message"][0] == "9660000"


def test_money_is_exact_and_the_share_of_duplicates_stands_apart() -> None:
    cost = cost_of("celery-rabbitmq", prices=known("0.0000001"))
    # 3,220,000 messages, 1 month, 2.24 GB: 3,220,003.24 operations
    assert cost.month == Decimal("0.322000324")
    assert cost.for_duplicates == Decimal("0.02000002")
    assert cost.per_million(cost.month) == Decimal("0.322000324")
    double = cost_of("celery-rabbitmq", replace(LOAD, reservations_per_month=Decimal(2_000_000)), known("0.0000001"))
    assert double.per_million(double.for_duplicates) == Decimal("0.02000002")


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_with_the_shipped_prices_every_sum_is_unknown_and_none_is_zero(candidate: str) -> None:
    data: Any = as_data([cost_of(candidate)], published())
    [shown] = data["candidates"]
    assert (shown["month"], shown["per_million_expiries"]) == ("unknown", "unknown")
    assert shown["unknown"]
    assert shown["month_at_least"] == ("43.016" if candidate == "celery-redis" else "unknown")
    assert [item["cost"] for item in shown["items"] if item["operation"] in shown["unknown"]] == ["unknown"] * len(
        shown["unknown"]
    )


def test_each_shipped_price_names_its_page_and_its_day_and_all_others_are_unknown() -> None:
    found = {place: price for place, price in published().items() if price.amount is not None}
    assert found == {
        ("celery-redis", operation): Price(
            Decimal(amount), per, "USD", "https://upstash.com/pricing/redis", date(2026, 11, 9), found[place].note
        )
        for place, (operation, amount, per) in {
            ("celery-redis", "command"): ("command", "0.20", 100_000),
            ("celery-redis", "month"): ("month", "0", 1),
        }.items()
    }


def test_a_users_price_replaces_an_unknown_one_and_leaves_the_rest() -> None:
    prices = read('[storage.gb_month]\nprice = "0.115"\ncurrency = "USD"\n', "mine.toml", published())
    cost = cost_of("celery-redis", prices=prices)
    assert cost.month == Decimal("43.2736")
    assert cost.for_duplicates == Decimal("1.823")
    assert cost_of("infrai", prices=prices).month is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[x", "mine.toml: is no TOML: "),
        ("infrai = 3", "mine.toml: infrai: must be a table of prices"),
        ("[infrai]\npublish = 3", "mine.toml: infrai.publish: must be a table with at least `price`"),
        ("[infrai.publsh]\nprice = 1", "mine.toml: infrai.publsh: is no price of this table; there are "),
        ("[infrai.ack]\nprice = -1", 'mine.toml: infrai.ack: `price` must be a decimal like "0.20", or "unknown"'),
        ('[infrai.ack]\nprice = "free"', 'mine.toml: infrai.ack: `price` must be a decimal like "0.20", or "unknown"'),
        ("[infrai.ack]\nprice = nan", 'mine.toml: infrai.ack: `price` must be a decimal like "0.20", or "unknown"'),
        ("[infrai.ack]\nper = 0\nprice = 1", "mine.toml: infrai.ack: `per` must be a whole number from 1 on"),
        ("[infrai.ack]\nprice = 1\nprise = 1", "mine.toml: infrai.ack: has no field 'prise'"),
        (
            '[infrai.ack]\nprice = 1\nread = "today"',
            "mine.toml: infrai.ack: `read` must be a day like 2026-11-09",
        ),
        (
            '[infrai.ack]\nprice = 1\ncurrency = "EUR"',
            "mine.toml: has more than one currency: EUR, USD; give all in one",
        ),
    ],
)
def test_a_price_table_that_cannot_be_used_is_refused_by_its_entry(text: str, line: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(text, "mine.toml", published())
    assert str(refused.value).startswith(line)


def test_a_shipped_price_without_its_page_would_be_refused() -> None:
    with pytest.raises(BadInput, match="not the page"):
        read("[infrai.ack]\nprice = 1\n", "prices.toml", None)


EXAMPLE = (ROOT / "examples" / "workload.toml").read_text()


def test_the_example_is_a_workload() -> None:
    found = Workload.parse(EXAMPLE, "workload.toml")
    assert (found.duplicate_rate, found.deliveries) == (Decimal("0.10"), Decimal("1120000.00"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x", "w: is no TOML: "),
        (EXAMPLE.replace("fan_out", "# "), "w: fan_out: is missing"),
        (EXAMPLE + "topics = 3\n", "w: topics: is no field; there are reservations_per_month, "),
        (EXAMPLE.replace("retry_rate = 0.02", "retry_rate = true"), "w: retry_rate: must be a number"),
        (EXAMPLE.replace("retry_rate = 0.02", "retry_rate = -1"), "w: retry_rate: must lie between 0 and 1e15"),
        (EXAMPLE.replace("fan_out = 1", "fan_out = 1.5"), "w: fan_out: must be a whole number"),
        (EXAMPLE.replace("poll_seconds = 1", "poll_seconds = 0"), "w: poll_seconds: must lie between 0.001 and 1e15"),
        (EXAMPLE.replace("poll_seconds = 1", "poll_seconds = inf"), "w: poll_seconds: must lie between 0.001 and 1e15"),
    ],
)
def test_a_workload_that_cannot_be_used_is_refused_by_its_field(text: str, line: str) -> None:
    with pytest.raises(BadInput) as refused:
        Workload.parse(text, "w")
    assert str(refused.value).startswith(line)
