"""Money: whole minor units of one currency, both or neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.money import DIGITS, LARGEST, check_money, format_money


@pytest.mark.parametrize(("amount", "currency"), [(None, None), (1, "EUR"), (LARGEST, "JPY"), (1250, "KWD")])
def test_a_positive_amount_with_its_currency_or_neither_is_taken(amount: int | None, currency: str | None) -> None:
    check_money(amount, currency)


@pytest.mark.parametrize(
    ("amount", "currency", "message"),
    [
        (None, "EUR", "amount: is missing beside a currency; give both or neither"),
        (1250, None, "currency: is missing beside an amount; give both or neither"),
        (0, "EUR", "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
        (-1, "EUR", "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
        (LARGEST + 1, "EUR", "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
        (2**63, "EUR", "amount: must lie between 1 and 1000000000000000 minor units (cents)"),
        (1250, "eur", "currency: 'eur' is no ISO 4217 code; write it like EUR"),
        (1250, "", "currency: '' is no ISO 4217 code; write it like EUR"),
        (1250, "XXX", "currency: 'XXX' is no ISO 4217 code; write it like EUR"),
        (1250, "BITCOIN-CASH", "currency: 'BITCOIN-' is no ISO 4217 code; write it like EUR"),
    ],
)
def test_other_money_is_refused_in_one_line(amount: int | None, currency: str | None, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_money(amount, currency)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (1250, "EUR", "12.50 EUR"),
        (5, "EUR", "0.05 EUR"),
        (0, "EUR", "0.00 EUR"),
        (-5, "EUR", "-0.05 EUR"),
        (123_456_789, "USD", "1,234,567.89 USD"),
        (1250, "JPY", "1,250 JPY"),
        (1250, "KWD", "1.250 KWD"),
        (12_500, "CLF", "1.2500 CLF"),
        (1250, "???", "1,250 ???"),
    ],
)
def test_money_is_shown_with_its_currencys_digits(amount: int, currency: str, shown: str) -> None:
    assert format_money(amount, currency) == shown


@given(st.integers(min_value=-LARGEST, max_value=LARGEST), st.sampled_from(sorted(DIGITS)))
def test_no_minor_unit_is_lost_in_showing(amount: int, currency: str) -> None:
    number, shown_currency = format_money(amount, currency).split(" ")
    assert int(number.replace(",", "").replace(".", "")) == amount
    assert shown_currency == currency


def test_every_currency_has_three_capitals_and_up_to_four_digits() -> None:
    assert all(len(code) == 3 and code.isascii() and code.isupper() for code in DIGITS)
    assert {code: DIGITS[code] for code in ("EUR", "USD", "JPY", "ISK", "KWD", "CLF")} == {
        "EUR": 2, "USD": 2, "JPY": 0, "ISK": 0, "KWD": 3, "CLF": 4,
    }  # fmt: skip
