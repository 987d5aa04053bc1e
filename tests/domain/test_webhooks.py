"""What follows from an attempt, and when the next one is due."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.webhooks import (
    LADDER,
    Answered,
    Delivered,
    EndpointGone,
    Failed,
    FailureKind,
    Final,
    FinalReason,
    Made,
    NotCharged,
    Result,
    Retry,
    RetryPolicy,
    Verdict,
    judge,
    parse_retry_after,
    wait_before,
)

POLICY = RetryPolicy()
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Always(Random):
    """A source that always gives the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def answered(status: int, retry_after: timedelta | None = None) -> Answered:
    return Answered(status, "", retry_after, "203.0.113.1:443")


def failed(kind: FailureKind) -> Failed:
    return Failed(kind, "", None, sent=False)


def judged(result: Result, *, number: int = 1, age: timedelta = SECOND, spared: int = 0, half: float = 0.5,
           policy: RetryPolicy = POLICY) -> Verdict:  # fmt: skip
    return judge(result, Made(number=number, age=age, spared=spared), policy, random=Always(half))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 226, 299])
def test_every_2xx_delivers_whatever_attempt_it_is(status: int) -> None:
    for number in (1, 10, 999):
        assert judged(answered(status), number=number, age=timedelta(days=99)) == Delivered()


def test_410_disables_the_endpoint_and_keeps_the_delivery() -> None:
    assert judged(answered(410)) == EndpointGone(Retry(2.5 * SECOND, charged=True))
    assert judged(answered(410), number=10) == EndpointGone(Final(FinalReason.ATTEMPTS, charged=True))


@pytest.mark.parametrize(
    "status", [300, 301, 302, 307, 308, 400, 401, 403, 404, 408, 409, 422, 425, 500, 502, 503, 599, 600]
)
def test_every_other_status_is_tried_again_and_charged(status: int) -> None:
    assert judged(answered(status)) == Retry(2.5 * SECOND, charged=True)


def test_429_is_tried_again_and_never_charged() -> None:
    assert judged(answered(429)) == Retry(2.5 * SECOND, charged=False)
    assert judged(answered(429), number=10) == Final(FinalReason.ATTEMPTS, charged=False)


@pytest.mark.parametrize("kind", ["dns", "connect", "tls", "timeout", "reset", "protocol"])
def test_a_failure_of_the_receiver_is_tried_again_and_charged(kind: str) -> None:
    assert judged(failed(FailureKind(kind))) == Retry(2.5 * SECOND, charged=True)
    assert judged(failed(FailureKind(kind)), number=10) == Final(FinalReason.ATTEMPTS, charged=True)


@pytest.mark.parametrize("kind", [FailureKind.BLOCKED, FailureKind.OURS])
def test_a_fault_of_ours_uses_up_no_attempt_and_is_never_charged(kind: FailureKind) -> None:
    assert judged(failed(kind)) == NotCharged(15 * SECOND, kind)
    assert judged(failed(kind), number=3) == NotCharged(timedelta(minutes=15), kind)
    assert judged(failed(kind), number=30) == NotCharged(timedelta(hours=12), kind)
    assert judged(answered(500), number=30, spared=21) == Retry(timedelta(hours=12), charged=True)
    assert judged(answered(500), number=30, spared=20) == Final(FinalReason.ATTEMPTS, charged=True)


def test_a_fault_of_ours_that_lasts_ends_with_the_age() -> None:
    assert judged(failed(FailureKind.OURS), age=timedelta(days=4)) == Final(FinalReason.AGE, charged=False)


@pytest.mark.parametrize("status", [300, 302, 308, 400, 401, 404, 422, 451])
def test_an_endpoint_may_say_that_refusals_are_final(status: int) -> None:
    strict = RetryPolicy(refusals_are_final=True)
    assert judged(answered(status, HOUR), policy=strict) == Final(FinalReason.REFUSED, charged=True)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_what_may_pass_is_never_final_by_itself(status: int) -> None:
    assert isinstance(judged(answered(status), policy=RetryPolicy(refusals_are_final=True)), Retry)
    assert isinstance(judged(failed(FailureKind.DNS), policy=RetryPolicy(refusals_are_final=True)), Retry)
    assert isinstance(judged(answered(410), policy=RetryPolicy(refusals_are_final=True)), EndpointGone)


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (timedelta(0), 2.5 * SECOND),
        (2 * SECOND, 2.5 * SECOND),
        (3 * SECOND, 3 * SECOND),
        (HOUR, HOUR),
        (timedelta(days=3), HOUR),
    ],
)
def test_the_longer_wait_holds_theirs_capped_at_an_hour(asked: timedelta, wait: timedelta) -> None:
    assert judged(answered(503, asked)) == Retry(wait, charged=True)
    assert judged(answered(429, asked)) == Retry(wait, charged=False)


