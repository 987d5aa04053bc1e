"""For operators: deliveries in the order of time, a replay's place on the ladder, since when bounds hold.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"

_CHANGES = """
-- a chunk's deliveries share an instant, and equal keys are kept as one: 7 bytes a row
CREATE INDEX deliveries_created_at ON deliveries (created_at);
ALTER TABLE deliveries ADD COLUMN earlier integer NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_earlier CHECK (earlier >= 0 AND earlier <= spared);
ALTER TABLE endpoints ADD COLUMN bounds_since timestamptz;
"""


def upgrade() -> None:
    op.execute(_CHANGES)
