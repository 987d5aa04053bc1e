"""What the tests of the guarded changes share."""

import pytest

from db.engine import Database
from tests.helpers import Desk, Sweeper


@pytest.fixture
def desk(database: Database) -> Desk:
    """Commands against a fresh database."""
    return Desk(database)


@pytest.fixture
def sweeper(database: Database) -> Sweeper:
    """The sweep's own path."""
    return Sweeper(database)
