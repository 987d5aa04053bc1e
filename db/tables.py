"""Every table, as typed columns. The migrations make them; a test holds the two together.

All instants are `timestamptz`, all money is in integer minor units. `Named[datetime]` alone would make a naive
column, so the type is spelled.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Named,
    SmallInteger,
    Table,
    Text,
    TypedColumns,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()


def _instant(**options: Any) -> Column[Any]:
    return Column(DateTime(timezone=True), **options)


def _id(**options: Any) -> Column[Any]:
    return Column(Text(collation="C"), **options)


class HoldColumns(TypedColumns):
    """A hold; `claimed_run`, `claimed_until` and `claims` belong to the sweep, `set_aside` to the operator.

    `leads` is set where it came with contacts, and stays when these are erased.
    """

    id: Named[str] = _id(primary_key=True)
    resource: Named[str] = Column(Text)
    customer: Named[str] = Column(Text)
    status: Named[str] = Column(Text)
    version: Named[int] = Column(Integer)
    expires_at: Named[datetime] = _instant()
    terms: Named[dict[str, Any]] = Column(JSONB)
    timezone: Named[str | None] = Column(Text)
    amount: Named[int | None] = Column(BigInteger)
    currency: Named[str | None] = Column(Text)
    exclusive: Named[bool] = Column(Boolean, server_default=text("false"))
    cohort: Named[int] = Column(SmallInteger)
    placed_at: Named[datetime] = _instant()
    closed_at: Named[datetime | None] = _instant()
    close_reason: Named[str | None] = Column(Text)
    claimed_run: Named[int | None] = Column(BigInteger)
    claimed_until: Named[datetime | None] = _instant()
    claims: Named[int] = Column(Integer, server_default=text("0"))
    set_aside: Named[bool] = Column(Boolean, server_default=text("false"))
    email: Named[str | None] = Column(Text)
    phone: Named[str | None] = Column(Text)
    locale: Named[str | None] = Column(Text)
    leads: Named[list[timedelta] | None] = Column(ARRAY(Interval))


holds = Table(
    "holds",
    metadata,
    HoldColumns,
    CheckConstraint("id ~ '^[A-Za-z0-9_-]{1,64}$'", name="holds_id"),
    CheckConstraint("status IN ('held', 'confirmed', 'cancelled', 'expired')", name="holds_status"),
    CheckConstraint("(status = 'held') = (closed_at IS NULL)", name="holds_closed_at"),
    CheckConstraint("version >= 1", name="holds_version"),
    CheckConstraint("extract(microseconds FROM expires_at) % 1000000 = 0", name="holds_whole_seconds"),
    CheckConstraint("(amount IS NULL) = (currency IS NULL) AND amount > 0", name="holds_money"),
    CheckConstraint("cohort BETWEEN 0 AND 99", name="holds_cohort"),
    CheckConstraint("leads IS NOT NULL OR (email IS NULL AND phone IS NULL AND locale IS NULL)", name="holds_leads"),
    Index("holds_due", "expires_at", postgresql_where=text("status = 'held' AND NOT set_aside")),
    Index("holds_exclusive", "resource", unique=True, postgresql_where=text("exclusive AND status = 'held'")),
)


class EffectColumns(TypedColumns):
    """One applied change of a hold; its key lets it happen once."""

    key: Named[str] = _id(primary_key=True)
    hold_id: Named[str] = _id()
    kind: Named[str] = Column(Text)
    version: Named[int] = Column(Integer)
    expires_at: Named[datetime] = _instant()
    at: Named[datetime] = _instant()
    receipt: Named[int | None] = Column(BigInteger)
    imported: Named[bool] = Column(Boolean, server_default=text("false"))


effects = Table("effects", metadata, EffectColumns)


class ReceiptColumns(TypedColumns):
    """One message applied, written in the transaction of its effects; `tally` is outcome → cohort → count."""

    id: Named[int] = Column(BigInteger, Identity(), primary_key=True)
    message_id: Named[str] = Column(Text)
    path: Named[str | None] = Column(Text)
    sweep_run: Named[int | None] = Column(BigInteger)
    retries: Named[int] = Column(Integer)
    redelivered: Named[bool] = Column(Boolean)
    worker: Named[str] = Column(Text)
    tally: Named[dict[str, Any]] = Column(JSONB)
    at: Named[datetime] = _instant()


receipts = Table("receipts", metadata, ReceiptColumns, Index("receipts_at", "at"))


class LedgerColumns(TypedColumns):
    """An entry for ever: a trigger refuses UPDATE, DELETE and TRUNCATE. Opens are positive, closes negative."""

    hold_id: Named[str] = _id(primary_key=True)
    side: Named[str] = Column(Text, primary_key=True)
    amount: Named[int] = Column(BigInteger)
    currency: Named[str] = Column(Text)
    reason: Named[str] = Column(Text)
    at: Named[datetime] = _instant()


ledger = Table(
    "ledger",
    metadata,
    LedgerColumns,
    CheckConstraint("(side = 'open' AND amount > 0) OR (side = 'close' AND amount < 0)", name="ledger_side"),
)


class EventColumns(TypedColumns):
    """A fact for others, with the exact bytes that every attempt sends; `audience` counts its deliveries at first."""

    event_id: Named[str] = _id(primary_key=True)
    hold_id: Named[str | None] = _id()
    type: Named[str] = Column(Text)
    occurred_at: Named[datetime] = _instant()
    body: Named[bytes] = Column(LargeBinary)
    audience: Named[int] = Column(Integer, server_default=text("0"))


events = Table(
    "events",
    metadata,
    EventColumns,
    CheckConstraint("hold_id IS NOT NULL OR type NOT LIKE 'reservation.%'", name="events_hold"),
)


class SweepColumns(TypedColumns):
    """One sweep's heartbeat: updated at every tick, also an idle one."""

    name: Named[str] = Column(Text, primary_key=True)
    began_at: Named[datetime] = _instant()
    ticks: Named[int] = Column(BigInteger, server_default=text("1"))
    last_run: Named[int | None] = Column(BigInteger)


