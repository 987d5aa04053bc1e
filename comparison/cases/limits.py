"""Limits of size and delay: what a transport publishes of itself, held to it at the limit and one beyond."""

import json
from datetime import timedelta

from comparison.candidate import Ability, PublishRefused
from comparison.cases.bridge import sweep_once
from comparison.ground import expired_once, untouched
from comparison.trial import SILENCE, Trial
from domain.holds import Hold

BORDER = 262_144
"""256 KB in bytes: the smallest limit any candidate publishes, and the size tried where the own limit is far larger."""
SEVEN_DAYS = timedelta(seconds=604_800)
_A_SECOND = timedelta(seconds=1)
_NOT_WAITED = "seven days were not waited for."


def payload(trial: Trial) -> None:
    """A body of the limit's size, and one byte more. It is no reference, so it must end as a dead letter, whole."""
    own = trial.description.payload
    size = own.value if own.value is not None and own.value <= BORDER else BORDER
    enforced = size == own.value
    at_limit, beyond = padded(size), padded(size + 1)
    trial.publish(at_limit, f"{size:,} bytes")
    outcome = trial.receive(f"{size:,} bytes")
    trial.check_whole(f"{size:,} bytes arrive whole, and become a dead letter", at_limit, outcome)
    try:
        trial.publish(beyond, f"{size + 1:,} bytes")
    except PublishRefused as refused:
        trial.step("transport", "refused", f"{size + 1:,} bytes")
        trial.check(f"{size + 1:,} bytes are refused", refused, passed=True)
        trial.check("nothing of it is delivered", "nothing came", passed=trial.drain() == 0)
    else:
        outcome = trial.receive(f"{size + 1:,} bytes")
        if enforced:
            trial.check(f"{size + 1:,} bytes are refused", f"taken, {outcome or 'and nothing came'}", passed=False)
        else:
            trial.check_whole(f"{size + 1:,} bytes arrive whole", beyond, outcome)
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
        trial.note(
            f"Accepted, and kept back for {SILENCE:g} s; {_NOT_WAITED} A delay of one second was tried to its end."
        )
    trial.end_timeline("604,800 seconds")


def one_second_more(trial: Trial) -> None:
    """Beyond seven days: the transport says no or keeps it; without delays of its own, the table keeps the hold."""
    [hold] = trial.ground.place(trial.name("beyond"), lasting=SEVEN_DAYS + _A_SECOND)
    if not trial.has(Ability.DELAY):
        _table_keeps(trial, hold)
    elif _refuses(trial, hold):
        _once_within_reach(trial, hold)
    else:
        _transport_keeps(trial, hold)
    trial.end_timeline("604,801 seconds")


def _refuses(trial: Trial, hold: Hold) -> bool:
    """Whether the transport says no, and who said it."""
    try:
        trial.publish(hold.reference, "beyond", delay=SEVEN_DAYS + _A_SECOND)
    except PublishRefused as refused:
        trial.step("transport", "refused", "beyond")
        trial.check("one second more is refused, and said", refused, passed=True)
        trial.check_states({hold.id: untouched()})
        return True
    return False


def _once_within_reach(trial: Trial, hold: Hold) -> None:
    """What the bridge does: the hold waits in its table for that second, and is published then."""
    [nearer] = trial.ground.pass_time([hold.id], _A_SECOND)
    trial.step("hold", "1 s passes", "beyond")
    trial.publish(nearer.reference, "beyond", delay=SEVEN_DAYS)
    trial.check_silence("beyond", "a second later it is taken, and nothing comes at once")
    trial.note("The hold waited in its table; within seven days of its deadline it was published, as the bridge does.")
    if trial.candidate.advance(SEVEN_DAYS):
        trial.step("transport", "604,800 s pass", "beyond")
        _comes_on_time(trial, nearer)


def _transport_keeps(trial: Trial, hold: Hold) -> None:
    """Kept to its end, as far as that can be seen here."""
    limit = trial.description.delay.value
    allowed = limit is None or limit > SEVEN_DAYS.total_seconds()
    trial.check("it is within the published limit", trial.description.delay.text, passed=allowed)
    moved = trial.candidate.advance(SEVEN_DAYS)
    trial.check_silence("beyond", "nothing comes a second early" if moved else "nothing comes at once")
    trial.check_states({hold.id: untouched()})
    if moved:
        trial.candidate.advance(_A_SECOND)
        _comes_on_time(trial, hold)
    else:
        trial.note(f"Accepted, and kept back for {SILENCE:g} s; {_NOT_WAITED}")


def _comes_on_time(trial: Trial, hold: Hold) -> None:
    """At the end of its delay the message is there, and is judged at the deadline."""
    trial.worker.now = hold.expires_at
    trial.check_outcomes(["expired"], [trial.receive("beyond")])
    trial.check_states({hold.id: expired_once()})


def _table_keeps(trial: Trial, hold: Hold) -> None:
    """Nothing to delay: a sweep before the deadline leaves the hold alone, one after it brings it."""
    sweep_once(trial, "beyond")
    if trial.has(Ability.MESSAGES):
        trial.check_silence("beyond", "a tick before the deadline brings nothing")
    trial.check_states({hold.id: untouched()})
    trial.ground.pass_time([hold.id], SEVEN_DAYS + _A_SECOND * 2)
    trial.step("hold", "604,802 s pass", "beyond")
    sweep_once(trial, "beyond")
    if trial.has(Ability.MESSAGES):
        trial.check_outcomes(["expired"], [trial.receive("beyond")])
    trial.check_states({hold.id: expired_once()})
    trial.note("It has no delays: the hold waits in its table, whatever its deadline. The row's deadline was moved.")


def _short_delay(trial: Trial) -> None:
    """A second that can be waited for: not before its end, and then."""
    [soon] = trial.ground.overdue(trial.name("soon"))
    trial.publish(soon.reference, "soon", delay=_A_SECOND)
    trial.check_silence("soon", "a delay of 1 s: nothing at once")
    trial.check_outcomes(["expired"], [trial.receive("soon")])
    trial.check_states({soon.id: expired_once()})
