"""Limits of size and delay: what a transport publishes of itself, held to it at the limit and one beyond."""

import json
from datetime import timedelta

from comparison.candidate import Ability, PublishRefused
from comparison.ground import expired_once, untouched
from comparison.trial import Trial
from comparison.worker import MALFORMED

BORDER = 262_144
"""256 KB in bytes: the smallest limit any candidate publishes, and the size tried where the own limit is far larger."""
SEVEN_DAYS = timedelta(seconds=604_800)
_A_SECOND = timedelta(seconds=1)


def payload(trial: Trial) -> None:
    """A body of the limit's size, and one byte more. It is no reference, so it must end as a dead letter, whole."""
    own = trial.description.payload
    size = own.value if own.value is not None and own.value <= BORDER else BORDER
    enforced = size == own.value
    at_limit, beyond = padded(size), padded(size + 1)
    trial.publish(at_limit, f"{size:,} bytes")
    outcome = trial.receive(f"{size:,} bytes")
    trial.check(
        f"{size:,} bytes arrive whole, and become a dead letter", outcome or "nothing came", passed=outcome == MALFORMED
    )
    try:
        trial.publish(beyond, f"{size + 1:,} bytes")
    except PublishRefused as refused:
        trial.step("transport", "refused", f"{size + 1:,} bytes")
        trial.check(f"{size + 1:,} bytes are refused", refused, passed=True)
        trial.check("nothing of it is delivered", "nothing came", passed=trial.drain() == 0)
    else:
        outcome = trial.receive(f"{size + 1:,} bytes")
        fits = not enforced and outcome == MALFORMED
        trial.check(
            f"{size + 1:,} bytes {'are refused' if enforced else 'arrive whole'}",
            outcome or "nothing came",
            passed=fits,
        )
        trial.note(f"Its own limit lies elsewhere: {own.text}. It was not tried at that size.")
    trial.check_own_payload()
    trial.end_timeline("at the limit, and one byte more")


def padded(size: int) -> bytes:
    """A JSON object of exactly this many bytes, written compactly."""
    return json.dumps({"padding": "x" * (size - 14)}, separators=(",", ":")).encode()


def delay_of_seven_days(trial: Trial) -> None:
    """Accepted, and kept until its end: by the transport's own clock where that can be moved, else for a moment."""
    [hold] = trial.ground.place(trial.name("hold"), lasting=SEVEN_DAYS)
    trial.publish(hold.reference, "hold", delay=SEVEN_DAYS)
    trial.check_silence("hold", "nothing comes at once")
    if trial.candidate.advance(SEVEN_DAYS - _A_SECOND * 2):
        trial.step("transport", "604,798 s pass", "hold")
        trial.check_silence("hold", "nothing comes two seconds early")
        trial.candidate.advance(_A_SECOND * 2)
        trial.worker.now = hold.expires_at
        trial.check_outcomes(["expired"], [trial.receive("hold")])
        trial.check_states({hold.id: expired_once()})
        trial.note("The transport's clock was moved seven days ahead; the hold is judged at its deadline.")
    else:
        _short_delay(trial)
        trial.check_states({hold.id: untouched()})
        trial.note("Seven days were not waited for: accepted and kept back here. A delay of one second was waited out.")
    trial.end_timeline("604,800 seconds")


def _delay_beyond(trial: Trial) -> None:
    """Publish 604,801 s ahead: refused and said, or kept to its end."""
    [hold] = trial.ground.place(trial.name("beyond"), lasting=SEVEN_DAYS + _A_SECOND)
    try:
        trial.publish(hold.reference, "beyond", delay=SEVEN_DAYS + _A_SECOND)
    except PublishRefused as refused:
        trial.step("transport", "refused", "beyond")
        trial.check("one second more is refused, and said", refused, passed=True)
        trial.check_states({hold.id: untouched()})
        trial.note("The hold waits in its table; the bridge publishes it once it is within seven days.")
        return
    limit = trial.description.delay.value
    allowed = limit is None or limit > SEVEN_DAYS.total_seconds()
    trial.check("it is within the published limit", trial.description.delay.text, passed=allowed)
    moved = trial.candidate.advance(SEVEN_DAYS)
    trial.check_silence("beyond", "nothing comes a second early" if moved else "nothing comes at once")
    trial.check_states({hold.id: untouched()})


def one_second_more(trial: Trial) -> None:
    """Beyond seven days: the transport says no or keeps it; without delays of its own, the table keeps the hold."""
    if trial.has(Ability.DELAY):
        _delay_beyond(trial)
    else:
        [hold] = trial.ground.place(trial.name("beyond"), lasting=SEVEN_DAYS + _A_SECOND)
        trial.check("no tick brings it", "nothing came", passed=trial.drain() == 0)
        trial.check_states({hold.id: untouched()})
        trial.note(
            "It has no delays: the hold waits in its table, whatever its deadline, and a sweep publishes it then."
        )
    trial.end_timeline("604,801 seconds")


def _short_delay(trial: Trial) -> None:
    """A second that can be waited for: not before its end, and then."""
    [soon] = trial.ground.overdue(trial.name("soon"))
    trial.publish(soon.reference, "soon", delay=_A_SECOND)
    trial.check_silence("soon", "a delay of 1 s: nothing at once")
    trial.check_outcomes(["expired"], [trial.receive("soon")])
    trial.check_states({soon.id: expired_once()})