sweeps = Table("sweeps", metadata, SweepColumns)


class SweepRunColumns(TypedColumns):
    """A tick that saw something due."""

    id: Named[int] = Column(BigInteger, Identity(), primary_key=True)
    sweep: Named[str] = Column(Text)
    started_at: Named[datetime] = _instant()
    finished_at: Named[datetime | None] = _instant()
    observed: Named[int] = Column(BigInteger, server_default=text("0"))
    published: Named[int] = Column(BigInteger, server_default=text("0"))
    error: Named[str | None] = Column(Text)


sweep_runs = Table("sweep_runs", metadata, SweepRunColumns, Index("sweep_runs_started_at", "started_at"))


class DeadLetterColumns(TypedColumns):
    """A command that cannot be applied, waiting for an operator."""

    id: Named[int] = Column(BigInteger, Identity(), primary_key=True)
    key: Named[str] = Column(Text, unique=True)
    kind: Named[str] = Column(Text)
    reference: Named[Any] = Column(JSONB)
    hold_id: Named[str | None] = _id()
    sweep_run: Named[int | None] = Column(BigInteger)
    error: Named[str] = Column(Text)
    attempts: Named[int] = Column(Integer)
    created_at: Named[datetime] = _instant()
    replayed_at: Named[datetime | None] = _instant()
    replayed_by: Named[str | None] = Column(Text)
    outcome: Named[str | None] = Column(Text)


dead_letters = Table(
    "dead_letters",
    metadata,
    DeadLetterColumns,
    Index("dead_letters_sweep_run", "sweep_run"),
)


class CohortPathColumns(TypedColumns):
    """Which path drives a cohort, since when, and which did before. `bridged_at`: all its holds have their messages."""

    cohort: Named[int] = Column(SmallInteger, primary_key=True, autoincrement=False)
    path: Named[str] = Column(Text, server_default=text("'sweep'"))
    came_from: Named[str | None] = Column(Text)
    routed_at: Named[datetime | None] = _instant()
    bridged_at: Named[datetime | None] = _instant()


cohort_paths = Table(
    "cohort_paths",
    metadata,
    CohortPathColumns,
    CheckConstraint("cohort BETWEEN 0 AND 99", name="cohort_paths_cohort"),
    CheckConstraint("path IN ('sweep', 'infrai', 'scanner')", name="cohort_paths_path"),
    CheckConstraint("came_from IN ('sweep', 'infrai', 'scanner')", name="cohort_paths_came_from"),
)


