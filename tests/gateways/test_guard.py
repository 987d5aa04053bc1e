"""Names are looked up once, every address is checked, and only a checked one is connected to."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from domain.addresses import NOT_ALLOWED
from domain.errors import BadInput
from domain.webhooks import Answered, Failed, FailureKind
from gateways import pinned
from gateways.resolver import NameUnknown, Resolver, ResolverSilent, SockAddr
from gateways.webhook import Limits, Sender
from tests.gateways.posts import post
from tests.gateways.receiver import Receiver, answer, receiving, saying_last

PUBLIC = "93.184.215.14"
BLOCKED = Failed(FailureKind.BLOCKED, NOT_ALLOWED, None, sent=False)

Answers = list[tuple[object, object, object, object, object]]


def found(*addresses: str, port: int = 443) -> Answers:
    """As the system's look-up gives them."""
    return [
        (socket.AF_INET6, 1, 6, "", (address, port, 0, 0)) if ":" in address else (2, 1, 6, "", (address, port))
        for address in addresses
    ]


def resolving(lookup: Callable[[str, int], Answers], *, loopback: bool = False, **bounds: Any) -> Resolver:
    return Resolver(loopback=loopback, lookup=lambda host, port, **_: lookup(host, port), **bounds)


def sending(resolver: Resolver, deadline: float = 5) -> contextlib.closing[Sender]:
    """A sender that may use every port, but only the addresses its resolver allows."""
    return contextlib.closing(Sender(Limits(deadline=timedelta(seconds=deadline)), dangerous=True, resolver=resolver))


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Callable[[Receiver], list[SockAddr]]:
    """Let the public address lead to a receiver here; returns what was connected to."""

    def route(receiver: Receiver) -> list[SockAddr]:
        opened: list[SockAddr] = []
        really = pinned._open

        def open_(family: socket.AddressFamily, at: SockAddr, limit: float) -> socket.socket:
            opened.append(at)
            return really(family, ("127.0.0.1", receiver.port) if at[0] == PUBLIC else at, limit)

        monkeypatch.setattr(pinned, "_open", open_)
        return opened

    return route


def test_a_name_that_turns_to_loopback_after_the_check_never_reaches_it(
    internet: Callable[[Receiver], list[SockAddr]],
) -> None:
    with receiving(saying_last(answer())) as outside, receiving(saying_last(answer())) as inside:
        answers = iter([found(PUBLIC, port=inside.port), *[found("127.0.0.1", port=inside.port)] * 9])
        opened = internet(outside)
        with sending(resolving(lambda _host, _port: next(answers))) as sender:
            url = f"http://rebind.example:{inside.port}/"
            assert sender.send(post(url)) == Answered(200, "ok", None, f"{PUBLIC}:{inside.port}")
            assert outside.finished.acquire(timeout=5)
            assert sender.send(post(url)) == BLOCKED
        assert opened == [(PUBLIC, inside.port)]
        assert outside.requests[0].headers["Host"] == f"rebind.example:{inside.port}"
        assert inside.connections == 0


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"], ["::1"], [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], [PUBLIC, "10.0.0.1"],
        ["169.254.169.254"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["fe80::1%lo"],
        [PUBLIC, *["8.8.8.8"] * 9, "::1"],
    ],
    ids=lambda addresses: ",".join(dict.fromkeys(addresses)),
)  # fmt: skip
def test_one_bad_address_among_a_names_blocks_it(
    internet: Callable[[Receiver], list[SockAddr]], addresses: list[str]
) -> None:
    with receiving(saying_last(answer())) as receiver:
        opened = internet(receiver)
        with sending(resolving(lambda _host, port: found(*addresses, port=port))) as sender:
            assert sender.send(post(f"http://mixed.example:{receiver.port}/")) == BLOCKED
        assert opened == []
        assert receiver.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://[::1]/", "https://10.1.2.3/", "https://169.254.169.254/latest", "https://[fc00::1]/",
        "https://localhost/", "https://intranet/", "https://[::ffff:10.0.0.1]/",
    ],
)  # fmt: skip
def test_blocked_targets_all_look_the_same(url: str) -> None:
    with contextlib.closing(Sender(Limits(), resolver=resolving(lambda *_: pytest.fail("was looked up")))) as sender:
        assert sender.send(post(url)) == BLOCKED
        with pytest.raises(BadInput) as refused:
            sender.check(url)
    assert str(refused.value) == f"url: {NOT_ALLOWED}"


