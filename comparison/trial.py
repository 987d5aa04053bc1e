"""One trial: a case tried once with one candidate. It acts, keeps the time of each act, and checks."""

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from comparison.bodies import as_body
from comparison.candidate import Ability, Candidate, Delivery, Description, Verdict
from comparison.ground import Ground, State
from comparison.result import Check, Step, Timeline
from comparison.worker import MALFORMED, ExpiryWorker, Handled
from domain.references import Reference

SILENCE = 0.4
"""Seconds after which a message that must not come is taken not to come."""
NO_MESSAGES = (
    "It has no messages: where others are delivered one, a tick reads the rows that are due, in its own order."
)


@dataclass
class Trial:
    """The bench of one trial. `prefix` begins the id of each hold it places, so that trials share a database."""

    candidate: Candidate
    ground: Ground
    prefix: str
    rng: random.Random
    burst: int = 1000
    """Messages of the shuffled case; a tenth of them come twice."""
    patience: float = 12.0
    """Seconds a message may take that must come: several times any redelivery here."""
    description: Description = field(init=False)
    worker: ExpiryWorker = field(init=False)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.description = self.candidate.describe()
        self.worker = self.new_worker()
        self._steps: list[Step] = []
        self._named: dict[str, str] = {}
        self._subjects: dict[bytes, str] = {}
        self._began = time.monotonic()

    # -- acting -------------------------------------------------------------------------------------------------------

    def new_worker(self) -> ExpiryWorker:
        """A consumer with nothing handled yet."""
        return ExpiryWorker(self.ground.db, self.prefix)

    def name(self, what: str, subject: str | None = None) -> str:
        """The id of a hold of this trial. `subject` is what it is called where it is told of, unless that is `what`."""
        name = f"{self.prefix}-{what}"
        self._named[name] = subject or what
        return name

    def has(self, ability: Ability) -> bool:
        """Whether the candidate has it."""
        return ability not in self.description.lacks

    def publish(self, what: Reference | bytes, subject: str, *, delay: timedelta = timedelta(0)) -> None:
        """Publish one message.

        Raises:
            PublishRefused: the transport says no.
        """
        body = what if isinstance(what, bytes) else as_body(what)
        self.candidate.publish(body, delay)
        self.published.append(body)
        self._subjects[_canonical(body)] = subject
        if not self.has(Ability.MESSAGES):
            self.note(NO_MESSAGES)
            return
        wait = f", delay {delay.total_seconds():,.0f} s" if delay else ""
        self.step("publisher", f"publish{wait}", subject)

    def receive(
        self,
        subject: str,
        verdict: Callable[[Handled], Verdict] = lambda _: Verdict.ACK,
        *,
        patience: float | None = None,
    ) -> str | None:
        """Deliver the next message and say what became of it; None where none came."""
        before = len(self.worker.handled)
        self.worker.verdict = verdict
        came = self.candidate.deliver(self.worker, self.patience if patience is None else patience)
        if not came or len(self.worker.handled) == before:
            self._tell_silence(subject)
            return None
        handled = self.worker.handled[-1]
        self._tell_delivery(handled, verdict(handled))
        return handled.outcome

    def drain(self, *, most: int = 10_000, patience: float = SILENCE) -> int:
        """Deliver until nothing comes; how many came. Not a step each: for many messages."""
        self.worker.verdict = lambda _: Verdict.ACK
        count = 0
        while count < most and self.candidate.deliver(self.worker, patience):
            count += 1
        return count

    def _tell_silence(self, subject: str) -> None:
        if self.has(Ability.MESSAGES):
            self.step("transport", "nothing comes", subject)
        else:
            self.step("transport", "a tick finds nothing due", "")

    def _tell_delivery(self, handled: Handled, verdict: Verdict) -> None:
        """By the body that came: an order of the transport's own must show as what it was."""
        subject = self._subject_of(handled.delivery.body)
        if self.has(Ability.MESSAGES):
            self.step("transport", "deliver again" if handled.delivery.again else "deliver", subject)
            self.step("worker", f"{handled.outcome}, {verdict}", subject)
        else:
            self.step("transport", "a tick finds it", subject)
            self.step("worker", handled.outcome, subject)

    def _subject_of(self, body: bytes) -> str:
        """As it was published, or else by the hold that it names."""
        known = self._subjects.get(_canonical(body))
        return known or self._named.get(_hold_named_in(body), "another body")

    # -- noting -------------------------------------------------------------------------------------------------------

    def step(self, lane: str, what: str, subject: str, *, good: bool = True) -> None:
        """Keep the time of an act."""
        self._steps.append(Step((time.monotonic() - self._began) * 1000, lane, what, subject, good))

    def end_timeline(self, title: str) -> None:
        """Close the acts since the last call under this title; the next ones start at zero again."""
        if self._steps:
            self.timelines.append(Timeline(title, tuple(self._steps)))
        self._steps = []
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Something a reader should know that is neither good nor bad; said once."""
        if text not in self.notes:
            self.notes.append(text)

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self, what: str, seen: object, *, passed: bool) -> bool:
        """Something that must hold, and what was seen of it."""
        self.checks.append(Check(what, passed, str(seen)))
        return passed

    def check_silence(self, subject: str, what: str) -> None:
        """Nothing comes for a moment."""
        outcome = self.receive(subject, patience=SILENCE)
        self.check(what, "nothing came" if outcome is None else outcome, passed=outcome is None)

    def check_states(self, expected: Mapping[str, State]) -> None:
        """Each hold is as expected: status, version, effects, ledger and events."""
        states = self.ground.states(expected)
        for name, state in expected.items():
            label = name.removeprefix(f"{self.prefix}-")
            self.check(f"{label} is {state}", states.get(name, "not there"), passed=states.get(name) == state)

    def check_outcomes(self, expected: Sequence[str], seen: Sequence[str | None]) -> None:
        """Each delivery had this outcome; only where it is messages that are delivered."""
        if self.has(Ability.MESSAGES):
            self.check(f"outcomes: {', '.join(expected)}", _listed(seen), passed=list(seen) == list(expected))

    def check_whole(self, what: str, body: bytes, outcome: str | None) -> None:
        """What came last is this body, with nothing lost of it, and was unreadable."""
        came = self.worker.handled[-1].delivery.body if outcome is not None else b""
        seen = "nothing came" if outcome is None else f"{len(came):,} bytes, {outcome}"
        self.check(what, seen, passed=outcome == MALFORMED and _canonical(came) == _canonical(body))

    def check_expired_once_each(self, count: int) -> None:
        """So many deliveries changed a hold, all told."""
        seen = self.worker.expired()
        self.check(f"{count:,} transition{'' if count == 1 else 's'}", f"{seen:,}", passed=seen == count)

    def check_own_payload(self) -> None:
        """What reached the worker is what was published, byte for byte or value for value: nobody wraps it."""
        known = {_canonical(body) for body in self.published}
        foreign = [h.delivery for h in self.worker.handled if _canonical(h.delivery.body) not in known]
        seen = "nothing else" if not foreign else f"{len(foreign)} other, like {_shown(foreign[0])}"
        self.check("the worker sees our payload and nobody else's", seen, passed=not foreign)

    @property
    def passed(self) -> bool:
        """Whether everything checked holds; a trial that checked nothing has shown nothing."""
        return bool(self.checks) and all(check.passed for check in self.checks)


def _canonical(body: bytes) -> bytes:
    """A transport may carry JSON as a value; spaces and the order of fields are not its payload."""
    try:
        return json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return body


def _hold_named_in(body: bytes) -> str:
    try:
        return str(json.loads(body)["reservation_id"])
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""


def _shown(delivery: Delivery) -> str:
    return ascii(delivery.body[:80].decode("utf-8", "replace"))


def _listed(seen: Iterable[str | None]) -> str:
    return ", ".join("nothing came" if one is None else one for one in seen) or "none"
