"""Which path a cohort came from, and when; the messages that carry holds over a bridge, and how the bridge stands.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = """
ALTER TABLE cohort_paths ADD COLUMN came_from text
    CONSTRAINT cohort_paths_came_from CHECK (came_from IN ('sweep', 'infrai', 'scanner'));
ALTER TABLE cohort_paths ADD COLUMN routed_at timestamptz;
ALTER TABLE cohort_paths ADD COLUMN bridged_at timestamptz;

CREATE TABLE bridge_messages (
    hold_id       text COLLATE "C" NOT NULL,
    version       integer NOT NULL,
    try           integer NOT NULL DEFAULT 1 CONSTRAINT bridge_messages_try CHECK (try >= 1),
    expires_at    timestamptz NOT NULL,
    publish_at    timestamptz NOT NULL,
    batch         text,
    batch_at      timestamptz,
    claimed_until timestamptz,
    message_id    text,
    published_at  timestamptz,
    PRIMARY KEY (hold_id, version, try),
    CONSTRAINT bridge_messages_batch
        CHECK ((batch IS NULL) = (batch_at IS NULL) AND (batch IS NULL) = (claimed_until IS NULL)),
    CONSTRAINT bridge_messages_published CHECK (published_at IS NULL OR batch IS NOT NULL)
);
CREATE INDEX bridge_messages_due ON bridge_messages (publish_at) WHERE published_at IS NULL AND batch IS NULL;
CREATE INDEX bridge_messages_under_way ON bridge_messages (batch) WHERE published_at IS NULL AND batch IS NOT NULL;

CREATE TABLE bridge (
    name       text PRIMARY KEY,
    paused_at  timestamptz,
    paused_by  text,
    wait_until timestamptz,
    reason     text,
    CONSTRAINT bridge_paused CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);
INSERT INTO bridge (name) VALUES ('infrai');
"""


def upgrade() -> None:
    op.execute(_TABLES)
