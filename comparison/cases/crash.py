"""Real consumers, each a process of its own, killed by SIGKILL at a point that is not left to chance."""

import signal
import subprocess
from contextlib import suppress

from comparison.candidate import Doorway
from comparison.ground import expired_once, untouched
from comparison.processes import end, is_ready, start
from comparison.trial import Trial
from comparison.worker import Point

_STARTS_WITHIN = 60.0
"""Seconds a consumer may take to start."""
_DIES_WITHIN = 3
"""Times the patience of a trial that it may take then to receive its message and die."""


def consumer_killed(trial: Trial) -> None:
    """One dies before its commit, the next between commit and ack, and a third finds what they left."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    door = trial.candidate.doorway()
    trial.publish(hold.reference, "hold")
    _dies(trial, door, Point.BEFORE_COMMIT)
    trial.check_states({hold.id: untouched()})
    _dies(trial, door, Point.BEFORE_ACK)
    trial.check_states({hold.id: expired_once()})
    third = trial.receive("hold")
    trial.check_outcomes(["duplicate"], [third])
    trial.check_expired_once_each(0)
    trial.check_states({hold.id: expired_once()})
    if trial.passed:
        trial.note(f"After each death it came back: {trial.description.redelivery}.")
    trial.end_timeline("two consumers killed, a third finds what they left")


def _dies(trial: Trial, door: Doorway, point: Point) -> None:
    """Start a consumer that kills itself at this point, and see it dead."""
    order = {
        "module": door.module,
        "address": dict(door.address),
        "database": trial.ground.db.engine.url.render_as_string(hide_password=False),
        "name": trial.prefix,
        "dies": point.value,
    }
    patience = _DIES_WITHIN * trial.patience
    consumer = start("comparison.consumer", order)
    ready = is_ready(consumer, _STARTS_WITHIN)
    with suppress(subprocess.TimeoutExpired):
        consumer.wait(patience if ready else 0)
    ended = consumer.returncode
    words = end(consumer)
    match ended:
        case None:
            seen = f"it got no message in {patience:.0f} s" if ready else f"it did not start in {_STARTS_WITHIN:.0f} s"
        case -9:
            seen = "SIGKILL"
        case _:
            seen = f"it ended otherwise: {words}"
    trial.step("worker", f"killed {point}" if ended == -signal.SIGKILL else "gets nothing", "hold", good=False)
    trial.check(f"a consumer is killed {point}", seen, passed=ended == -signal.SIGKILL)