class BridgeMessageColumns(TypedColumns):
    """A message about one version of a hold; `batch` is the call it is, or was, published by, from `batch_at` on."""

    hold_id: Named[str] = _id(primary_key=True)
    version: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    try_: Named[int] = Column("try", Integer, primary_key=True, autoincrement=False, server_default=text("1"))
    expires_at: Named[datetime] = _instant()
    publish_at: Named[datetime] = _instant()
    batch: Named[str | None] = Column(Text)
    batch_at: Named[datetime | None] = _instant()
    claimed_until: Named[datetime | None] = _instant()
    message_id: Named[str | None] = Column(Text)
    published_at: Named[datetime | None] = _instant()


bridge_messages = Table(
    "bridge_messages",
    metadata,
    BridgeMessageColumns,
    CheckConstraint("try >= 1", name="bridge_messages_try"),
    CheckConstraint(
        "(batch IS NULL) = (batch_at IS NULL) AND (batch IS NULL) = (claimed_until IS NULL)",
        name="bridge_messages_batch",
    ),
    CheckConstraint("published_at IS NULL OR batch IS NOT NULL", name="bridge_messages_published"),
    Index("bridge_messages_due", "publish_at", postgresql_where=text("published_at IS NULL AND batch IS NULL")),
    Index("bridge_messages_under_way", "batch", postgresql_where=text("published_at IS NULL AND batch IS NOT NULL")),
)


class BridgeColumns(TypedColumns):
    """How a bridge stands: paused by an operator, or to be left alone until an instant, and why."""

    name: Named[str] = Column(Text, primary_key=True)
    paused_at: Named[datetime | None] = _instant()
    paused_by: Named[str | None] = Column(Text)
    wait_until: Named[datetime | None] = _instant()
    reason: Named[str | None] = Column(Text)


bridge = Table(
    "bridge",
    metadata,
    BridgeColumns,
    CheckConstraint("(paused_at IS NULL) = (paused_by IS NULL)", name="bridge_paused"),
)


class EndpointColumns(TypedColumns):
    """Who hears of which events. Below `rate`, all but `created_at` is what happened: pace, health, standing still.

    `bounds_since` is when its bounds were last edited, None if never.
    """

    id: Named[str] = _id(primary_key=True)
    url: Named[str] = Column(Text)
    label: Named[str | None] = Column(Text)
    types: Named[list[str] | None] = Column(ARRAY(Text))
    state: Named[str] = Column(Text, server_default=text("'enabled'"))
    reason: Named[str | None] = Column(Text)
    waits: Named[list[timedelta] | None] = Column(ARRAY(Interval))
    max_attempts: Named[int | None] = Column(Integer)
    max_age: Named[timedelta | None] = Column(Interval)
    bounds_since: Named[datetime | None] = _instant()
    client_errors_final: Named[bool] = Column(Boolean, server_default=text("false"))
    slots: Named[int] = Column(SmallInteger, server_default=text("4"))
    rate: Named[float | None] = Column(Double)
    paced_until: Named[datetime | None] = _instant()
    failing_since: Named[datetime | None] = _instant()
    failures: Named[int] = Column(Integer, server_default=text("0"))
    our_failures: Named[int] = Column(Integer, server_default=text("0"))
    breaker_until: Named[datetime | None] = _instant()
    told: Named[str | None] = Column(Text)
    stood_still: Named[timedelta] = Column(Interval, server_default=text("'0'::interval"))
    still_since: Named[datetime | None] = _instant()
    created_at: Named[datetime] = _instant()


