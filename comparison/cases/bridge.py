"""A reservation beyond every delay: it waits in its table until a tick of the candidate's own scheduler finds it."""

from collections.abc import Sequence
from datetime import timedelta

from comparison.candidate import Ability
from comparison.ground import expired_once, untouched
from comparison.trial import Trial
from domain.paths import Path
from domain.references import Reference
from tasks.app import policy
from tasks.sweep import Swept, sweep

_EIGHT_DAYS = timedelta(days=8)
_TICK = 20.0
"""Seconds a scheduler that starts anew may take to its first tick."""


class IntoTransport:
    """A lane whose messages are the candidate's, one reference each."""

    def __init__(self, trial: Trial, subject: str) -> None:
        self._trial, self._subject = trial, subject

    def depth(self) -> int:
        """A trial takes what it publishes: nothing waits."""
        return 0

    def publish(self, run: int | None, path: Path, references: Sequence[Reference]) -> None:  # noqa: ARG002 - a lane's
        """Publish these."""
        for reference in references:
            self._trial.publish(reference, self._subject)


def later_reservation(trial: Trial) -> None:
    """Two ticks, and eight days between them that the row is told of."""
    [hold] = trial.ground.place(trial.name("hold"), lasting=_EIGHT_DAYS)
    early = _tick(trial, "a tick eight days early")
    trial.check("it publishes nothing", _told(early), passed=early == Swept())
    if trial.has(Ability.MESSAGES):
        trial.check_silence("hold", "nothing comes")
    trial.check_states({hold.id: untouched()})
    trial.ground.pass_time([hold.id], _EIGHT_DAYS + timedelta(minutes=1))
    trial.step("hold", "8 days pass", "hold")
    late = _tick(trial, "a tick after the deadline")
    if trial.has(Ability.MESSAGES):
        trial.check("it publishes one reference", _told(late), passed=late is not None and late.published == 1)
        trial.check_outcomes(["expired"], [trial.receive("hold")])
    trial.check_expired_once_each(1)
    trial.check_states({hold.id: expired_once()})
    trial.note(f"Ticks: {trial.description.cron}. The row's deadline was moved; eight days were not waited for.")
    trial.end_timeline("two ticks of the candidate's own scheduler")


def _tick(trial: Trial, what: str) -> Swept | None:
    """At the next tick, run the one bounded sweep it asks for."""
    done: list[Swept] = []
    came = trial.candidate.tick(lambda: done.append(sweep_once(trial, "hold")), _TICK)
    trial.check(f"{what} comes", "it came" if came else f"none in {_TICK:.0f} s", passed=came)
    return done[0] if done else None


def sweep_once(trial: Trial, subject: str) -> Swept:
    """One bounded sweep into the transport. A candidate without messages sweeps by itself, and publishes nothing."""
    trial.step("transport", "tick", subject)
    if trial.has(Ability.MESSAGES):
        return sweep(trial.ground.db, Path.SWEEP, policy(), IntoTransport(trial, subject), apart=timedelta(0))
    trial.receive(subject)
    return Swept()


def _told(swept: Swept | None) -> str:
    return "no tick" if swept is None else f"{swept.published} published"
