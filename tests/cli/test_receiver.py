"""The demo's receiver: it believes what is signed, and knows an event again."""

import time
from collections.abc import Iterator

import pytest

from cli.demo_webhooks import Door, broken_thrice, shop
from cli.receiver import AWAY, BROKEN, WELL, Receiver, Reply, Seen
from domain.signing import HmacKey, signed_headers

KEY = HmacKey(bytes(range(32)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver({"/a": lambda _: WELL, "/b": lambda _: BROKEN}) as receiver:
        receiver.trust("/a", KEY.reveal())
        yield receiver


def hear(receiver: Receiver, event: str, *, path: str = "/a", key: HmacKey = KEY, age: int = 0) -> Reply:
    return receiver.hear(path, signed_headers([key], event, int(time.time()) - age, b"{}"), b"{}")


def seen(event: str, *, times: int = 1, place: int = 1) -> Seen:
    return Seen("/a", event, verified=True, body=b"{}", time=times, place=place)


def test_an_event_that_comes_again_is_known_by_its_id(receiver: Receiver) -> None:
    assert [hear(receiver, event) for event in ("one", "two", "one")] == [WELL] * 3
    assert receiver.seen("/a") == [seen("one"), seen("two", place=2), seen("one", times=2)]


def test_what_another_signed_what_is_old_and_what_has_no_secret_is_refused(receiver: Receiver) -> None:
    assert hear(receiver, "forged", key=HmacKey(b"x" * 32)) == Reply(401)
    assert hear(receiver, "old", age=360) == Reply(401)
    assert hear(receiver, "unknown", path="/b") == Reply(401)
    assert receiver.hear("/a", {}, b"{}") == Reply(401)
    assert [request.verified for path in ("/a", "/b") for request in receiver.seen(path)] == [False] * 4


def test_the_behaviours_are_bad_where_the_demo_shows_it_and_well_afterwards() -> None:
    assert [shop(seen("e", place=place)).status for place in range(1, 10)] == [204] * 4 + [503] + [204] * 2 + [500, 204]
    assert shop(seen("e", place=5)).retry_after == 2
    assert shop(seen("e", place=8, times=2)) == WELL
    assert [broken_thrice(seen("e", times=times)) for times in range(1, 5)] == [BROKEN] * 3 + [WELL]
    door = Door()
    assert door(seen("e")) == AWAY
    door.open = True
    assert door(seen("e")) == WELL