endpoints = Table(
    "endpoints",
    metadata,
    EndpointColumns,
    CheckConstraint("id ~ '^[A-Za-z0-9_-]{1,64}$'", name="endpoints_id"),
    CheckConstraint("cardinality(types) > 0", name="endpoints_types"),
    CheckConstraint("state IN ('enabled', 'paused', 'disabled', 'deleted')", name="endpoints_state"),
    CheckConstraint("cardinality(waits) > 0", name="endpoints_waits"),
    CheckConstraint("max_attempts > 0", name="endpoints_max_attempts"),
    CheckConstraint("max_age > '0'::interval", name="endpoints_max_age"),
    CheckConstraint("slots BETWEEN 1 AND 64", name="endpoints_slots"),
    CheckConstraint("rate > 0", name="endpoints_rate"),
    CheckConstraint("told IN ('failing', 'disabled')", name="endpoints_told"),
    CheckConstraint("(state IN ('paused', 'disabled')) = (still_since IS NOT NULL)", name="endpoints_still_since"),
)


class EndpointKeyColumns(TypedColumns):
    """A key that signs for an endpoint until it expires or is revoked; `sealed` is its secret, encrypted."""

    endpoint_id: Named[str] = _id(primary_key=True)
    key_id: Named[str] = Column(Text, primary_key=True)
    scheme: Named[str] = Column(Text)
    sealed: Named[bytes] = Column(LargeBinary)
    created_at: Named[datetime] = _instant()
    expires_at: Named[datetime | None] = _instant()
    revoked_at: Named[datetime | None] = _instant()


endpoint_keys = Table(
    "endpoint_keys",
    metadata,
    EndpointKeyColumns,
    CheckConstraint("scheme IN ('v1', 'v1a')", name="endpoint_keys_scheme"),
)


class EndpointSlotColumns(TypedColumns):
    """Room for one request under way. Who has its newest token may send until `lease_until`.

    `took` is how long the last request through it took, known since `took_at`.
    """

    endpoint_id: Named[str] = _id(primary_key=True)
    slot: Named[int] = Column(SmallInteger, primary_key=True, autoincrement=False)
    token: Named[UUID | None] = Column(Uuid)
    lease_until: Named[datetime | None] = _instant()
    dispatched_until: Named[datetime | None] = _instant()
    took: Named[timedelta | None] = Column(Interval)
    took_at: Named[datetime | None] = _instant()


endpoint_slots = Table("endpoint_slots", metadata, EndpointSlotColumns)


class DeliveryColumns(TypedColumns):
    """One event for one endpoint. Its age is counted from `aging_since`.

    Of its attempts `earlier` ones were made before its last replay; `spared` ones, these among them, do not count.
    """

    event_id: Named[str] = _id(primary_key=True)
    endpoint_id: Named[str] = _id(primary_key=True)
    state: Named[str] = Column(Text, server_default=text("'pending'"))
    trigger: Named[str] = Column(Text, server_default=text("'auto'"))
    attempts: Named[int] = Column(Integer, server_default=text("0"))
    spared: Named[int] = Column(Integer, server_default=text("0"))
    earlier: Named[int] = Column(Integer, server_default=text("0"))
    next_attempt_at: Named[datetime] = _instant()
    lease_token: Named[UUID | None] = Column(Uuid)
    lease_until: Named[datetime | None] = _instant()
    created_at: Named[datetime] = _instant()
    aging_since: Named[datetime] = _instant()
    still_before: Named[timedelta] = Column(Interval)
    settled_at: Named[datetime | None] = _instant()
    replays: Named[int] = Column(Integer, server_default=text("0"))
    replayed_at: Named[datetime | None] = _instant()
    replayed_by: Named[str | None] = Column(Text)


deliveries = Table(
    "deliveries",
    metadata,
    DeliveryColumns,
    CheckConstraint("state IN ('pending', 'delivered', 'dead', 'cancelled')", name="deliveries_state"),
    CheckConstraint("trigger IN ('auto', 'replay', 'test')", name="deliveries_trigger"),
    CheckConstraint("attempts >= spared AND spared >= 0", name="deliveries_attempts"),
    CheckConstraint("earlier >= 0 AND earlier <= spared", name="deliveries_earlier"),
    CheckConstraint("(state = 'pending') = (settled_at IS NULL)", name="deliveries_settled_at"),
    CheckConstraint(
        "(lease_token IS NULL) = (lease_until IS NULL) AND (state = 'pending' OR lease_token IS NULL)",
        name="deliveries_lease",
    ),
    Index("deliveries_due", "endpoint_id", "next_attempt_at", postgresql_where=text("state = 'pending'")),
    Index("deliveries_created_at", "created_at"),
)


