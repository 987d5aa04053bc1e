"""The one table of what the contract leaves open: contradictions between public sources (X…), and unknowns (U…).

The letters and numbers name the rows of docs/infrai.md. A live discovery document replaces the limits it states.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.errors import BadInput

Json = Any
Seconds = Annotated[int, Field(ge=0, le=366 * 86_400)]
Small = Annotated[int, Field(ge=0, le=10_000)]


class Contract(BaseModel):
    """Every switch with the stance that docs/infrai.md argues for as its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    consume_key: Literal["items", "messages", "bare"] = "items"
    """X1: under which key consumed messages stand; `bare` is a list without one."""
    cron_fields: Literal["any", "clients"] = "any"
    """X2: which spellings of cron.create are taken; `clients` is `cron_expr` and `task` only."""
    keys_required: bool = False
    """X6: creation without an idempotency key is 400 IDEMPOTENCY_KEY_REQUIRED."""
    dead_letter_counts: Literal["both", "nacks"] = "both"
    """X8: whether leases that run out count towards the dead letter queue, or nacks only."""
    signature_prefix: Literal["", "sha256="] = ""
    """X11: what stands before the hex of a push's signature."""

    key_window: Seconds = 86_400
    """U3: how long an idempotency key is remembered."""
    derived_keys: bool = False
    """U4: without a key, one is made from the body, so two equal calls that were meant as two become one."""
    largest_batch: Annotated[int, Field(ge=1, le=10_000)] = 100
    """U5: messages in one publish_batch."""
    gone_is_fine: bool = False
    """U7: ack and nack of a message that is not there answer 200 and do nothing."""
    consume_default: Annotated[int, Field(ge=1, le=10_000)] = 1
    """U10: messages of one consume that names no number."""
    consume_most: Annotated[int, Field(ge=1, le=10_000)] = 100
    """U10: messages of one consume, at most."""
    lease_default: Annotated[int, Field(ge=1, le=43_200)] = 30
    """U10: seconds of a lease where neither the call nor the queue says."""
    lease_longest: Annotated[int, Field(ge=1, le=604_800)] = 43_200
    """U10: seconds of a lease, at most."""
    retries_default: Small = 3
    """U10: failures of a message before it goes to the dead letter queue; without one it is delivered for ever."""
    retention_default_days: Annotated[int, Field(ge=1, le=30)] = 4
    """U10: days a message is kept, counted from its publication (U19)."""
    retention_longest_days: Annotated[int, Field(ge=1, le=366)] = 30
    """Published: 30 days."""
    largest_payload: Annotated[int, Field(ge=1, le=16_777_216)] = 262_144
    """U14: bytes of a payload as compact JSON."""
    longest_delay: Seconds = 604_800
    """U15: seconds of a delay; exactly this is taken, one more is 400."""
    lease_backoff: bool = False
    """U16: a message whose lease ran out stays hidden longer each time, instead of being visible at once."""
    dedup_window: Seconds = 300
    """Published: five minutes for `deduplication_id`, on FIFO queues."""
    highest_priority: Annotated[int, Field(ge=0, le=1000)] = 9
    """U18: priorities go from 0 to this, higher first."""
    loopback_targets: bool = False
    """U21: pushes and scheduled calls may go to this machine, also by plain http: for development and tests."""
    run_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """U25: attempts of a scheduled call where the job does not say."""
    run_backoff: Annotated[float, Field(ge=0, le=3600)] = 1.0
    """U25: seconds before the second attempt, doubled before each further one."""
    run_output: Small = 4096
    """Published: bytes kept of what a target answers."""
    jitter: Annotated[float, Field(ge=0, le=5)] = 0.0
    """U31: seconds by which a scheduled call may start late, at most."""
    run_longest: Annotated[int, Field(ge=1, le=86_400)] = 900
    """Published: seconds of one run (U32: more is 400)."""

    @classmethod
    def parse(cls, switches: Mapping[str, str]) -> Self:
        """The table with these rows replaced, from texts.

        Raises:
            BadInput: there is no such row, or it does not take the value.
        """
        try:
            return cls.model_validate(dict(switches))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                raise BadInput(name, f"is no switch; there are {', '.join(cls.model_fields)}") from None
            raise BadInput(name, first["msg"]) from None

    def replaced_by(self, documents: Mapping[str, Json]) -> Self:
        """The table with each limit that these discovery documents state, by capability id; the rest stays.

        Raises:
            BadInput: a document states a limit this server cannot keep.
        """
        found = {}
        for name, (capability, field, keyword) in LIMITS.items():
            stated = _dig(documents.get(capability), "params", "properties", field)
            value = next((part[keyword] for part in _alternatives(stated) if keyword in part), None)
            if isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
        return self.parse(self.model_dump() | found)


LIMITS: Mapping[str, tuple[str, str, str]] = {
    "largest_batch": ("queue.publish_batch", "messages", "maxItems"),
    "consume_default": ("queue.consume", "max_messages", "default"),
    "consume_most": ("queue.consume", "max_messages", "maximum"),
    "lease_longest": ("queue.consume", "visibility_timeout", "maximum"),
    "retention_longest_days": ("queue.create", "message_retention_days", "maximum"),
    "longest_delay": ("queue.publish", "delay_seconds", "maximum"),
    "highest_priority": ("queue.publish", "priority", "maximum"),
    "run_longest": ("cron.create", "timeout_seconds", "maximum"),
}
"""Where a limit stands in the discovery documents: requests are validated by it, and a live document replaces it."""


def _dig(value: Json, *names: str) -> Json:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _alternatives(schema: Json) -> list[dict[str, Json]]:
    """A property's schema, and those it may be instead (`anyOf`)."""
    if not isinstance(schema, dict):
        return []
    inner = schema.get("anyOf")
    return [schema, *(part for part in (inner if isinstance(inner, list) else []) if isinstance(part, dict))]
