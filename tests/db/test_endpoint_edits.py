"""An endpoint is read and changed under one lock."""

import threading
from dataclasses import replace

import pytest

from db import endpoint_edits, endpoints
from db.engine import Database
from domain.endpoints import EndpointId, Terms
from domain.errors import BadInput
from tests.hooks import Hooks

EP = EndpointId("ep")


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def test_changes_made_at_once_do_not_undo_each_other(hooks: Hooks) -> None:
    """Eight threads add one slot each."""
    hooks.endpoint("ep", slots=1)
    barrier = threading.Barrier(8)

    def one_more(terms: Terms) -> Terms:
        return replace(terms, slots=terms.slots + 1)

    def work() -> None:
        barrier.wait()
        with hooks.database.transaction() as tx:
            endpoint_edits.change(tx, EP, one_more)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hooks.see().terms.slots == 9


def test_a_change_that_cannot_be_leaves_the_endpoint_as_it_is(hooks: Hooks) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    with pytest.raises(BadInput, match="slots: must lie between"), hooks.database.transaction() as tx:
        endpoint_edits.change(tx, EP, lambda terms: replace(terms, slots=0))
    assert hooks.everything() == before


def test_a_deleted_endpoint_and_one_that_never_was_are_refused(hooks: Hooks) -> None:
    with pytest.raises(BadInput, match="there is no endpoint 'ep'"), hooks.database.transaction() as tx:
        endpoint_edits.locked(tx, EP)
    hooks.endpoint("ep")
    hooks.call(endpoints.delete)
    with pytest.raises(BadInput, match="'ep' is deleted for ever"), hooks.database.transaction() as tx:
        endpoint_edits.locked(tx, EP)