def test_no_attempt_starts_after_the_age_cap() -> None:
    policy = RetryPolicy(max_age=HOUR)
    assert judged(answered(500), number=2, age=timedelta(minutes=57), policy=policy) == Retry(
        timedelta(minutes=2, seconds=30), charged=True
    )
    assert judged(answered(500), number=2, age=timedelta(minutes=58), policy=policy) == Final(
        FinalReason.AGE, charged=True
    )


def test_the_ladder_is_walked_step_by_step_and_ends() -> None:
    verdicts = [judged(answered(500), number=number, half=1.0) for number in range(1, 11)]
    assert verdicts == [
        *(Retry(wait, charged=True) for wait in LADDER[1:]),
        Final(FinalReason.ATTEMPTS, charged=True),
    ]


def test_an_endpoint_may_have_its_own_ladder() -> None:
    policy = RetryPolicy(waits=(timedelta(0), SECOND), attempts=4, max_age=HOUR)
    waits = [judged(answered(500), number=number, half=1.0, policy=policy) for number in (1, 2, 3, 4)]
    assert waits == [Retry(SECOND, charged=True)] * 3 + [Final(FinalReason.ATTEMPTS, charged=True)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"waits": ()}, "waits: must be one wait or more, each from 0 to 7 days"),
        ({"waits": (-SECOND,)}, "waits: must be one wait or more, each from 0 to 7 days"),
        ({"waits": (timedelta(days=8),)}, "waits: must be one wait or more, each from 0 to 7 days"),
        ({"attempts": 0}, "attempts: must lie between 1 and 100"),
        ({"attempts": 101}, "attempts: must lie between 1 and 100"),
        ({"max_age": timedelta(0)}, "max_age: must be longer than zero and at most 30 days"),
        ({"max_age": timedelta(days=31)}, "max_age: must be longer than zero and at most 30 days"),
    ],
)
def test_a_policy_without_bounds_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        RetryPolicy(**fields)  # type: ignore[arg-type]  # a table's shorthand
    assert str(refused.value) == said


results = st.one_of(
    st.builds(answered, st.integers(200, 999), st.none() | st.timedeltas(timedelta(0), timedelta(days=9))),
    st.builds(failed, st.sampled_from(FailureKind)),
)
policies = st.builds(
    RetryPolicy,
    waits=st.lists(st.timedeltas(timedelta(0), timedelta(days=7)), min_size=1, max_size=12).map(tuple),
    attempts=st.integers(1, 100),
    max_age=st.timedeltas(SECOND, timedelta(days=30)),
    refusals_are_final=st.booleans(),
)


@given(
    result=results,
    policy=policies,
    made=st.builds(
        lambda counted, spared, age: Made(number=counted + spared, age=age, spared=spared),
        st.integers(1, 120),
        st.integers(0, 200),
        st.timedeltas(timedelta(0), timedelta(days=40)),
    ),
    seed=st.integers(),
)
def test_every_result_has_a_verdict_within_the_bounds(
    result: Result, policy: RetryPolicy, made: Made, seed: int
) -> None:
    verdict = judge(result, made, policy, random=Random(seed))
    again = verdict.then if isinstance(verdict, EndpointGone) else verdict
    if isinstance(again, Retry | NotCharged):
        asked = result.retry_after or timedelta(0) if isinstance(result, Answered) else timedelta(0)
        ours = timedelta(seconds=30) if isinstance(again, NotCharged) else timedelta(0)
        assert timedelta(0) <= again.wait <= max(policy.step(made.number + 1), min(asked, HOUR), ours)
        assert made.age + again.wait <= policy.max_age
    if isinstance(again, Retry):
        assert made.number - made.spared < policy.attempts
    if isinstance(result, Failed) and result.kind in {FailureKind.BLOCKED, FailureKind.OURS}:
        assert isinstance(verdict, NotCharged) or verdict == Final(FinalReason.AGE, charged=False)
    assert isinstance(verdict, Delivered) == (isinstance(result, Answered) and 200 <= result.status < 300)


