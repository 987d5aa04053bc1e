"""Money: whole minor units, per currency, in entries that stay for ever; what is open is what is held."""

from itertools import count

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from domain.money import LARGEST
from domain.outcomes import Outcome
from tests.helpers import Desk

_numbers = count(1)

moneys = st.tuples(st.integers(1, LARGEST), st.sampled_from(["EUR", "JPY", "KWD"])) | st.none()
endings = st.sampled_from(["held", "confirmed", "cancelled", "expired"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(moneys, endings), min_size=1, max_size=6))
def test_per_currency_the_sum_of_all_entries_is_what_is_held(
    desk: Desk, asked: list[tuple[tuple[int, str] | None, str]]
) -> None:
    for money, ending in asked:
        name = f"h{next(_numbers)}"
        amount, currency = money or (None, None)
        hold = desk.placed(name, amount=amount, currency=currency)
        match ending:
            case "confirmed":
                desk.confirm(name)
            case "cancelled":
                desk.cancel(name)
            case "expired":
                assert desk.expire(hold.reference, now=hold.expires_at) == [Outcome.EXPIRED]
    held = desk.sql("""SELECT currency, sum(amount) FROM holds WHERE status = 'held' AND amount IS NOT NULL
                       GROUP BY currency ORDER BY currency""")
    open_entries = desk.sql("""SELECT currency, sum(amount) FROM ledger GROUP BY currency
                               HAVING sum(amount) <> 0 ORDER BY currency""")
    assert open_entries == held
    one_by_one = desk.sql("""SELECT h.status, sum(l.amount) - CASE h.status WHEN 'held' THEN h.amount ELSE 0 END
                             FROM holds h JOIN ledger l ON l.hold_id = h.id GROUP BY h.id""")
    assert [row for row in one_by_one if row[1] != 0] == []


def refused(desk: Desk, statement: str) -> str:
    """The message with which a statement fails, nothing being changed."""
    before = desk.everything()
    with pytest.raises(DBAPIError) as failure:
        desk.sql(statement)
    assert desk.everything() == before
    assert isinstance(failure.value.orig, psycopg.Error)
    return failure.value.orig.diag.message_primary or ""


@pytest.mark.parametrize(
    ("statement", "operation"),
    [
        ("UPDATE ledger SET amount = 1", "UPDATE"),
        ("UPDATE ledger SET reason = 'nothing' WHERE false", "UPDATE"),
        ("DELETE FROM ledger", "DELETE"),
        ("TRUNCATE ledger", "TRUNCATE"),
        ("INSERT INTO ledger TABLE ledger ON CONFLICT (hold_id, side) DO UPDATE SET amount = 7", "UPDATE"),
    ],
)  # fmt: skip
def test_an_entry_is_never_changed_or_removed(desk: Desk, statement: str, operation: str) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    assert refused(desk, statement) == f"the ledger is append-only: {operation} refused"


@pytest.mark.parametrize("side", ["open", "close"])
def test_a_hold_cannot_open_or_close_twice(desk: Desk, side: str) -> None:
    desk.placed("h", amount=1250, currency="EUR")
    desk.confirm("h")
    amount = 1250 if side == "open" else -1250
    message = refused(desk, f"INSERT INTO ledger VALUES ('h', '{side}', {amount}, 'EUR', 'again', now())")
    assert message == 'duplicate key value violates unique constraint "ledger_pkey"'


@pytest.mark.parametrize(("side", "amount"), [("open", -5), ("open", 0), ("close", 5), ("close", 0), ("other", 5)])
def test_opens_are_positive_and_closes_negative(desk: Desk, side: str, amount: int) -> None:
    message = refused(desk, f"INSERT INTO ledger VALUES ('h', '{side}', {amount}, 'EUR', 'x', now())")
    assert message == 'new row for relation "ledger" violates check constraint "ledger_side"'


def test_the_largest_amount_is_kept_to_the_last_unit(desk: Desk) -> None:
    desk.placed("h", amount=LARGEST, currency="JPY")
    desk.cancel("h")
    assert desk.sql("SELECT amount FROM ledger ORDER BY side") == [(-LARGEST,), (LARGEST,)]
