"""A process of its own that applies references, one chunk a transaction, started together with its like.

It takes the database's address and says `ready`. For each line of JSON, a list of chunks of references, it says
`loaded`, waits for a line, applies them, and answers with the tally of the outcomes.
"""

import json
import sys
from datetime import timedelta

from db import expiry
from db.engine import Database
from domain.outcomes import Tally
from domain.paths import Carrier
from domain.references import parse_reference


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    database = Database(sys.argv[1], pool=1)
    with database.transaction():
        say("ready")
    for line in sys.stdin:
        chunks = [[parse_reference(raw) for raw in chunk] for chunk in json.loads(line)]
        say("loaded")
        sys.stdin.readline()
        tally = Tally()
        for number, chunk in enumerate(chunks):
            by = Carrier(message_id=f"message-{number}", path=None, run=None, worker=sys.argv[2])
            with database.transaction() as tx:
                tally += Tally.of(expiry.expire(tx, chunk, by, grace=timedelta(0)))
        say(json.dumps(tally.as_data()))
    database.close()


main()
