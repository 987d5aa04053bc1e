"""Endpoints and their keys: made, edited, moved between states, and never forgotten."""

from dataclasses import replace
from datetime import timedelta

import pytest

from db import endpoint_keys, endpoints
from db.endpoint_keys import SealedKey
from db.engine import Database
from domain.endpoints import EndpointId, Overrides, State, Terms, endpoint_id, event_types, new_endpoint_id
from domain.errors import BadInput
from domain.webhooks import Answered
from tests.hooks import BROKEN, NO_WAIT, OK, Hooks, fill_backlog

EP = EndpointId("ep")
TERMS = Terms(
    url="https://new.example/",
    label="the warehouse",
    types=("reservation.placed", "endpoint.failing"),
    overrides=Overrides(
        waits=(timedelta(0), timedelta(seconds=1.5)),
        max_attempts=7,
        max_age=timedelta(days=2),
        client_errors_final=True,
    ),
    slots=8,
    rate=12.5,
)


@pytest.fixture
def hooks(database: Database) -> Hooks:
    return Hooks(database)


def test_what_is_decided_reads_back_as_it_was(hooks: Hooks) -> None:
    with hooks.database.transaction() as tx:
        made = endpoints.add(tx, EP, TERMS)
    assert (made.terms, made.state, made.reason, made.breaker) == (TERMS, State.ENABLED, None, "closed")
    assert hooks.see().terms == TERMS
    assert hooks.count("endpoint_slots") == 8
    plain = Terms(url="https://x.example/")
    assert hooks.call(endpoints.edit, "ep", plain).terms == plain
    assert hooks.see().terms == plain


def test_an_id_is_used_once_also_after_its_endpoint_was_deleted(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.call(endpoints.delete)
    before = hooks.everything()
    with pytest.raises(BadInput, match="'ep' is an endpoint already; use another id"):
        hooks.endpoint()
    assert hooks.everything() == before


@pytest.mark.parametrize("change", [endpoints.pause, endpoints.resume, endpoints.enable, endpoints.delete])
def test_an_endpoint_that_is_not_there_is_said_so(hooks: Hooks, change: object) -> None:
    with pytest.raises(BadInput, match="there is no endpoint 'nobody'; see `holdfast endpoints list`"):
        hooks.call(change, "nobody")


def test_a_disabled_endpoint_is_enabled_by_that_name_only(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.call(endpoints.disable, "ep", "too odd")
    before = hooks.everything()
    with pytest.raises(BadInput, match="'ep' is disabled: too odd; use enable"):
        hooks.call(endpoints.resume)
    with pytest.raises(BadInput, match="'ep' is disabled already: too odd; enable it first"):
        hooks.call(endpoints.pause)
    assert hooks.everything() == before
    assert hooks.call(endpoints.enable).state is State.ENABLED


def test_a_deleted_endpoint_stays_readable_and_its_deliveries_are_cancelled_in_batches(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.endpoint("other")
    fill_backlog(hooks, 2500)
    fill_backlog(hooks, 3, "other", "o")
    assert hooks.call(endpoints.delete).state is State.DELETED
    assert hooks.count("deliveries", "state = 'cancelled'") == 1000
    counts = []
    for _ in range(3):
        with hooks.database.transaction() as tx:
            counts.append(endpoints.cancel_of_deleted(tx))
    assert counts == [1000, 500, 0]
    assert hooks.sql("SELECT endpoint_id, count(*) FROM deliveries WHERE state = 'pending' GROUP BY 1") == [
        ("other", 3)
    ]
    assert (hooks.slot(), hooks.call(endpoint_keys.live)) == (None, [])
    with hooks.database.transaction() as tx:
        assert [e.id for e in endpoints.listing(tx)] == ["other"]
        assert [e.id for e in endpoints.listing(tx, deleted=True)] == ["ep", "other"]
    assert hooks.call(endpoints.delete).state is State.DELETED


def test_a_request_under_way_when_its_endpoint_is_deleted_is_settled_or_cancelled_later(hooks: Hooks) -> None:
    hooks.endpoint()
    fill_backlog(hooks, 2)
    slot = hooks.held()
    taken = hooks.taken(slot)
    hooks.call(endpoints.delete)
    assert sorted(row[0] for row in hooks.sql("SELECT state FROM deliveries")) == ["cancelled", "pending"]
    assert hooks.settle(taken) == "done"
    assert sorted(row[0] for row in hooks.sql("SELECT state FROM deliveries")) == ["cancelled", "delivered"]


@pytest.mark.parametrize(("answer", "state"), [(BROKEN, "cancelled"), (OK, "delivered")], ids=["fails", "accepted"])
def test_the_last_attempt_of_a_deleted_endpoint_leaves_no_dead_letter(
    hooks: Hooks, answer: Answered, state: str
) -> None:
    hooks.endpoint(overrides=Overrides(max_attempts=1))
    hooks.placed("h")
    under_way = hooks.taken(hooks.held())
    hooks.call(endpoints.delete)
    assert hooks.settle(under_way, answer) == "done"
    assert (hooks.delivery().state, hooks.count("dead_letters")) == (state, 0)
    assert hooks.attempts()[0].status == answer.status


# -- keys ------------------------------------------------------------------------------------------------------------


def rotate(hooks: Hooks, key: str, grace: timedelta = timedelta(hours=24), scheme: str = "v1") -> None:
    hooks.call(endpoint_keys.rotate, "ep", SealedKey(key, scheme, key.encode()), grace=grace)


def live(hooks: Hooks) -> list[str]:
    return [key.key_id for key in hooks.call(endpoint_keys.live)]


def test_after_a_rotation_both_keys_sign_until_the_grace_is_over(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "second")
    assert live(hooks) == ["second", "key-ep"]
    hooks.placed("h")
    assert [key.key_id for key in hooks.taken(hooks.held()).keys] == ["second", "key-ep"]
    [(ends,)] = hooks.sql("SELECT expires_at - now() FROM endpoint_keys WHERE expires_at IS NOT NULL")
    assert timedelta(hours=23, minutes=59) < ends <= timedelta(hours=24)
    hooks.sql("UPDATE endpoint_keys SET expires_at = now() WHERE expires_at IS NOT NULL")
    assert live(hooks) == ["second"]


def test_a_later_rotation_gives_no_key_a_longer_life(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "second", timedelta(hours=1))
    rotate(hooks, "third", timedelta(days=7))
    [(ends,)] = hooks.sql("SELECT expires_at - now() FROM endpoint_keys WHERE key_id = 'key-ep'")
    assert ends <= timedelta(hours=1)
    assert live(hooks) == ["third", "second", "key-ep"]
    rotate(hooks, "fourth", NO_WAIT)
    assert live(hooks) == ["fourth"]


def test_a_key_of_the_other_scheme_signs_beside(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "edward", NO_WAIT, scheme="v1a")
    assert live(hooks) == ["edward", "key-ep"]


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), timedelta(days=7, seconds=1)])
def test_a_grace_is_from_nothing_to_a_week(hooks: Hooks, grace: timedelta) -> None:
    hooks.endpoint()
    before = hooks.everything()
    with pytest.raises(BadInput, match="grace: must lie between 0 and 7 days"):
        rotate(hooks, "second", grace)
    with pytest.raises(BadInput, match="secret: is a key of this endpoint already; make a new one"):
        rotate(hooks, "key-ep")
    assert hooks.everything() == before


