"""How a hold's customer is reached; reminders and their attempts.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"

_TABLES = """
ALTER TABLE holds ADD COLUMN email text;
ALTER TABLE holds ADD COLUMN phone text;
ALTER TABLE holds ADD COLUMN locale text;
ALTER TABLE holds ADD COLUMN leads interval[];
ALTER TABLE holds ADD CONSTRAINT holds_leads
    CHECK (leads IS NOT NULL OR (email IS NULL AND phone IS NULL AND locale IS NULL));

CREATE TABLE reminders (
    key              text COLLATE "C" PRIMARY KEY,
    hold_id          text COLLATE "C" NOT NULL,
    channel          text NOT NULL CONSTRAINT reminders_channel CHECK (channel IN ('email', 'sms')),
    expires_at       timestamptz NOT NULL,
    lead             interval NOT NULL CONSTRAINT reminders_lead CHECK (lead > '0'::interval),
    due_at           timestamptz NOT NULL,
    state            text NOT NULL DEFAULT 'scheduled' CONSTRAINT reminders_state CHECK (
                         state IN ('scheduled', 'claimed', 'sent', 'suppressed', 'cancelled', 'failed', 'unknown')),
    reason           text,
    next_at          timestamptz NOT NULL,
    token            uuid,
    attempts         integer NOT NULL DEFAULT 0,
    uncertain        boolean NOT NULL DEFAULT false,
    message          jsonb,
    provider         text,
    provider_id      text,
    first_attempt_at timestamptz,
    covered_by       text COLLATE "C",
    created_at       timestamptz NOT NULL,
    settled_at       timestamptz,
    decision         text CONSTRAINT reminders_decision CHECK (decision IN ('resend', 'leave')),
    decided_at       timestamptz,
    decided_by       text,
    CONSTRAINT reminders_settled_at CHECK ((state IN ('scheduled', 'claimed')) = (settled_at IS NULL)),
    CONSTRAINT reminders_attempts CHECK (attempts >= 0 AND (attempts = 0) = (first_attempt_at IS NULL)),
    CONSTRAINT reminders_decided CHECK (
        (decision IS NULL) = (decided_at IS NULL) AND (decision IS NULL) = (decided_by IS NULL)
    )
) WITH (
    fillfactor = 80,
    -- the due index is read from its old end every second: dead entries there must not pile up
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX reminders_due ON reminders (channel, next_at) WHERE state IN ('scheduled', 'claimed');

CREATE TABLE reminder_attempts (
    key        text COLLATE "C" NOT NULL,
    number     integer NOT NULL,
    started_at timestamptz NOT NULL,
    worker     text NOT NULL,
    provider   text NOT NULL,
    outcome    text CONSTRAINT reminder_attempts_outcome
               CHECK (outcome IN ('accepted', 'deferred', 'rejected', 'unknown')),
    reason     text,
    duration   interval,
    PRIMARY KEY (key, number)
) WITH (fillfactor = 80);
"""


def upgrade() -> None:
    op.execute(_TABLES)
