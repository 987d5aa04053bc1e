"""One address guard at every door: where an endpoint is made, edited, tested, sent to and replayed."""

import pytest

from domain.addresses import NOT_ALLOWED
from domain.endpoints import EndpointId
from settings import settings
from tasks import sending
from tasks.delivery import Drain
from tests.cli.conftest import Command
from tests.cli.endpoint_steps import add, refused
from tests.gateways.receiver import answer, receiving, saying
from tests.hooks import BROKEN, Hooks

pytestmark = pytest.mark.usefixtures("vault")


BAD = {
    "a user and password": ("https://ada:pw@93.184.215.14/", "holds a user name or password"),
    "a fragment": ("https://93.184.215.14/#top", "has a fragment"),
    "plain http": ("http://93.184.215.14/", "must begin with https://"),
    "port 0": ("https://93.184.215.14:0/", "has a bad port"),
    "port 99999": ("https://93.184.215.14:99999/", "has a bad port"),
    "another port": ("https://93.184.215.14:22/", "has a port that is not open to webhooks"),
    "a bad host": ("https://ex ample.com/", "has a bad host"),
    "a private address": ("https://10.1.2.3/", NOT_ALLOWED),
    "loopback": ("https://127.0.0.1/", NOT_ALLOWED),
    "loopback by name": ("https://localhost/", NOT_ALLOWED),
    "loopback in IPv6": ("https://[::1]/", NOT_ALLOWED),
    "an inner address in NAT64": ("https://[64:ff9b::a00:1]/", NOT_ALLOWED),
    "a cloud's metadata": ("https://169.254.169.254/", NOT_ALLOWED),
    "one number": ("https://2130706433/", "has an address in an odd notation"),
    "hexadecimal": ("https://0x7f.1/", "has an address in an odd notation"),
}


@pytest.mark.parametrize(("url", "cause"), BAD.values(), ids=BAD)
def test_a_url_that_no_webhook_may_go_to_is_refused_when_added_and_when_edited(
    holdfast: Command, hooks: Hooks, url: str, cause: str
) -> None:
    hooks.endpoint("ep")
    before = hooks.everything()
    for command in (("add", url, "--id", "new"), ("edit", "ep", "--url", url)):
        said = holdfast("endpoints", *command, "--json")
        assert (said.code, said.out) == (2, "")
        assert said.complaint.startswith(f"url: {cause}")
    assert hooks.everything() == before


def test_the_dangerous_setting_opens_loopback_and_plain_http(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "true")
    assert add(holdfast, url="http://127.0.0.1:8080/x")["url"] == "http://127.0.0.1:8080/x"


def test_test_asks_the_address_guard_again(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep", url="https://10.0.0.1/")
    before = hooks.everything()
    said = holdfast("endpoints", "test", "ep", "--json")
    assert refused(said) == f"url: {NOT_ALLOWED}"
    assert hooks.everything() == before


def test_what_is_sent_and_what_is_replayed_goes_through_the_guard_of_that_moment(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that was let in once: the setting is closed since, as a name may point elsewhere since."""
    monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "true")
    with receiving(saying(answer())) as receiver:
        add(holdfast, "--max-attempts", "1", url=f"http://127.0.0.1:{receiver.port}/hooks")
        hooks.placed("h")
        hooks.attempt(BROKEN)
        hooks.placed("k")
        monkeypatch.setenv("HOLDFAST_DANGEROUS_WEBHOOK_TARGETS", "false")
        settings.cache_clear()
        sending.sender.cache_clear()
        assert holdfast("deliveries", "replay", "--endpoint", "ep", "--operator", "jo").code == 0
        hooks.make_due()
        drain = Drain(db=hooks.database, send=sending.send, policy=hooks.policy, worker="worker@test")
        assert drain(EndpointId("ep")).sent == 2
        sending.sender().close()
        assert receiver.requests == []
    for event, number, trigger in (("reservation-placed:k:1", 1, "auto"), ("reservation-placed:h:1", 2, "replay")):
        made = hooks.attempts(event)[-1]
        assert (made.number, made.trigger, made.failure, made.status, made.peer) == (
            number, trigger, "blocked", None, None,
        )  # fmt: skip
        assert hooks.delivery(event).state == "pending"


def test_a_dead_letters_replay_goes_through_the_guard_as_well(holdfast: Command, hooks: Hooks) -> None:
    add(holdfast, "--max-attempts", "1")
    hooks.placed("h")
    hooks.attempt(BROKEN)
    hooks.sql("UPDATE endpoints SET url = 'https://169.254.169.254/'")
    assert holdfast("dead-letters", "replay", "1", "--operator", "jo").code == 0
    hooks.make_due()
    drain = Drain(db=hooks.database, send=sending.send, policy=hooks.policy, worker="worker@test")
    assert drain(EndpointId("ep")).sent == 1
    sending.sender().close()
    made = hooks.attempts()[-1]
    assert (made.trigger, made.failure, made.detail) == ("replay", "blocked", NOT_ALLOWED)