def test_a_revoked_key_signs_no_more_and_the_last_one_stays(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "second")
    hooks.call(endpoint_keys.revoke, "ep", "key-ep")
    assert live(hooks) == ["second"]
    before = hooks.everything()
    with pytest.raises(BadInput, match="'second' is the only key that signs for good; rotate first, then revoke it"):
        hooks.call(endpoint_keys.revoke, "ep", "second")
    with pytest.raises(BadInput, match="'x' is no key of this endpoint"):
        hooks.call(endpoint_keys.revoke, "ep", "x")
    assert hooks.everything() == before


def test_only_keys_that_ended_are_pruned(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "second", NO_WAIT)
    rotate(hooks, "third")
    with hooks.database.transaction() as tx:
        assert endpoint_keys.prune(tx, kept=timedelta(hours=1)) == 0
        assert endpoint_keys.prune(tx) == 1
    assert [life.key_id for life in hooks.call(endpoint_keys.lives)] == ["third", "second"]


def test_a_secret_never_shows_in_what_is_printed(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.placed("h")
    taken = hooks.taken(hooks.held())
    assert "sealed" not in repr(taken).replace("sealed=", "")


def test_names_and_types_that_cannot_be_are_refused() -> None:
    assert endpoint_id(new_endpoint_id())
    for bad in ("", "a b", "a.b", "x" * 65):
        with pytest.raises(BadInput, match="is no endpoint id; use 1 to 64 of A-Z"):
            endpoint_id(bad)
    assert event_types(["endpoint.failing", "reservation.placed"]) == ("reservation.placed", "endpoint.failing")
    with pytest.raises(BadInput, match=r"'webhook\.test' is no event type; use reservation\.placed, "):
        event_types(["webhook.test"])
    with pytest.raises(BadInput, match="types: are none"):
        event_types([])


def test_a_pace_does_not_outlive_the_rate_that_set_it(hooks: Hooks) -> None:
    with hooks.database.transaction() as tx:
        endpoints.add(tx, EP, TERMS)
    hooks.sql("UPDATE endpoints SET paced_until = now() + interval '1000 s'")
    hooks.call(endpoints.edit, "ep", Terms(url="https://x.example/"))
    assert hooks.sql("SELECT paced_until FROM endpoints") == [(None,)]


def test_an_edit_that_leaves_the_rate_alone_lets_no_request_out_before_its_time(hooks: Hooks) -> None:
    with hooks.database.transaction() as tx:
        endpoints.add(tx, EP, TERMS)
    hooks.sql("UPDATE endpoints SET paced_until = now() + interval '1000 s'")
    before = hooks.sql("SELECT paced_until FROM endpoints")
    hooks.call(endpoints.edit, "ep", replace(TERMS, label="another"))
    assert hooks.sql("SELECT paced_until, label FROM endpoints") == [(before[0][0], "another")]


def test_a_key_whose_successor_would_end_alone_cannot_be_revoked(hooks: Hooks) -> None:
    hooks.endpoint()
    rotate(hooks, "second")
    before = hooks.everything()
    with pytest.raises(BadInput, match="'second' is the only key that signs for good"):
        hooks.call(endpoint_keys.revoke, "ep", "second")
    assert hooks.everything() == before