def test_a_name_that_leads_inside_is_refused_when_an_endpoint_is_made() -> None:
    resolver = resolving(lambda *_: found(PUBLIC, "192.168.1.1"))
    with contextlib.closing(Sender(Limits(), resolver=resolver)) as sender, pytest.raises(BadInput) as refused:
        sender.check("https://hooks.example.com/")
    assert str(refused.value) == f"url: {NOT_ALLOWED}"


def test_a_public_name_is_accepted_when_an_endpoint_is_made() -> None:
    with contextlib.closing(Sender(Limits(), resolver=resolving(lambda *_: found(PUBLIC)))) as sender:
        assert sender.check("https://Hooks.Example.com:443/x").url == "https://hooks.example.com/x"


@pytest.mark.parametrize(
    ("errno", "said"),
    [
        (socket.EAI_NONAME, "url: has a host without an address; check its spelling"),
        (socket.EAI_AGAIN, "url: cannot be checked: the resolver gives no answer; try again"),
    ],
    ids=["no such name", "no answer"],
)
def test_a_name_that_cannot_be_checked_is_refused_when_an_endpoint_is_made(errno: int, said: str) -> None:
    resolver = resolving(failing(errno))
    with contextlib.closing(Sender(Limits(), resolver=resolver)) as sender, pytest.raises(BadInput) as refused:
        sender.check("https://hooks.example.com/")
    assert str(refused.value) == said


def failing(errno: int) -> Callable[[str, int], Answers]:
    def lookup(_host: str, _port: int) -> Answers:
        raise socket.gaierror(errno, "as told")

    return lookup


NO_ADDRESS = Failed(FailureKind.DNS, "the host has no address", None, sent=False)


@pytest.mark.parametrize(
    "lookup",
    [
        failing(socket.EAI_NONAME),
        failing(socket.EAI_NODATA),
        failing(socket.EAI_ADDRFAMILY),
        lambda *_: [],
    ],
    ids=["no name", "no data", "none of our families", "nothing"],
)
def test_a_name_without_an_address_is_the_receivers_fault(lookup: Callable[[str, int], Answers]) -> None:
    with sending(resolving(lookup)) as sender:
        assert sender.send(post("https://hooks.example.com/")) == NO_ADDRESS


@pytest.mark.parametrize(
    "name",
    sorted({name for name in dir(socket) if name.startswith("EAI_")} - {"EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY"}),
)
def test_every_other_word_of_the_resolver_is_a_fault_of_ours(name: str) -> None:
    with sending(resolving(failing(getattr(socket, name)))) as sender:
        failed = sender.send(post("https://hooks.example.com/"))
    assert failed == Failed(FailureKind.OURS, "the resolver fails: as told", None, sent=False)


def test_a_look_up_has_a_limit_of_its_own() -> None:
    go_on = threading.Event()

    def hang(_host: str, _port: int) -> Answers:
        go_on.wait(10)
        return found(PUBLIC)

    with sending(resolving(hang, longest=0.2), deadline=8) as sender:
        started = time.monotonic()
        failed = sender.send(post("https://slow.example/"))
        took = time.monotonic() - started
        go_on.set()
    assert failed == Failed(FailureKind.OURS, "the resolver fails: no answer in time", None, sent=False)
    assert 0.2 <= took < 4
    assert Resolver()._longest == 4.0


