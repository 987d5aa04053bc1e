"""Deliveries that are withheld, early, out of date, about nothing, unreadable; and what must not reach a worker."""

import json
from datetime import timedelta

from comparison.bodies import as_body
from comparison.candidate import Ability, Verdict
from comparison.ground import expired_once, untouched
from comparison.trial import SILENCE, Trial
from comparison.worker import MALFORMED
from domain.addresses import check_url
from domain.errors import BadInput
from domain.identity import HoldId
from domain.references import FIELDS, Reference


def ack_withheld(trial: Trial) -> None:
    """Apply the first delivery and never answer; what comes next is the transport's own doing."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    trial.publish(hold.reference, "hold")
    first = trial.receive("hold", lambda _: Verdict.WITHHELD)
    trial.check_states({hold.id: expired_once()})
    second = trial.receive("hold")
    trial.check_outcomes(["expired", "duplicate"], [first, second])
    rest = trial.drain(most=3, patience=trial.description.comes_back + SILENCE)
    trial.check("nothing comes after the acknowledgement", f"{rest} more", passed=rest == 0)
    trial.check_states({hold.id: expired_once()})
    if second is not None:
        trial.note(f"It came back by itself: {trial.description.redelivery}.")
    trial.end_timeline("the first delivery is never acknowledged")


def early(trial: Trial) -> None:
    """Deliver before the deadline, then on it. For messages the deadline is given as the instant of judgement."""
    [hold] = trial.ground.place(trial.name("hold"))
    trial.publish(hold.reference, "hold")
    first = trial.receive("hold")
    trial.check_states({hold.id: untouched()})
    if trial.has(Ability.MESSAGES):
        trial.worker.now = hold.expires_at
        trial.note("The second delivery is judged at the deadline itself, given to the statement as its instant.")
        trial.publish(hold.reference, "hold")
    else:
        trial.ground.pass_time([hold.id], timedelta(hours=3))
    second = trial.receive("hold")
    trial.check_outcomes(["early", "expired"], [first, second])
    trial.check_expired_once_each(1)
    trial.check_states({hold.id: expired_once()})
    trial.end_timeline("early, then on time")


def renewed(trial: Trial) -> None:
    """Two versions, both past their deadline: only the newer one's message may act."""
    [first] = trial.ground.place(trial.name("hold"))
    second = trial.ground.extend(first, timedelta(hours=1))
    [now] = trial.ground.pass_time([first.id], timedelta(hours=4))
    old = Reference.to(second.id, 1, now.expires_at - timedelta(hours=1))
    seen = []
    for subject, reference in (("version 1", old), ("version 2", now.reference), ("version 1", old)):
        trial.publish(reference, subject)
        seen.append(trial.receive(subject))
    trial.check_outcomes(["stale", "expired", "stale"], seen)
    trial.check_expired_once_each(1)
    trial.check_states({first.id: expired_once(version=2)})
    trial.end_timeline("the older version's message, before and after")


def missing(trial: Trial) -> None:
    """A reference to nothing, then one to a real hold behind it."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    nobody = Reference.to(HoldId(trial.name("nobody")), 1, hold.expires_at)
    trial.publish(nobody, "nobody")
    first = trial.receive("nobody")
    trial.publish(hold.reference, "hold")
    second = trial.receive("hold")
    trial.check_outcomes(["missing", "expired"], [first, second])
    there = trial.ground.states([nobody.hold_id])
    trial.check("no such hold was made", there or "none", passed=not there)
    trial.check_states({hold.id: expired_once()})
    trial.end_timeline("a message about nothing, and the next one")


def malformed(trial: Trial) -> None:
    """Bodies that are no reference: an unknown field, another's key, no offset, a scheduler's own event."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    data = hold.reference.as_data()
    bodies = {
        "an unknown field": {**data, "retry": 3},
        "another hold's key": {**data, "job_id": "hold-expiry:other:v1:60"},
        "a time without an offset": {**data, "expected_expires_at": "2026-12-01T10:00:00"},
        "a scheduler's own event": {"id": "evt_1", "detail-type": "Scheduled Event", "detail": data},
    }
    buried = trial.ground.dead_letters()
    seen = []
    for subject, body in bodies.items():
        trial.publish(json.dumps(body).encode(), subject)
        seen.append(trial.receive(subject))
    trial.check_outcomes([MALFORMED] * len(bodies), seen)
    letters = trial.ground.dead_letters() - buried
    trial.check(f"{len(bodies)} dead letters", letters, passed=letters == len(bodies))
    trial.check_states({hold.id: untouched()})
    trial.publish(hold.reference, "hold")
    trial.check_outcomes(["expired"], [trial.receive("hold")])
    trial.check_states({hold.id: expired_once()})
    trial.end_timeline("four bodies nobody can read, and a good one")


def boundary(trial: Trial) -> None:
    """What stands between transport and worker: who calls whom, and with what."""
    [hold] = trial.ground.overdue(trial.name("hold"))
    trial.publish(hold.reference, "hold")
    trial.receive("hold")
    trial.check_states({hold.id: expired_once()})
    trial.check_own_payload()
    body = trial.worker.handled[-1].delivery.body if trial.worker.handled else b"{}"
    try:
        fields = sorted(json.loads(body))
    except (ValueError, TypeError):
        fields = ["no JSON object"]
    trial.check("four fields, ids and instants only", ", ".join(fields), passed=fields == sorted(FIELDS))
    trial.check("the body is the hold's reference", f"{len(body)} bytes", passed=_same(body, as_body(hold.reference)))
    trial.check(
        "no private push endpoint", trial.description.push or "polled", passed=_reachable(trial.description.push)
    )
    trial.end_timeline("one plain delivery")


def _same(body: bytes, published: bytes) -> bool:
    try:
        return bool(json.loads(body) == json.loads(published))
    except ValueError:
        return False


def _reachable(push: str | None) -> bool:
    """Polled, or pushed to a place that everybody on the internet can reach."""
    if push is None:
        return True
    try:
        check_url(push)
    except BadInput:
        return False
    return True
