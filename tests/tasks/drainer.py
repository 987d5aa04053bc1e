"""A process of its own that drains one endpoint, and tells where it is, so that a test can kill it there.

It takes the database's address and the endpoint. It says `taken` before a request and `sent` after it, and at each
waits for a line before it goes on.
"""

import sys
from datetime import timedelta

from db.deliveries import Taken
from db.engine import Database
from domain.endpoints import DeliveryPolicy, EndpointId
from domain.webhooks import Answered, Result
from tasks.delivery import Drain


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def send(taken: Taken, asked_at: float) -> Result:
    say("taken")
    say(f"sent {taken.event_id} {taken.number} {taken.body.hex()}")
    return Answered(200, "", None, "peer")


def main() -> None:
    database = Database(sys.argv[1], pool=2)
    Drain(db=database, send=send, policy=DeliveryPolicy(lease=timedelta(seconds=30)), worker="killed")(
        EndpointId(sys.argv[2])
    )
    database.close()


main()
