"""1,000 messages and 100 copies of them, shuffled by the experiment's seed."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from comparison.bodies import as_body
from comparison.candidate import Ability
from comparison.ground import State, expired_once
from comparison.trial import NO_MESSAGES, SILENCE, Trial
from domain.references import Reference


def thousand_shuffled(trial: Trial) -> None:
    """Each hold once, whatever comes twice and in whatever order."""
    all_of_them = f"{trial.burst:,} holds"
    messages = trial.has(Ability.MESSAGES)
    names = [trial.name(f"{number:04}") for number in range(trial.burst)]
    trial.ground.place(*names)
    holds = trial.ground.pass_time(names, timedelta(hours=3))
    references = [hold.reference for hold in holds]
    copies = trial.burst // 10
    order = shuffled(references, copies, trial.rng)
    for reference in order:
        body = as_body(reference)
        trial.candidate.publish(body)
        trial.published.append(body)
    trial.step("publisher", f"publish {len(order):,}", all_of_them) if messages else trial.note(NO_MESSAGES)
    came = trial.drain(most=len(order), patience=trial.patience if messages else SILENCE)
    more = trial.drain()
    trial.step("transport", f"{'deliver' if messages else 'ticks find'} {came + more:,}", all_of_them)
    tally = Counter(trial.worker.outcomes())
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.items()))
    trial.step("worker", told or "nothing", all_of_them)
    trial.check_expired_once_each(trial.burst)
    if messages:
        expected = f"{trial.burst:,} expired and {copies:,} duplicate"
        trial.check(
            expected, told or "nothing came", passed=tally["expired"] == trial.burst and tally["duplicate"] >= copies
        )
    states = Counter(trial.ground.states(names).values())
    good = states == Counter({expired_once(): trial.burst})
    trial.check(f"{trial.burst:,} holds are each {expired_once()}", "all are" if good else _worst(states), passed=good)
    trial.check_own_payload()
    trial.end_timeline(f"{len(order):,} messages, shuffled" if messages else all_of_them)


def shuffled(references: Sequence[Reference], copies: int, rng: Random) -> list[Reference]:
    """These and copies of so many of them, in an order that follows from `rng`."""
    order = [*references, *rng.sample(references, copies)]
    rng.shuffle(order)
    return order


def _worst(states: Counter[State]) -> str:
    return "; ".join(f"{count:,} are {state}" for state, count in states.most_common(3))
