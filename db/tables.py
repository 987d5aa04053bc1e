"""Every table, as typed columns. The migrations make them; a test holds the two together.

All instants are `timestamptz`, all money is in integer minor units. `Named[datetime]` alone would make a naive
column, so the type is spelled.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Named,
    SmallInteger,
    Table,
    Text,
    TypedColumns,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData()


def _instant(**options: Any) -> Column[Any]:
    return Column(DateTime(timezone=True), **options)


def _id(**options: Any) -> Column[Any]:
    return Column(Text(collation="C"), **options)


class HoldColumns(TypedColumns):
    """A hold; `claimed_run`, `claimed_until` and `claims` belong to the sweep, `set_aside` to the operator."""

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
    """A fact for others, with the exact bytes that every attempt sends."""

    event_id: Named[str] = _id(primary_key=True)
    hold_id: Named[str] = _id()
    type: Named[str] = Column(Text)
    occurred_at: Named[datetime] = _instant()
    body: Named[bytes] = Column(LargeBinary)


events = Table("events", metadata, EventColumns)


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
    """Which path drives a cohort."""

    cohort: Named[int] = Column(SmallInteger, primary_key=True, autoincrement=False)
    path: Named[str] = Column(Text, server_default=text("'sweep'"))


cohort_paths = Table(
    "cohort_paths",
    metadata,
    CohortPathColumns,
    CheckConstraint("cohort BETWEEN 0 AND 99", name="cohort_paths_cohort"),
    CheckConstraint("path IN ('sweep', 'infrai', 'scanner')", name="cohort_paths_path"),
)
