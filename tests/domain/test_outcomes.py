"""Outcomes are a closed set, and a tally counts them."""

from hypothesis import given
from hypothesis import strategies as st

from domain.outcomes import Outcome, Tally

OUTCOMES = st.lists(st.sampled_from(Outcome))


def test_the_outcomes_in_the_order_in_which_they_are_said() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "expired", "missing", "duplicate", "stale", "elsewhere", "early",
    ]  # fmt: skip


def test_a_tally_shows_only_what_came_up_in_the_order_of_the_outcomes() -> None:
    tally = Tally.of([Outcome.EARLY, Outcome.EXPIRED, Outcome.EARLY, Outcome.MISSING])
    assert list(tally.as_data().items()) == [("expired", 1), ("missing", 1), ("early", 2)]
    assert Tally().as_data() == {}


@given(OUTCOMES, OUTCOMES)
def test_adding_tallies_is_counting_both(a: list[Outcome], b: list[Outcome]) -> None:
    assert (Tally.of(a) + Tally.of(b)).as_data() == Tally.of(a + b).as_data()
