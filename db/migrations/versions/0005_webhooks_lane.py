"""How long an endpoint's last request took, and failures in a row that are ours: what the lane shares itself out by.

Revision ID: 0005
Revises: 0002
"""

from alembic import op

revision = "0005"
down_revision = "0002"

_CHANGES = """
ALTER TABLE endpoint_slots ADD COLUMN took interval;
ALTER TABLE endpoint_slots ADD COLUMN took_at timestamptz;
ALTER TABLE endpoints ADD COLUMN our_failures integer NOT NULL DEFAULT 0;
"""


def upgrade() -> None:
    op.execute(_CHANGES)
