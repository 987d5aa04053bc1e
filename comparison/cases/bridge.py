"""A reservation beyond every delay: it waits in its table until a tick of the candidate's own scheduler finds it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from comparison.candidate import Ability
from comparison.ground import expired_once, untouched
from comparison.trial import Trial
from db import cohorts
from domain.holds import Hold
from domain.identity import HoldId
from domain.identity import cohort as cohort_of
from domain.paths import Path
from domain.references import Reference, parse_reference
from gateways.infrai_terms import Outgoing
from settings import settings
from tasks.app import policy
from tasks.bridging import Bridge
from tasks.sweep import sweep

_EIGHT_DAYS = timedelta(days=8)
_TICK = 20.0
"""Seconds a scheduler that starts anew may take to its first tick."""
_BEFORE_THE_DEADLINE = timedelta(days=6)
"""When a tick finds it within the horizon, where the transport's clock can be moved over the rest."""
_SOON = timedelta(seconds=3)
"""The same, where the rest has to be waited for."""
_A_MINUTE = timedelta(minutes=1)


def later_reservation(trial: Trial) -> None:
    """By the bridge where the transport has delays; else by the sweep, after the deadline."""
    if trial.has(Ability.DELAY):
        _by_the_bridge(trial)
    else:
        _by_the_sweep(trial)
    trial.end_timeline("ticks of the candidate's own scheduler")


def _by_the_bridge(trial: Trial) -> None:
    """`bridge.publish` at each tick: nothing beyond the horizon, then one message with the rest of the time to wait."""
    name = trial.name("hold")
    with _on_the_bridge(trial, name):
        [hold] = trial.ground.place(name, lasting=_EIGHT_DAYS)
        bridge = _bridge(trial)
        _check_tick(trial, "a tick eight days early", 0, lambda: _publish_once(trial, bridge))
        movable = trial.candidate.advance(timedelta(0))
        left = _BEFORE_THE_DEADLINE if movable else _SOON
        [hold] = _let_pass(trial, hold, _EIGHT_DAYS - left)
        _check_tick(trial, "a tick within seven days", 1, lambda: _publish_once(trial, bridge))
        if movable:
            trial.check_silence("hold", "nothing comes before its time")
            trial.candidate.advance(left)
            trial.step("transport", "6 days pass", "hold")
            trial.worker.now = hold.expires_at
        trial.check_outcomes(["expired"], [trial.receive("hold")])
    trial.check_expired_once_each(1)
    trial.check_states({hold.id: expired_once()})
    waited = "the transport's clock was moved over the last six" if movable else "its last 3 s were waited for"
    trial.note(f"Ticks: {trial.description.cron}. Each ran `bridge.publish`. The row's deadline was moved; {waited}.")


def _by_the_sweep(trial: Trial) -> None:
    """Two ticks, and eight days between them that the row is told of."""
    [hold] = trial.ground.place(trial.name("hold"), lasting=_EIGHT_DAYS)
    _check_tick(trial, "a tick eight days early", 0, lambda: sweep_once(trial, "hold"))
    trial.check_states({hold.id: untouched()})
    _let_pass(trial, hold, _EIGHT_DAYS + _A_MINUTE)
    _check_tick(trial, "a tick after the deadline", 1, lambda: sweep_once(trial, "hold"))
    if trial.has(Ability.MESSAGES):
        trial.check_outcomes(["expired"], [trial.receive("hold")])
    trial.check_expired_once_each(1)
    trial.check_states({hold.id: expired_once()})
    trial.note(
        f"Ticks: {trial.description.cron}. It has no delays, so each ran the sweep. The row's deadline was moved; "
        "eight days were not waited for."
    )


def _check_tick(trial: Trial, what: str, messages: int, run: Callable[[], str | None]) -> None:
    """Wait for the candidate's next tick, run this at it, and count what was published; `run` gives what failed."""
    before = len(trial.published)
    failed: list[str | None] = []
    came = trial.candidate.tick(lambda: failed.append(run()), _TICK)
    trial.check(f"{what} comes", "it came" if came else f"none in {_TICK:.0f} s", passed=came)
    if trial.has(Ability.MESSAGES):
        seen = len(trial.published) - before
        told = f"{seen} published" if failed in ([], [None]) else f"{seen} published; {failed[0]}"
        trial.check(f"{what}: {messages} published", told, passed=failed == [None] and seen == messages)
    if trial.has(Ability.MESSAGES) and not messages:
        trial.check_silence("hold", "nothing comes")


def _let_pass(trial: Trial, hold: Hold, by: timedelta) -> list[Hold]:
    moved = trial.ground.pass_time([hold.id], by)
    trial.step("hold", f"{by.days} days pass", "hold")
    return moved


# -- what runs at a tick ----------------------------------------------------------------------------------------------


def sweep_once(trial: Trial, subject: str) -> None:
    """One bounded sweep into the transport. A candidate without messages sweeps by itself, and publishes nothing."""
    trial.step("transport", "tick", subject)
    if trial.has(Ability.MESSAGES):
        sweep(trial.ground.db, Path.SWEEP, policy(), IntoTransport(trial, subject), apart=timedelta(0))
    else:
        trial.receive(subject)


def _publish_once(trial: Trial, bridge: Bridge) -> str | None:
    """What a tick of the bridge does; what went wrong, if anything did."""
    trial.step("transport", "tick", "hold")
    return bridge.publish(apart=timedelta(0)).error


class IntoTransport:
    """What the sweep's lane and the bridge's queue are here: messages of the candidate's, one reference each."""

    def __init__(self, trial: Trial, subject: str) -> None:
        self._trial, self._subject = trial, subject

    def depth(self) -> int:
        """A trial takes what it publishes: nothing waits."""
        return 0

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:  # noqa: ARG002 - a lane's
        """Publish these."""
        for reference in references:
            self._trial.publish(reference, self._subject)

    def at_once(self) -> int:
        """One message is all there is."""
        return 1

    def publish_batch(self, queue: str, outgoing: Sequence[Outgoing], *, intent: str) -> list[str | None]:  # noqa: ARG002 - a queue's
        """Publish these, each with its delay; other trials' holds of the same cohort are none of this one's."""
        for one in outgoing:
            reference = parse_reference(one.payload)
            if reference.hold_id.startswith(self._trial.prefix):
                self._trial.publish(reference, self._subject, delay=one.delay)
        return [None] * len(outgoing)


def _bridge(trial: Trial) -> Bridge:
    """The bridge itself, publishing into the candidate; of its client, publishing asks nothing but `publish_batch`."""
    client: Any = IntoTransport(trial, "hold")
    return Bridge(
        db=trial.ground.db, client=client, queue="", bounds=policy(), worker="experiment",
        lease=settings().bridge_lease, budget=settings().run_budget,
    )  # fmt: skip


@contextmanager
def _on_the_bridge(trial: Trial, name: str) -> Iterator[None]:
    """Route this hold's cohort to the bridge's path, and back."""
    cohort = [cohort_of(HoldId(name))]
    cohorts.route(trial.ground.db, cohort, Path.INFRAI)
    try:
        yield
    finally:
        cohorts.route(trial.ground.db, cohort, Path.SWEEP)
