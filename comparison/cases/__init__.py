"""The cases: each is one function that acts in a trial and checks. The same for every candidate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comparison.candidate import Ability
from comparison.cases import bridge, burst, crash, hostile, limits, orders
from comparison.result import CaseText
from comparison.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case: what it is called, what passes, what a transport must have for it to mean anything."""

    id: str
    title: str
    passes: str
    run: Callable[[Trial], None]
    needs: frozenset[Ability] = frozenset()

    @property
    def text(self) -> CaseText:
        """What a report says of it."""
        return CaseText(id=self.id, title=self.title, passes=self.passes)


_MESSAGES = frozenset({Ability.MESSAGES})
_ACKS = frozenset({Ability.MESSAGES, Ability.ACKS})
_DELAY = frozenset({Ability.MESSAGES, Ability.DELAY})

CASES: Sequence[Case] = (
    Case(
        id="orders", title="Both delivery orders", run=orders.both_orders,
        passes="One expired and one extended hold, two deliveries each, in both orders: one transition, the extended "
        "hold untouched, the same final state.",
    ),
    Case(
        id="withheld", title="Ack withheld", run=hostile.ack_withheld, needs=_ACKS,
        passes="The first delivery is applied and never acknowledged: the transport itself brings it again, and it is "
        "a duplicate.",
    ),
    Case(
        id="early", title="Early delivery", run=hostile.early,
        passes="A delivery before the deadline changes nothing; the one on time expires the hold.",
    ),
    Case(
        id="renewed", title="Renewed version", run=hostile.renewed,
        passes="The message of an older version touches nothing; the newer version expires once.",
    ),
    Case(
        id="missing", title="Missing reservation", run=hostile.missing, needs=_MESSAGES,
        passes="A message about a hold that does not exist is acknowledged, leaves nothing, and blocks nobody.",
    ),
    Case(
        id="malformed", title="Malformed messages", run=hostile.malformed, needs=_MESSAGES,
        passes="What cannot be read becomes a dead letter, changes no hold, and does not hold up the next message.",
    ),
    Case(
        id="payload", title="Payload at the limit", run=limits.payload, needs=_MESSAGES,
        passes="At the limit a body arrives whole; one byte more is refused when it is published, or arrives whole.",
    ),
    Case(
        id="delay", title="Delay of 604,800 s", run=limits.delay_of_seven_days, needs=_DELAY,
        passes="A delay of exactly seven days is accepted, and nothing is delivered before its end.",
    ),
    Case(
        id="beyond", title="Delay of 604,801 s", run=limits.one_second_more,
        passes="One second more is refused or kept, never cut short; the hold waits in its table for the bridge.",
    ),
    Case(
        id="later", title="Later, through the bridge", run=bridge.later_reservation, needs=frozenset({Ability.CRON}),
        passes="A hold eight days ahead is left alone by a tick of the candidate's own scheduler, and brought by one "
        "after its deadline.",
    ),
    Case(
        id="killed", title="Consumer killed", run=crash.consumer_killed,
        passes="A real consumer dies by kill -9 before its commit, another between commit and ack: the hold expires "
        "once all the same.",
    ),
    Case(
        id="burst", title="1,000, shuffled", run=burst.thousand_shuffled,
        passes="1,000 messages and 100 copies in a shuffled order: each hold expires once.",
    ),
    Case(
        id="boundary", title="Boundaries", run=hostile.boundary,
        passes="No private push endpoint, and no payload of the transport's own in the worker.",
    ),
)  # fmt: skip
