"""Any sequence of commands, messages and time on a real database ends where a small model says it does.

Deadlines lie whole hours ahead and time passes in steps of 61 minutes, so that no answer hangs on a second: time passes
by moving what is held into the past.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from comparison.ground import age
from db import expiry, holds
from db.engine import Database
from domain.errors import BadInput
from domain.holds import Answer, Done, Reason, Refused
from domain.identity import HoldId, expiry_key
from domain.outcomes import Outcome
from domain.paths import Path
from domain.references import Reference
from domain.terms import For, Lasting, Terms, Until
from tests.helpers import Desk, carrier

STEP = timedelta(minutes=61)
GRACE = timedelta(minutes=5, seconds=30)
HOUR = timedelta(hours=1)
LEAP_DAY = datetime(2024, 2, 29, tzinfo=UTC)

names = st.sampled_from(["a", "b", "c"])
hours = st.integers(1, 4).map(lambda n: n * HOUR)
lags = st.sampled_from([0, 0, 0, 0, 1, -1])
"""Which version a command names: mostly the present one."""
moneys = st.sampled_from([(None, None), (1250, "EUR"), (700, "JPY")])
picks = st.lists(st.tuples(names, lags), min_size=1, max_size=5)

_examples = count(1)


@dataclass
class Known:
    """What the model knows of one hold."""

    terms: Terms
    history: dict[int, datetime]
    """Version → its deadline."""
    status: str = "held"
    keys: set[str] = field(default_factory=set)

    @property
    def version(self) -> int:
        return max(self.history)

    @property
    def deadline(self) -> datetime:
        return self.history[self.version]


class Machine(RuleBasedStateMachine):
    """Commands on three holds of one example, each with an id of its own."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.desk = Desk(database)
        self.prefix = f"x{next(_examples)}-"
        self.known: dict[HoldId, Known] = {}
        self.driver = Path.SWEEP
        self.move(Path.SWEEP)

    @initialize(money=moneys)
    def begin_with_two(self, money: tuple[int | None, str | None]) -> None:
        self.place("a", HOUR, money, exclusive=True)
        self.place("b", 2 * HOUR, (1250, "EUR"), exclusive=False)

    def id(self, name: str) -> HoldId:
        return HoldId(self.prefix + name)

    def now(self) -> datetime:
        with self.desk.database.transaction() as tx:
            return holds.clock(tx)

    def version(self, name: str, lag: int) -> int:
        hold = self.known.get(self.id(name))
        return max(1, (hold.version if hold else 1) - lag)

    def why_not(self, name: str, version: int) -> Reason | None:
        """The reason to refuse a command about this version, if there is one."""
        hold = self.known.get(self.id(name))
        if hold is None:
            return Reason.MISSING
        if hold.status != "held":
            return Reason.CLOSED
        if hold.deadline <= self.now():
            return Reason.LAPSED
        return None if hold.version == version else Reason.WRONG_VERSION

    @rule(name=names, length=hours, money=moneys, exclusive=st.booleans())
    def place(self, name: str, length: timedelta, money: tuple[int | None, str | None], *, exclusive: bool) -> None:
        hold, (amount, currency) = self.id(name), money
        terms = Terms(
            resource=self.prefix + "seat", customer="acme", lasting=For(length), amount=amount, currency=currency,
            exclusive=exclusive,
        )  # fmt: skip
        before = self.known.get(hold)
        holder = next((k for k in self.known.values() if k.terms.exclusive and k.status == "held"), None)
        counting = holder is not None and holder.deadline > self.now()
        with self.desk.database.transaction() as tx:
            answer = holds.place(tx, hold, terms, carrier("place"))
        if before is not None:
            expect(answer, None if before.terms == terms else Reason.TERMS_DIFFER, repeated=before.terms == terms)
        elif exclusive and counting:
            expect(answer, Reason.RESOURCE_TAKEN)
        else:
            expect(answer, None)
            assert isinstance(answer, Done)
            self.known[hold] = Known(terms, {1: answer.hold.expires_at}, keys={f"hold-placed:{hold}"})
            if exclusive and holder is not None:
                self.closed(next(name for name, k in self.known.items() if k is holder), "expired")

    @rule(name=names, lag=lags, length=hours)
    def extend_for(self, name: str, lag: int, length: timedelta) -> None:
        version = self.version(name, lag)
        hold = self.known.get(self.id(name))
        start = None if hold is None else hold.history.get(version)
        self.extend(name, version, For(length), None if start is None else start + length)

    @rule(name=names, lag=lags, by=st.integers(-2, 2))
    def extend_until(self, name: str, lag: int, by: int) -> None:
        hold = self.known.get(self.id(name))
        deadline = self.now().replace(microsecond=0) + HOUR if hold is None else hold.deadline + by * HOUR
        self.extend(name, self.version(name, lag), Until(deadline), deadline)

    def extend(self, name: str, version: int, lasting: Lasting, deadline: datetime | None) -> None:
        hold, why = self.known.get(self.id(name)), self.why_not(name, version)
        if why is None and deadline is not None and deadline <= self.now():
            with pytest.raises(BadInput, match="is not after now"):
                self.desk.extend(self.id(name), version, lasting)
            return
        answer = self.desk.extend(self.id(name), version, lasting)
        if hold is not None and hold.version == version + 1 and hold.deadline == deadline:
            expect(answer, None, repeated=True)
            return
        expect(answer, why)
        if hold is not None and why is None:
            assert deadline is not None
            hold.history[version + 1] = deadline
            hold.keys.add(f"hold-extended:{self.id(name)}:v{version + 1}")

    @rule(name=names, lag=lags, confirm=st.booleans())
    def close(self, name: str, lag: int, *, confirm: bool) -> None:
        version = self.version(name, lag)
        hold, why = self.known.get(self.id(name)), self.why_not(name, version)
        answer = (self.desk.confirm if confirm else self.desk.cancel)(self.id(name), version)
        status = "confirmed" if confirm else "cancelled"
        repeated = hold is not None and hold.status == status and hold.version == version
        expect(answer, None if repeated else why, repeated=repeated)
        if why is None:
            self.closed(self.id(name), status)

    def closed(self, hold: HoldId, status: str) -> None:
        known = self.known[hold]
        assert known.status == "held"
        known.status = status
        expired = status == "expired"
        known.keys.add(expiry_key(hold, known.version, known.deadline) if expired else f"hold-{status}:{hold}")

    @rule(picks=picks, path=st.sampled_from([None, Path.SWEEP, Path.SWEEP, Path.INFRAI, Path.RESCUE]))
    def deliver(self, picks: list[tuple[str, int]], path: Path | None) -> None:
        """A message about these versions, some of them twice, stale, early or about no hold."""
        references = [self.reference(name, self.version(name, lag)) for name, lag in picks]
        expected = self.expected(references, path)
        with self.desk.database.transaction() as tx:
            told = expiry.expire(tx, references, carrier(path=path), grace=GRACE)
        assert told == expected
        for reference, outcome in zip(references, told, strict=True):
            if outcome is Outcome.EXPIRED:
                self.closed(reference.hold_id, "expired")

    def reference(self, name: str, version: int) -> Reference:
        hold = self.known.get(self.id(name))
        deadline = LEAP_DAY if hold is None else hold.history.get(version, hold.deadline)
        return Reference.to(self.id(name), version, deadline)

    def expected(self, references: list[Reference], path: Path | None) -> list[Outcome]:
        told: list[Outcome] = []
        for n, reference in enumerate(references):
            again = reference in references[:n] and reference.hold_id in self.known
            told.append(Outcome.DUPLICATE if again else self.outcome(reference, path))
        return told

    def outcome(self, reference: Reference, path: Path | None) -> Outcome:
        hold, now = self.known.get(reference.hold_id), self.now()
        if hold is None:
            return Outcome.MISSING
        if reference.job_id in hold.keys:
            return Outcome.DUPLICATE
        if hold.status != "held" or (hold.version, hold.deadline) != (reference.version, reference.expires_at):
            return Outcome.STALE
        rescued = path is Path.RESCUE and hold.deadline + GRACE <= now
        if path not in {None, self.driver} and not rescued:
            return Outcome.ELSEWHERE
        return Outcome.EXPIRED if hold.deadline <= now else Outcome.EARLY

    @rule(steps=st.integers(1, 3), path=st.sampled_from([Path.SWEEP, Path.SWEEP, Path.INFRAI]))
    def pass_time(self, steps: int, path: Path) -> None:
        """Time passes, and the cohorts may have another path since."""
        self.move(path)
        with self.desk.database.transaction() as tx:
            age(tx, self.known, steps * STEP)
        for hold in self.known.values():
            if hold.status == "held":
                hold.history = {version: at - steps * STEP for version, at in hold.history.items()}

    def move(self, path: Path) -> None:
        """This path drives every cohort from now on."""
        self.driver = path
        self.desk.sql("UPDATE cohort_paths SET path = :path", path=path)

    @invariant()
    def each_hold_stands_as_the_model_says(self) -> None:
        rows = self.mine("SELECT id, status, version, expires_at, closed_at IS NULL FROM holds WHERE {}", "id")
        assert rows == [(h, k.status, k.version, k.deadline, k.status == "held") for h, k in sorted(self.known.items())]

    @invariant()
    def each_effect_and_event_happened_once(self) -> None:
        assert self.mine("SELECT key FROM effects WHERE {}", "hold_id") == [
            (key,) for key in sorted(key for known in self.known.values() for key in known.keys)
        ]
        events = self.mine("SELECT count(*), count(DISTINCT event_id) FROM events WHERE {}", "hold_id")
        assert events == [(sum(len(known.keys) for known in self.known.values()),) * 2]
        closings = "SELECT hold_id FROM effects WHERE kind IN ('confirmed', 'cancelled', 'expired') AND {}"
        closed = sorted(hold for hold, known in self.known.items() if known.status != "held")
        assert self.mine(closings, "hold_id") == [(hold,) for hold in closed]

    @invariant()
    def the_ledger_holds_exactly_the_money_that_is_held(self) -> None:
        entries = [
            (hold, side, sign * known.terms.amount, known.terms.currency)
            for hold, known in sorted(self.known.items())
            if known.terms.amount is not None
            for side, sign in (("close", -1), ("open", 1))
            if side == "open" or known.status != "held"
        ]
        assert self.mine("SELECT hold_id, side, amount, currency FROM ledger WHERE {}", "hold_id") == entries

    def mine(self, statement: str, column: str) -> list[tuple[object, ...]]:
        """Rows about this example's holds, in order."""
        rows = self.desk.sql(statement.format(f"{column} LIKE :prefix"), prefix=self.prefix + "%")
        return sorted(tuple(row) for row in rows)


def expect(answer: Answer, reason: Reason | None, *, repeated: bool = False) -> None:
    """The answer is this refusal; or it is done, newly or again."""
    match answer:
        case Done():
            assert reason is None
            assert answer.repeated is repeated
        case Refused():
            assert answer.reason is reason


def test_any_sequence_of_commands_messages_and_time_ends_as_the_model_says(database: Database) -> None:
    class Here(Machine):
        def __init__(self) -> None:
            super().__init__(database)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
