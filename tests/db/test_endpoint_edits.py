"""An endpoint is read and changed under one lock."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from db import endpoint_edits, endpoint_events, endpoint_keys, endpoints
from db.endpoint_keys import SealedKey
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
        endpoints.locked(tx, EP)
    hooks.endpoint("ep")
    hooks.call(endpoints.delete)
    with pytest.raises(BadInput, match="'ep' is deleted for ever"), hooks.database.transaction() as tx:
        endpoints.locked(tx, EP)


def test_what_needs_an_endpoint_writes_nothing_where_there_is_none_or_a_deleted_one(hooks: Hooks) -> None:
    key = SealedKey("second", "v1", b"sealed")
    for deleted in (False, True):
        if deleted:
            hooks.endpoint("ep")
            hooks.call(endpoints.delete)
        before = hooks.everything()
        for function, arguments in (
            (endpoint_keys.rotate, {"key": key, "grace": timedelta(0)}), (endpoint_keys.revoke, {"key_id": "key-ep"}),
            (endpoint_events.try_out, {}),
        ):  # fmt: skip
            with pytest.raises(BadInput, match="'ep'"):
                hooks.call(function, "ep", **arguments)
        with hooks.database.transaction() as tx, pytest.raises(BadInput):
            endpoint_events.try_out(tx, EP)  # and nothing either if the caller goes on
        assert hooks.everything() == before


def test_an_endpoint_is_made_with_its_key_or_not_at_all(hooks: Hooks) -> None:
    key = SealedKey("first", "v1", b"sealed")
    with hooks.database.transaction() as tx:
        endpoint_edits.make(tx, EP, Terms(url="https://a.example.com/"), key)
    assert hooks.call(endpoint_keys.live) == [key]
    before = hooks.everything()
    with pytest.raises(BadInput, match="is an endpoint already"), hooks.database.transaction() as tx:
        endpoint_edits.make(tx, EP, Terms(url="https://b.example.com/"), SealedKey("other", "v1", b"sealed"))
    assert hooks.everything() == before