class AttemptColumns(TypedColumns):
    """One HTTP request, written before it is sent; without a duration, nobody recorded how it ended."""

    event_id: Named[str] = _id(primary_key=True)
    endpoint_id: Named[str] = _id(primary_key=True)
    number: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    trigger: Named[str] = Column(Text)
    started_at: Named[datetime] = _instant()
    key_ids: Named[list[str]] = Column(ARRAY(Text))
    worker: Named[str] = Column(Text)
    duration: Named[timedelta | None] = Column(Interval)
    peer: Named[str | None] = Column(Text)
    status: Named[int | None] = Column(Integer)
    failure: Named[str | None] = Column(Text)
    detail: Named[str | None] = Column(Text)


attempts = Table(
    "attempts",
    metadata,
    AttemptColumns,
    Index("attempts_started_at", "started_at", postgresql_using="brin"),
)


class ReminderColumns(TypedColumns):
    """A reminder by one channel before one deadline. `next_at`: when somebody must look at it again, a lease's end too.

    `message` is the frozen text with its address; `uncertain`: an attempt may have been accepted, and nobody knows.
    """

    key: Named[str] = _id(primary_key=True)
    hold_id: Named[str] = _id()
    channel: Named[str] = Column(Text)
    expires_at: Named[datetime] = _instant()
    lead: Named[timedelta] = Column(Interval)
    due_at: Named[datetime] = _instant()
    state: Named[str] = Column(Text, server_default=text("'scheduled'"))
    reason: Named[str | None] = Column(Text)
    next_at: Named[datetime] = _instant()
    token: Named[UUID | None] = Column(Uuid)
    attempts: Named[int] = Column(Integer, server_default=text("0"))
    uncertain: Named[bool] = Column(Boolean, server_default=text("false"))
    message: Named[dict[str, Any] | None] = Column(JSONB)
    provider: Named[str | None] = Column(Text)
    provider_id: Named[str | None] = Column(Text)
    first_attempt_at: Named[datetime | None] = _instant()
    covered_by: Named[str | None] = _id()
    created_at: Named[datetime] = _instant()
    settled_at: Named[datetime | None] = _instant()
    decision: Named[str | None] = Column(Text)
    decided_at: Named[datetime | None] = _instant()
    decided_by: Named[str | None] = Column(Text)


reminders = Table(
    "reminders",
    metadata,
    ReminderColumns,
    CheckConstraint("channel IN ('email', 'sms')", name="reminders_channel"),
    CheckConstraint("lead > '0'::interval", name="reminders_lead"),
    CheckConstraint(
        "state IN ('scheduled', 'claimed', 'sent', 'suppressed', 'cancelled', 'failed', 'unknown')",
        name="reminders_state",
    ),
    CheckConstraint("(state IN ('scheduled', 'claimed')) = (settled_at IS NULL)", name="reminders_settled_at"),
    CheckConstraint("attempts >= 0 AND (attempts = 0) = (first_attempt_at IS NULL)", name="reminders_attempts"),
    CheckConstraint("decision IN ('resend', 'leave')", name="reminders_decision"),
    CheckConstraint(
        "(decision IS NULL) = (decided_at IS NULL) AND (decision IS NULL) = (decided_by IS NULL)",
        name="reminders_decided",
    ),
    Index("reminders_due", "channel", "next_at", postgresql_where=text("state IN ('scheduled', 'claimed')")),
)


class ReminderAttemptColumns(TypedColumns):
    """One request to a provider, written before it is made; without an outcome, nobody recorded how it ended."""

    key: Named[str] = _id(primary_key=True)
    number: Named[int] = Column(Integer, primary_key=True, autoincrement=False)
    started_at: Named[datetime] = _instant()
    worker: Named[str] = Column(Text)
    provider: Named[str] = Column(Text)
    outcome: Named[str | None] = Column(Text)
    reason: Named[str | None] = Column(Text)
    duration: Named[timedelta | None] = Column(Interval)


reminder_attempts = Table(
    "reminder_attempts",
    metadata,
    ReminderAttemptColumns,
    CheckConstraint("outcome IN ('accepted', 'deferred', 'rejected', 'unknown')", name="reminder_attempts_outcome"),
)