def test_a_look_up_that_hangs_ends_at_the_deadline_and_holds_one_thread() -> None:
    go_on = threading.Event()
    asked: list[str] = []

    def hang(host: str, _port: int) -> Answers:
        asked.append(host)
        go_on.wait(10)
        return found(PUBLIC)

    with sending(resolving(hang), 0.3) as sender, ThreadPoolExecutor(5) as pool:
        started = time.monotonic()
        results = list(pool.map(lambda _: sender.send(post("https://slow.example/")), range(5)))
        took = time.monotonic() - started
        looking = [thread for thread in threading.enumerate() if thread.name == "look-up"]
        go_on.set()
    assert results == [Failed(FailureKind.OURS, "the resolver fails: no answer in time", None, sent=False)] * 5
    assert 0.3 <= took < 3
    assert asked == ["slow.example"]
    assert len(looking) == 1
    looking[0].join(5)


def test_look_ups_that_hang_are_bounded_and_leave_the_others_working() -> None:
    go_on = threading.Event()

    def hang(_host: str, _port: int) -> Answers:
        go_on.wait(10)
        return found(PUBLIC)

    resolver = resolving(hang, at_once=2)
    for name in ("a.example", "b.example"):
        with pytest.raises(ResolverSilent, match="no answer in time"):
            resolver.addresses(name, 443, 0.01)
    with pytest.raises(ResolverSilent, match="2 look-ups are under way"):
        resolver.addresses("c.example", 443, 0.01)
    assert resolver.addresses("8.8.8.8", 443, 0.01) == [(socket.AF_INET, ("8.8.8.8", 443))]
    go_on.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "look-up"]:
        thread.join(5)
    assert resolver.addresses("c.example", 443, 5) == [(socket.AF_INET, (PUBLIC, 443))]


def test_as_many_silent_names_as_a_lane_can_leave_behind_keep_no_other_name_from_being_looked_up() -> None:
    go_on = threading.Event()

    def lookup(host: str, _port: int) -> Answers:
        if host != "well.example":
            go_on.wait(10)
        return found(PUBLIC)

    resolver = resolving(lookup)
    lane, longest, systems_own = 48 // 2, 4, 30
    for number in range(lane * systems_own // longest):
        with pytest.raises(ResolverSilent, match="no answer in time"):
            resolver.addresses(f"silent-{number}.example", 443, 0.001)
    assert resolver.addresses("well.example", 443, 5) == [(socket.AF_INET, (PUBLIC, 443))]
    go_on.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "look-up"]:
        thread.join(5)


def test_each_connection_looks_up_anew() -> None:
    answers = iter([found(PUBLIC), found("8.8.8.8"), []])
    resolver = resolving(lambda *_: next(answers))
    assert resolver.addresses("x.example", 443, 5) == [(socket.AF_INET, (PUBLIC, 443))]
    assert resolver.addresses("x.example", 443, 5) == [(socket.AF_INET, ("8.8.8.8", 443))]
    with pytest.raises(NameUnknown):
        resolver.addresses("x.example", 443, 5)


def test_an_address_that_is_silent_leaves_time_for_the_next(
    internet: Callable[[Receiver], list[SockAddr]], crowded: int
) -> None:
    with receiving(saying_last(answer())) as receiver:
        opened = internet(receiver)
        answers = [*found("127.0.0.1", port=crowded), *found(PUBLIC)]
        with sending(resolving(lambda *_: answers, loopback=True), 1.0) as sender:
            assert sender.send(post("http://two.example/")) == Answered(200, "ok", None, f"{PUBLIC}:443")
        assert opened == [("127.0.0.1", crowded), (PUBLIC, 443)]


def test_an_address_that_refuses_is_followed_by_the_next(internet: Callable[[Receiver], list[SockAddr]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    with receiving(saying_last(answer())) as receiver:
        opened = internet(receiver)
        answers = [(2, 1, 6, "", ("127.0.0.1", nobody)), (2, 1, 6, "", (PUBLIC, 443))]
        with sending(resolving(lambda *_: list(answers), loopback=True)) as sender:
            assert sender.send(post("http://two.example/")) == Answered(200, "ok", None, f"{PUBLIC}:443")
        assert opened == [("127.0.0.1", nobody), (PUBLIC, 443)]
