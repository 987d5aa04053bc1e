"""One reminder that cannot be judged or written holds up no other, and takes no other's record with it."""

from datetime import timedelta

import pytest

from db import reminder_desk
from db.engine import Database
from domain.due_reminders import DueReminder, HoldNow
from domain.quiet_hours import Policy, QuietHours, Rules
from domain.reminding import Accepted, Message, Outcome
from tasks import reaching
from tasks.reminding import Compose, Drain, Drained
from tests.reminded import ALWAYS, EMAIL, LEASE, Reminded

NIGHTS = Rules(hours=QuietHours(), email=Policy.SEND)


class Taking:
    """A provider that accepts everything."""

    name, channel, key_window = "taking", EMAIL, None

    def __init__(self) -> None:
        self.went_to: list[str] = []

    def send(self, message: Message, *, not_after: float) -> Outcome:
        self.went_to.append(message.to)
        return Accepted("x")

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def desk(database: Database) -> Reminded:
    """Three reminders that are due, the worst in the middle."""
    made = Reminded(database)
    for minutes, name in ((3, "first"), (2, "worst"), (1, "last")):
        made.reminded(name)
        made.sql(
            "UPDATE reminders SET next_at = now() - CAST(:ago AS interval) WHERE hold_id = :hold",
            ago=timedelta(minutes=minutes), hold=name,
        )  # fmt: skip
    return made


def drain(desk: Reminded, provider: Taking, rules: Rules = ALWAYS, compose: Compose = reaching.compose) -> Drain:
    return Drain(
        db=desk.database, gateways={EMAIL: provider}, compose=compose, rules=rules, worker="w", lease=LEASE,
        deadline=timedelta(seconds=2),
    )  # fmt: skip


@pytest.mark.parametrize("rules", [ALWAYS, NIGHTS], ids=["where the text is made", "where the hour is judged"])
def test_a_zone_that_this_worker_does_not_know_is_a_dead_letter_and_holds_up_nobody(
    desk: Reminded, rules: Rules
) -> None:
    desk.sql("UPDATE holds SET timezone = 'Mars/Olympus' WHERE id = 'worst'")
    provider = Taking()
    assert drain(desk, provider, rules)(EMAIL) == Drained(2)
    assert [desk.states(name) for name in ("first", "worst", "last")] == [["sent"], ["failed"], ["sent"]]
    [letter] = desk.sql("SELECT error, hold_id FROM dead_letters")
    assert tuple(letter) == ("no time zone Mars/Olympus is known here; renew this worker's tzdata", "worst")
    desk.sql("UPDATE holds SET timezone = 'Asia/Kathmandu' WHERE id = 'worst'")
    with desk.database.transaction() as tx:
        reminder_desk.resend(tx, desk.rows("key", hold="worst")[0][0], "ada")
    assert drain(desk, provider, rules)(EMAIL) == Drained(1)
    assert len(provider.went_to) == 3


def test_what_was_accepted_is_on_record_whatever_the_next_one_provokes(desk: Reminded) -> None:
    def compose(due: DueReminder, hold: HoldNow, to: str) -> Message:
        if due.hold_id == "worst":
            raise RuntimeError("nobody planned this")
        return reaching.compose(due, hold, to)

    with pytest.raises(RuntimeError, match="nobody planned this"):
        drain(desk, Taking(), compose=compose)(EMAIL)
    assert [desk.states(name) for name in ("first", "worst", "last")] == [["sent"], ["scheduled"], ["scheduled"]]
    assert desk.attempts() == [(1, "taking", "accepted")]
