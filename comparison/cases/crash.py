"""Real consumers, each a process of its own, killed by SIGKILL at a point that is not left to chance."""

import json
import signal
import subprocess
import sys

from comparison.candidate import Ability, Doorway
from comparison.ground import expired_once, untouched
from comparison.trial import PATIENCE, SILENCE, Trial
from comparison.worker import Point
from settings import ROOT

_PATIENCE = 40.0
"""Seconds a consumer may take to start, receive its message and die."""


def consumer_killed(trial: Trial) -> None:
    """One dies before its commit, the next between commit and ack, and a third finds what they left."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    door = trial.candidate.doorway()
    trial.publish(hold.reference, "hold")
    _dies(trial, door, Point.BEFORE_COMMIT)
    trial.check_states({hold.id: untouched()})
    _dies(trial, door, Point.BEFORE_ACK)
    trial.check_states({hold.id: expired_once()})
    third = trial.receive("hold", patience=PATIENCE if trial.has(Ability.MESSAGES) else SILENCE)
    trial.check_outcomes(["duplicate"], [third])
    trial.check_expired_once_each(0)
    trial.check_states({hold.id: expired_once()})
    trial.note(f"After each death the message comes back: {trial.description.redelivery}.")
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
    command = [sys.executable, "-m", "comparison.consumer"]
    consumer = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT
    )
    try:
        _, complaint = consumer.communicate(json.dumps(order).encode(), timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        consumer.kill()
        consumer.communicate()
        trial.step("worker", "gets nothing", "hold", good=False)
        trial.check(f"a consumer is killed {point.value}", f"it got no message in {_PATIENCE:.0f} s", passed=False)
        return
    killed = consumer.returncode == -signal.SIGKILL
    last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2][:160]
    trial.step("worker", f"killed {point.value}", "hold", good=False)
    trial.check(
        f"a consumer is killed {point.value}", "SIGKILL" if killed else f"it ended otherwise: {last}", passed=killed
    )
