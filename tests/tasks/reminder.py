"""A process of its own that drains SMS reminders, and stands still once the provider has accepted one.

It takes the database's address and the provider's. A test kills it where it stands.
"""

import sys
from datetime import timedelta
from threading import Event

from cli.stand_ins.providers import ACCOUNT, TOKEN
from db.engine import Database
from domain.reminding import Channel, Message, Outcome
from gateways.twilio import Account, Twilio
from tasks import reaching
from tasks.reminding import Drain
from tests.reminded import ALWAYS, LEASE


class StandsStill(Twilio):
    """Twilio, and no further."""

    def send(self, message: Message, *, not_after: float) -> Outcome:
        outcome = super().send(message, not_after=not_after)
        sys.stdout.write("accepted\n")
        sys.stdout.flush()
        Event().wait()
        return outcome


def main() -> None:
    account = Account(sid=ACCOUNT, secret=TOKEN, key_sid=None)
    gateway = StandsStill(account, "+15005550006", deadline=timedelta(seconds=2), url=sys.argv[2])
    database = Database(sys.argv[1], pool=2)
    Drain(
        db=database, gateways={Channel.SMS: gateway}, compose=reaching.compose, rules=ALWAYS, worker="killed",
        lease=LEASE, deadline=timedelta(seconds=2),
    )(Channel.SMS)  # fmt: skip


main()
