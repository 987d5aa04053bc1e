"""A process of its own that publishes or consumes over the bridge, and tells where it is, so that a test can kill it.

It takes the database's address, the service's address and key, `publish` or `consume`, and the step to stop at:
`called` (the batch is published and not yet noted) or `applied` (committed and not yet acknowledged).
"""

import sys
from collections.abc import Sequence
from typing import Any

from db.engine import Database
from db.sweeps import Run
from gateways.infrai import Infrai
from gateways.infrai_answers import Message
from tasks.bridging import Bridge
from tests.bridged import NO_WAIT, bridge_to, client_of


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


class Stopping(Bridge):
    """Stops after the commit."""

    def apply(self, run: Run, messages: Sequence[Message]) -> list[Message]:
        done = super().apply(run, messages)
        say("applied")
        return done


class Telling:
    """A client that stops after each publication."""

    def __init__(self, client: Infrai) -> None:
        self._client = client

    def at_once(self) -> int:
        return self._client.at_once()

    def publish_batch(self, *arguments: Any, **options: Any) -> list[str | None]:
        ids = self._client.publish_batch(*arguments, **options)
        say("called")
        return ids


def main() -> None:
    url, service, key, what = sys.argv[1:]
    database = Database(url, pool=2)
    with client_of(service, key) as client:
        if what == "publish":
            bridge_to(database, Telling(client)).publish(apart=NO_WAIT)  # type: ignore[arg-type]
        else:
            made = bridge_to(database, client)
            fields = {name: getattr(made, name) for name in Bridge.__slots__}
            Stopping(**fields).consume(apart=NO_WAIT)
    database.close()


main()
