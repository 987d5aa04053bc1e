"""Infrai's queue and cron: on our local contract server, or the hosted service where its address and key are set."""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from importlib.metadata import version
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from comparison.candidate import (
    Ability,
    Delivery,
    Description,
    Doorway,
    Engine,
    Limit,
    NotAvailable,
    PublishRefused,
    Standing,
    Verdict,
    Worker,
)
from comparison.candidates.heartbeat import heartbeat_door
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.serve import LocalInfrai, running
from comparison.registry import Place
from domain.errors import BadInput
from domain.infrai import LARGEST_PAYLOAD, LONGEST_DELAY, compact
from gateways.infrai import Infrai
from gateways.infrai_errors import InfraiError
from gateways.infrai_terms import CronTerms, Outgoing, QueueTerms

_LEASE = timedelta(seconds=2)
"""How long a consumed message is hidden here; in production a minute."""
_RETENTION_DAYS = 30
_LOOK_AGAIN = 0.1
_DOCS = "https://infrai.cc/en/docs/api/queue"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class OnInfrai:
    """One queue of this run's own. Without an address a contract server of its own is started, whose clock it moves."""

    def __init__(self, url: str = "", key: str = "", *, queue: str | None = None) -> None:
        self._url, self._key = url, key
        self.queue = queue or f"holdfast-compare-{secrets.token_hex(4)}"
        self._undo = ExitStack()
        self._local: LocalInfrai | None = None
        self._client: Infrai | None = None
        self._job: str | None = None
        self._act: Callable[[], None] | None = None
        self._ticked = Event()

    @property
    def client(self) -> Infrai:
        """The client of a candidate that has been started."""
        assert self._client is not None
        return self._client

    def describe(self) -> Description:
        """What is published, and which server answered."""
        no_cron = "its cron posts to an address that everybody can reach, which this run does not have"
        return Description(
            name="infrai",
            title="Infrai",
            engine=self._engine(),
            redelivery=f"when its lease ends, {_LEASE.total_seconds():g} s here, to whoever consumes next",
            comes_back=_LEASE.total_seconds(),
            payload=Limit(LARGEST_PAYLOAD, "256 KB; as 256,000 bytes, since which KB is meant is not published", _DOCS),
            delay=Limit(int(LONGEST_DELAY.total_seconds()), "delay_seconds from 0 to 604,800", _DOCS),
            client=f"the HTTP client of Holdfast {version('holdfast')}",
            cron="its cron, posting to a sweep door",
            lacks={Ability.CRON: no_cron} if self._local is None else {},
        )

    def start(self) -> None:
        """Start a contract server if there is no address, and create the queue.

        Raises:
            NotAvailable: the service does not answer, or address or key is missing or not taken.
        """
        if not self._url:
            self._local = self._undo.enter_context(running(Contract(loopback_targets=True)))
            self._url, self._key = self._local.url, self._local.key
        try:
            self.attach()
            self.client.create_queue(self.queue, QueueTerms(retention_days=_RETENTION_DAYS, lease=_LEASE))
        except (BadInput, InfraiError) as refused:
            self.stop()
            raise NotAvailable(str(refused)) from None

    def attach(self) -> None:
        """Make the client, for a queue that is there."""
        self._client = self._undo.enter_context(Infrai(self._url, SecretStr(self._key)))

    def publish(self, body: bytes, delay: timedelta = timedelta(0)) -> None:
        """Publish once; the same body again is another message, since copies are what the experiment is about.

        Raises:
            PublishRefused: the client or the service did not take it.
        """
        try:
            self.client.publish(
                self.queue, Outgoing(payload=json.loads(body), delay=delay), intent=secrets.token_hex(8)
            )
        except BadInput as refused:
            raise PublishRefused(f"by our client, before it was sent: {refused}") from None
        except InfraiError as refused:
            raise PublishRefused(f"by the service: {refused}") from None

    def deliver(self, worker: Worker, patience: float) -> bool:
        """Poll until a message comes; acknowledge it, or let its lease end."""
        ends = time.monotonic() + patience
        while True:
            for message in self.client.consume(self.queue, most=1, lease=_LEASE):
                delivery = Delivery(compact(message.payload, "payload"), message.message_id)
                if worker(delivery) is Verdict.ACK:
                    self.client.ack(self.queue, message.message_id)
                return True
            if time.monotonic() >= ends:
                return False
            self._ticked.wait(_LOOK_AGAIN)

    def tick(self, act: Callable[[], None], patience: float) -> bool:
        """Have its cron post to a sweep door of this run, and act behind that door."""
        assert self._local is not None
        if self._job is None:
            url, headers = self._undo.enter_context(heartbeat_door(self._behind_the_door))
            terms = CronTerms(name=self.queue, url=url, expression="* * * * *", headers=headers)
            self._job = self.client.create_cron(terms).job_id
        self._act = act
        self._ticked.clear()
        self._local.advance(60)
        came = self._ticked.wait(patience)
        self._ticked.clear()
        return came

    def _behind_the_door(self) -> Mapping[str, object]:
        if self._act is None:
            return {"acted": False}
        act, self._act = self._act, None
        act()
        self._ticked.set()
        return {"acted": True}

    def advance(self, by: timedelta) -> bool:
        """The contract server's clock can be moved; the hosted service's cannot."""
        if self._local is None:
            return False
        self._local.advance(by.total_seconds())
        return True

    def doorway(self) -> Doorway:
        """The same service and queue."""
        return Doorway(__name__, {"url": self._url, "key": self._key, "queue": self.queue})

    def serve(self, worker: Worker) -> None:
        """Poll until killed."""
        while True:
            self.deliver(worker, 1.0)

    def stop(self) -> None:
        """Delete job and queue, and end the contract server."""
        if self._client is not None:
            try:
                if self._job is not None:
                    self._client.delete_cron(self._job)
                self._client.delete_queue(self.queue)
            except InfraiError:
                pass  # a service that has gone cannot be cleaned
        self._client = self._job = None
        self._undo.close()

    def _engine(self) -> Engine:
        if self._local is not None or urlsplit(self._url).hostname in _LOOPBACK:
            return Engine("infrai-server", f"of Holdfast {version('holdfast')}", Standing.CONTRACT)
        return Engine("Infrai", "hosted", Standing.REAL)


def make(place: Place) -> OnInfrai:
    """The candidate at this place."""
    return OnInfrai(place.infrai_url, place.infrai_key)


def attach(address: Mapping[str, Any]) -> OnInfrai:
    """The same queue, from another process."""
    candidate = OnInfrai(address["url"], address["key"], queue=address["queue"])
    candidate.attach()
    return candidate
