"""How long an endpoint's last request took, and failures in a row that are ours: what the lane shares itself out by.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"

_CHANGES = """
ALTER TABLE endpoint_slots ADD COLUMN took interval;
ALTER TABLE endpoint_slots ADD COLUMN took_at timestamptz;
ALTER TABLE endpoints ADD COLUMN our_failures integer NOT NULL DEFAULT 0;
"""


def upgrade() -> None:
    op.execute(_CHANGES)
