"""What many tests do with reminders."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

from db import reminder_outcomes, reminding
from db.engine import Database
from db.reminder_outcomes import Settled
from db.reminding import Taken
from domain.contacts import Contacts
from domain.due_reminders import Decision, Provider, Send, decide
from domain.holds import Hold
from domain.identity import HoldId, reminder_key
from domain.quiet_hours import Rules
from domain.reminding import Accepted, Channel, Message, Outcome, Rendered, judge
from domain.terms import For
from tests.helpers import Desk

EMAIL, SMS = Channel.EMAIL, Channel.SMS
LEASE = timedelta(seconds=60)
HOUR = timedelta(hours=1)
DAY = For(timedelta(days=1))
PLAIN = Provider(name="smtp", key_window=None)
KEYED = Provider(name="resend", key_window=timedelta(hours=24))
ALWAYS = Rules(hours=None)
TOOK = timedelta(milliseconds=50)
OK = Accepted("id-1")


def contacts(email: str | None = "ada@example.com", phone: str | None = None, **others: Any) -> Contacts:
    """An address, and a phone number if it is given; one lead of an hour."""
    return Contacts(**{"email": email, "phone": phone, "timezone": "UTC", "leads": (HOUR,), **others})


BOTH = contacts(phone="+4915112345678")


class Reminded(Desk):
    """Holds with contacts, and their reminders as production takes them: each call is one transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.random = Random(1)

    def reminded(self, hold: str = "h", lasting: For = DAY, who: Contacts = contacts()) -> Hold:  # noqa: B008 - frozen
        return self.placed(hold, lasting, contacts=who, timezone=who.timezone)

    def make_due(self, hold: str = "h") -> None:
        """As if the time until the reminders' instant had passed."""
        self.sql("UPDATE reminders SET next_at = now() WHERE hold_id = :hold AND state = 'scheduled'", hold=hold)

    def end_leases(self) -> None:
        """As if the leases' time had passed."""
        self.sql("UPDATE reminders SET next_at = now() WHERE state = 'claimed'")

    def rows(self, *columns: str, hold: str = "h") -> list[tuple[Any, ...]]:
        """These columns of a hold's reminders, in the order of their keys."""
        query = f"SELECT {', '.join(columns)} FROM reminders WHERE hold_id = :hold ORDER BY key"
        return [tuple(row) for row in self.sql(query, hold=hold)]

    def states(self, hold: str = "h") -> list[str]:
        return [row[0] for row in self.rows("state", hold=hold)]

    def attempts(self) -> list[tuple[Any, ...]]:
        return [tuple(r) for r in self.sql("SELECT number, provider, outcome FROM reminder_attempts ORDER BY 1")]

    def take(
        self, channel: Channel = EMAIL, provider: Provider | None = PLAIN, rules: Rules = ALWAYS
    ) -> Taken | Decision | None:
        """Take what is due as a worker does: decide, write, commit."""
        with self.database.transaction() as tx:
            due = reminding.next_due(tx, channel)
            if due is None:
                return None
            decision = decide(due, provider, rules, random=self.random)
            if not isinstance(decision, Send):
                reminding.put_by(tx, due, decision)
                return decision
            assert provider is not None
            message = due.message or Message(due.key, channel, decision.to, Rendered("s", "text", None))
            return reminding.claim(tx, due, message, provider, lease=LEASE, worker="w")

    def taken(self, channel: Channel = EMAIL, provider: Provider = PLAIN) -> Taken:
        found = self.take(channel, provider)
        assert isinstance(found, Taken)
        return found

    def settle(self, taken: Taken, outcome: Outcome = OK) -> Settled:
        following = judge(outcome, taken.made(TOOK), random=self.random)
        with self.database.transaction() as tx:
            return reminder_outcomes.settle(tx, taken, outcome, following, took=TOOK)


def keys(hold: Hold, channels: Sequence[Channel] = (EMAIL,), lead: timedelta = HOUR) -> list[str]:
    """The keys of a hold's reminders, as domain.identity spells them."""
    return [reminder_key(HoldId(hold.id), channel, hold.expires_at, lead) for channel in channels]
