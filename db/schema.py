"""The schema's version: bring it up to date, or say that it is not."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from db.engine import Tx

_ONE_MIGRATION_AT_A_TIME = 0x686F6C64
"""The advisory lock's key."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def newest() -> str:
    """The newest revision this code knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def current(tx: Tx) -> str | None:
    """The database's revision; None before the first migration."""
    return MigrationContext.configure(tx).get_current_revision()


def migrate(tx: Tx, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema to a revision; returns the revisions before and after.

    A schema newer than this code is left as it is: it suits older code too, until the newer code is deployed again.
    Two at once: the second waits for the first's lock, then finds nothing to do. Dies midway: nothing is changed,
    since all of it is this one transaction.
    """
    tx.execute(text("SET LOCAL lock_timeout = 0"))
    tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ONE_MIGRATION_AT_A_TIME})
    before = current(tx)
    if before is not None and before > newest():
        return before, before
    config = _config()
    config.attributes["connection"] = tx
    command.upgrade(config, revision)
    return before, current(tx)