@given(results=st.lists(results, min_size=1, max_size=6), policy=policies, seed=st.integers())
def test_a_delivery_ends_whatever_comes(results: list[Result], policy: RetryPolicy, seed: int) -> None:
    policy = replace(policy, max_age=min(policy.max_age, HOUR))
    random, age, spared = Random(seed), timedelta(0), 0
    for number, result in enumerate(cycle(results), 1):
        assert number < 5000
        assert number - spared <= policy.attempts
        match judge(result, Made(number=number, age=age, spared=spared), policy, random=random):
            case Retry(wait=wait) | EndpointGone(then=Retry(wait=wait)):
                age += wait
            case NotCharged(wait=wait):
                age, spared = age + wait, spared + 1
            case _:
                return
        assert age <= policy.max_age


def test_a_thousand_rows_that_fail_at_once_come_back_spread() -> None:
    random = Random(20_261_130)
    for attempt in range(2, len(LADDER) + 1):
        seconds = Counter(int(wait_before(attempt, POLICY, random).total_seconds()) for _ in range(1000))
        step = LADDER[attempt - 1].total_seconds()
        assert max(seconds) < step
        most = max(seconds.values()) / 1000
        assert most <= (0.30 if step < 30 else 0.05), (attempt, most)
    assert min(wait.total_seconds() for wait in LADDER[2:]) >= 30


def test_a_step_of_thirty_seconds_is_spread_as_well() -> None:
    policy = RetryPolicy(waits=(timedelta(0), timedelta(seconds=30)))
    random = Random(20_261_130)
    seconds = Counter(int(wait_before(2, policy, random).total_seconds()) for _ in range(1000))
    assert max(seconds.values()) <= 50
    assert set(seconds) == set(range(30))


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("raw", "date", "wait"),
    [
        (None, None, None),
        ("", None, None),
        ("0", None, timedelta(0)),
        ("7", None, 7 * SECOND),
        (" 120 ", None, 120 * SECOND),
        ("3600", None, HOUR),
        ("3601", None, HOUR),
        ("9" * 18, None, HOUR),
        ("9" * 5000, None, None),
        ("-1", None, None),
        ("+1", None, None),
        ("1.5", None, None),
        ("1e3", None, None),
        ("٣", None, None),
        ("soon", None, None),
        ("120, 240", None, None),
        ("Mon, 30 Nov 2026 12:00:30 GMT", None, 30 * SECOND),
        ("Monday, 30-Nov-26 12:00:30 GMT", None, 30 * SECOND),
        ("Mon Nov 30 12:00:30 2026", None, 30 * SECOND),
        ("Mon, 30 Nov 2026 13:00:30 +0100", None, 30 * SECOND),
        ("Mon, 30 Nov 2026 12:00:00 GMT", None, timedelta(0)),
        ("Mon, 30 Nov 2026 11:59:59 GMT", None, None),
        ("Tue, 01 Dec 2026 12:00:00 GMT", None, HOUR),
        ("Mon, 30 Nov 2026 10:00:30 GMT", "Mon, 30 Nov 2026 10:00:00 GMT", 30 * SECOND),
        ("Mon, 30 Nov 2026 12:00:30 GMT", "rubbish", 30 * SECOND),
        ("Mon, 99 Nov 2026 12:00:30 GMT", None, None),
        ("Fri, 31 Dec 9999 23:59:59 -2300", None, None),
        ("Mon, 30 Nov 2026 12:00:30 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("\x00", None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(raw: str | None, date: str | None, wait: timedelta | None) -> None:
    assert parse_retry_after(raw, now=NOW, date=date) == wait


@given(st.text(max_size=60), st.none() | st.text(max_size=60))
def test_no_retry_after_whatever_raises_or_asks_for_too_much(raw: str, date: str | None) -> None:
    wait = parse_retry_after(raw, now=NOW, date=date)
    assert wait is None or timedelta(0) <= wait <= HOUR
