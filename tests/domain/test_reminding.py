"""What follows from an attempt to remind, row by row, and that nothing in doubt is ever called failed or sent."""

import json
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identity import HoldId, reminder_key
from domain.reminding import (
    ATTEMPTS,
    LADDER,
    Accepted,
    Again,
    Channel,
    Deferred,
    Failed,
    Made,
    Message,
    Next,
    Outcome,
    Rejected,
    Rendered,
    Sent,
    Undecided,
    Unknown,
    judge,
    wait_before,
)

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Always(Random):
    """A source that always gives the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def judged(
    outcome: Outcome, *, number: int = 1, left: timedelta = 10 * HOUR, age: timedelta = SECOND,
    window: timedelta | None = None, doubt: bool = False, half: float = 0.5,
) -> Next:  # fmt: skip
    made = Made(number=number, left=left, age=age, key_window=window, doubt=doubt)
    return judge(outcome, made, random=Always(half))


def test_the_ladder_is_the_one_in_the_docs() -> None:
    assert [wait.total_seconds() for wait in LADDER] == [10, 60, 300, 900]
    assert ATTEMPTS == 5


@pytest.mark.parametrize(
    ("number", "wait"), [(1, 5), (2, 30), (3, 150), (4, 450)]
)  # fmt: skip
def test_what_was_surely_not_accepted_is_tried_again_after_half_a_step_by_half_a_chance(number: int, wait: int) -> None:
    assert judged(Deferred("refused"), number=number) == Again(wait * SECOND)


def test_it_fails_after_the_fifth_attempt() -> None:
    assert judged(Deferred("refused"), number=5) == Failed("refused; 5 attempts were made")


def test_a_provider_is_left_alone_as_long_as_it_asks_and_no_longer_than_an_hour() -> None:
    assert judged(Deferred("429", 90 * SECOND)) == Again(90 * SECOND)
    assert judged(Deferred("429", SECOND)) == Again(5 * SECOND)
    assert judged(Deferred("429", DAY)) == Again(HOUR)


def test_no_attempt_begins_at_the_deadline_or_later() -> None:
    lapses = Failed("refused; the hold lapses before the next attempt")
    assert judged(Deferred("refused"), left=5 * SECOND) == lapses
    assert judged(Deferred("refused"), left=timedelta(0)) == lapses
    assert judged(Deferred("refused"), left=5 * SECOND + timedelta(microseconds=1)) == Again(5 * SECOND)


def test_what_is_rejected_fails_at_once() -> None:
    assert judged(Rejected("answered 400 21211")) == Failed("answered 400 21211")


def test_what_is_accepted_is_sent_whatever_came_before() -> None:
    assert judged(Accepted("SM1"), number=5, left=-DAY, age=9 * DAY, doubt=True) == Sent("SM1")


def test_an_unknown_attempt_without_a_key_waits_for_an_operator() -> None:
    assert judged(Unknown("no answer")) == Undecided(
        "no answer; this provider takes no key, so it is not sent again by itself"
    )


def test_an_unknown_attempt_with_a_key_is_repeated_only_while_the_provider_knows_it() -> None:
    assert judged(Unknown("no answer"), window=DAY) == Again(5 * SECOND)
    edge = DAY - timedelta(minutes=1) - 5 * SECOND
    assert judged(Unknown("no answer"), window=DAY, age=edge - timedelta(microseconds=1)) == Again(5 * SECOND)
    assert judged(Unknown("no answer"), window=DAY, age=edge) == Undecided(
        "no answer; the provider will not know the key any more"
    )


def test_an_unknown_attempt_ends_undecided_after_the_fifth_or_at_the_deadline() -> None:
    assert judged(Unknown("no answer"), window=DAY, number=5) == Undecided("no answer; 5 attempts were made")
    assert judged(Unknown("no answer"), window=DAY, left=SECOND) == Undecided(
        "no answer; the hold lapses before the next attempt"
    )


def test_a_refusal_after_an_unknown_attempt_settles_nothing() -> None:
    assert judged(Rejected("answered 422"), doubt=True, window=DAY) == Undecided(
        "answered 422; an earlier attempt may have been accepted"
    )
    assert judged(Deferred("refused"), doubt=True) == Undecided(
        "refused; this provider takes no key, so it is not sent again by itself"
    )
    assert judged(Deferred("429", 90 * SECOND), doubt=True, window=DAY) == Again(90 * SECOND)
    assert judged(Deferred("refused"), doubt=True, window=DAY, number=5) == Undecided("refused; 5 attempts were made")


OUTCOMES = st.sampled_from([Accepted(None), Deferred("d"), Deferred("d", HOUR), Rejected("r"), Unknown("u")])
LENGTHS = st.timedeltas(-DAY, 3 * DAY)


MADE = st.builds(
    Made, number=st.integers(1, 9), left=LENGTHS, age=LENGTHS, key_window=st.none() | LENGTHS, doubt=st.booleans()
)


@given(outcome=OUTCOMES, made=MADE, seed=st.integers())
def test_whatever_happens_nothing_in_doubt_fails_and_nothing_begins_too_late(
    outcome: Outcome, made: Made, seed: int
) -> None:
    then = judge(outcome, made, random=Random(seed))
    in_doubt = made.doubt or isinstance(outcome, Unknown)
    assert isinstance(then, Sent) == isinstance(outcome, Accepted)
    assert not (isinstance(then, Failed) and in_doubt)
    if isinstance(then, Again):
        assert made.number < ATTEMPTS
        assert then.wait < made.left
        assert not in_doubt or (made.key_window is not None and made.age + then.wait < made.key_window)


@given(attempt=st.integers(2, 9), seed=st.integers())
def test_a_wait_lies_between_nothing_and_its_step(attempt: int, seed: int) -> None:
    assert timedelta(0) <= wait_before(attempt, None, Random(seed)) <= LADDER[min(attempt - 2, 3)]


def test_a_key_names_hold_channel_deadline_and_lead() -> None:
    at = datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert reminder_key(HoldId("h_1"), Channel.SMS, at, DAY) == "hold-reminder:h_1:sms:1796115600:86400"
    assert reminder_key(HoldId("h_1"), Channel.EMAIL, at, 5 * SECOND) == "hold-reminder:h_1:email:1796115600:5"


@pytest.mark.parametrize("text", [Rendered("Süb", "Text", "<p>"), Rendered(None, "Text", None)])
def test_a_frozen_message_is_read_back_as_it_was(text: Rendered) -> None:
    message = Message("k", Channel.EMAIL, "anna@example.com", text)
    assert Message.from_data(json.loads(json.dumps(message.as_data()))) == message


def test_a_message_shows_neither_contact_nor_text() -> None:
    message = Message("k", Channel.EMAIL, "anna@example.com", Rendered("Secret", "secret", "secret"))
    assert repr(message) == "Message(key='k', channel=<Channel.EMAIL: 'email'>, text=Rendered())"


def test_other_data_is_no_message() -> None:
    data = Message("k", Channel.SMS, "+49", Rendered(None, "t", None)).as_data()
    with pytest.raises(ValueError, match="a message has a key, a channel, a recipient and a text"):
        Message.from_data(data | {"to": None})
    with pytest.raises(ValueError, match="'fax' is not a valid Channel"):
        Message.from_data(data | {"channel": "fax"})
