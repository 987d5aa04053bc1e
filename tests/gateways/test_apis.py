"""The providers' HTTP APIs: what each of them is sent, and what is certain after each answer and each silence."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trustme

from cli.stand_ins.faults import Fault, Then
from cli.stand_ins.providers import ACCOUNT, API_KEY, TOKEN
from cli.stand_ins.running import StandIns
from domain.errors import BadInput
from domain.reminding import Accepted, Channel, Deferred, Message, Outcome, Rejected, Rendered, Unknown
from gateways.api import check_base_url
from gateways.exchange import uptime
from gateways.messaging import Gateway
from gateways.resend import Resend
from gateways.telnyx import Telnyx
from gateways.twilio import Account, Twilio
from tests.gateways.conftest import ServerContext
from tests.gateways.receiver import Behaviour, answer, dripping, flooding, hanging, receiving, saying, saying_last
from tests.gateways.reminders import BRIEF, DEADLINE, EMAIL, LATER, SENDER, SMS

NUMBER = "+15005550006"


def resend(url: str, deadline: timedelta = DEADLINE, key: str = API_KEY, ca_file: Path | None = None) -> Resend:
    return Resend(key, SENDER, deadline=deadline, url=url, ca_file=ca_file)


def telnyx(url: str, deadline: timedelta = DEADLINE, key: str = API_KEY, ca_file: Path | None = None) -> Telnyx:
    return Telnyx(key, NUMBER, deadline=deadline, url=url, ca_file=ca_file)


def twilio(url: str, deadline: timedelta = DEADLINE, key: str = TOKEN, ca_file: Path | None = None) -> Twilio:
    return Twilio(Account(sid=ACCOUNT, secret=key), NUMBER, deadline=deadline, url=url, ca_file=ca_file)


Make = Callable[..., Gateway]
ALL = pytest.mark.parametrize("make", [resend, telnyx, twilio])


@contextmanager
def open_gateway(make: Make, url: str, **options: object) -> Iterator[Gateway]:
    made = make(url, **options)
    yield made
    made.close()


def message(made: Gateway) -> Message:
    return EMAIL if made.channel is Channel.EMAIL else SMS


def test_resend_is_sent_json_with_the_effect_key() -> None:
    with StandIns() as at, open_gateway(resend, at.url) as made:
        assert made.send(EMAIL, not_after=LATER) == Accepted("0" * 31 + "1")
        (request,) = at.providers.requests
    assert json.loads(request.body) == {
        "from": SENDER, "to": ["anna@example.com"], "subject": EMAIL.text.subject, "text": EMAIL.text.text,
        "html": EMAIL.text.html, "headers": {"Auto-Submitted": "auto-generated"},
    }  # fmt: skip
    assert request.headers["idempotency-key"] == EMAIL.key
    assert request.headers["authorization"] == f"Bearer {API_KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "Holdfast/0.1"
    assert (made.name, made.channel, made.key_window) == ("resend", Channel.EMAIL, timedelta(hours=24))


def test_telnyx_is_sent_json_with_the_effect_key() -> None:
    with StandIns() as at, open_gateway(telnyx, at.url) as made:
        assert made.send(SMS, not_after=LATER) == Accepted("0" * 31 + "1")
        (request,) = at.providers.requests
    assert json.loads(request.body) == {"from": NUMBER, "to": "+4915112345678", "text": "Grüße & Küsse + 1"}
    assert request.headers["idempotency-key"] == SMS.key
    assert request.headers["authorization"] == f"Bearer {API_KEY}"
    assert (made.name, made.channel, made.key_window) == ("telnyx", Channel.SMS, timedelta(hours=24))


def test_twilio_is_sent_a_form_and_no_key() -> None:
    with StandIns() as at, open_gateway(twilio, at.url) as made:
        assert made.send(SMS, not_after=LATER) == Accepted("SM" + "0" * 31 + "1")
        (request,) = at.providers.requests
    assert parse_qs(request.body.decode()) == {
        "From": [NUMBER], "To": ["+4915112345678"], "Body": ["Grüße & Küsse + 1"],
    }  # fmt: skip
    assert "idempotency-key" not in request.headers
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert b64decode(request.headers["authorization"].removeprefix("Basic ")).decode() == f"{ACCOUNT}:{TOKEN}"
    assert (made.name, made.channel, made.key_window) == ("twilio", Channel.SMS, None)


def test_twilio_may_send_through_a_service_and_sign_in_with_a_key() -> None:
    made = Twilio(Account(sid=ACCOUNT, secret="s", key_sid="SK1"), "MG" + "1" * 32, deadline=DEADLINE)
    assert made._sender == {"MessagingServiceSid": "MG" + "1" * 32}
    assert b64decode(Account(sid=ACCOUNT, secret="s", key_sid="SK1").authorization[6:]) == b"SK1:s"


NOTHING_NAMED = Unknown("200, but the answer names no message")
FAULTS: list[tuple[Fault, dict[str, Outcome]]] = [
    (Fault(Then.ANSWER, status=400), {
        "resend": Rejected("answered 400 validation_error"), "telnyx": Rejected("answered 400 10015"),
        "twilio": Rejected("answered 400 21211"),
    }),
    (Fault(Then.ANSWER, status=422), {
        "resend": Rejected("answered 422 validation_error"), "telnyx": Rejected("answered 422 10015"),
        "twilio": Rejected("answered 422 21211"),
    }),
    (Fault(Then.ANSWER, status=401), {
        "resend": Deferred("answered 401 validation_error"), "telnyx": Deferred("answered 401 10015"),
        "twilio": Deferred("answered 401 21211"),
    }),
    (Fault(Then.ANSWER, status=403), {
        "resend": Deferred("answered 403 validation_error"), "telnyx": Deferred("answered 403 10015"),
        "twilio": Deferred("answered 403 21211"),
    }),
    (Fault(Then.ANSWER, status=429, retry_after=7), {
        "resend": Deferred("answered 429 validation_error", timedelta(seconds=7)),
        "telnyx": Deferred("answered 429 10015", timedelta(seconds=7)),
        "twilio": Deferred("answered 429 21211", timedelta(seconds=7)),
    }),
    (Fault(Then.ANSWER, status=500, effect=True), {
        "resend": Unknown("answered 500 validation_error"), "telnyx": Unknown("answered 500 10015"),
        "twilio": Unknown("answered 500 21211"),
    }),
    (Fault(Then.ANSWER, status=409), {
        "resend": Unknown("answered 409 validation_error"), "telnyx": Unknown("answered 409 10015"),
        "twilio": Unknown("answered 409 21211"),
    }),
    (Fault(Then.NONSENSE, effect=True), dict.fromkeys(("resend", "telnyx", "twilio"), NOTHING_NAMED)),
    (Fault(Then.DROP), dict.fromkeys(
        ("resend", "telnyx", "twilio"), Unknown("no answer: Connection reset by peer, waiting for the answer")
    )),
    (Fault(Then.SILENCE, effect=True), dict.fromkeys(
        ("resend", "telnyx", "twilio"), Unknown("no answer: the deadline came waiting for the answer")
    )),
]  # fmt: skip


@ALL
@pytest.mark.parametrize(("fault", "outcomes"), FAULTS)
def test_each_failure_says_what_is_certain(make: Make, fault: Fault, outcomes: dict[str, Outcome]) -> None:
    deadline = BRIEF if fault.then is Then.SILENCE else DEADLINE
    with StandIns() as at, open_gateway(make, at.url, deadline=deadline) as made:
        at.providers.faults.add(fault)
        found = made.send(message(made), not_after=LATER)
        assert _with_any_break(found) == _with_any_break(outcomes[made.name])
        assert len(at.providers.requests) == 1, "there is no second request of its own"
        assert len(at.providers.messages) == fault.effect
    assert "anna" not in str(found)
    assert "4915" not in str(found)


def _with_any_break(outcome: Outcome) -> Outcome:
    """An abort reaches us as a reset or as an end, as the system likes."""
    match outcome:
        case Unknown(reason) if "broken off" in reason or "reset" in reason or "closed" in reason:
            return Unknown("broken off")
    return outcome


@ALL
def test_a_wrong_credential_is_our_configuration(make: Make) -> None:
    with StandIns() as at, open_gateway(make, at.url, key="wrong") as made:
        found = made.send(message(made), not_after=LATER)
        assert isinstance(found, Deferred)
        assert found.reason.startswith("answered 401")
        assert at.providers.messages == []
        assert "wrong" not in str(found)


@pytest.mark.parametrize("make", [resend, telnyx])
def test_a_key_that_is_known_gets_its_first_answer_and_sends_nothing(make: Make) -> None:
    with StandIns() as at, open_gateway(make, at.url, deadline=BRIEF) as made:
        at.providers.faults.add(Fault(Then.SILENCE, effect=True))
        assert isinstance(made.send(message(made), not_after=LATER), Unknown)
        assert [made.send(message(made), not_after=LATER), made.send(message(made), not_after=LATER)] == [
            Accepted("0" * 31 + "1")
        ] * 2
        assert (len(at.providers.requests), len(at.providers.messages)) == (3, 1)


def test_another_text_under_the_same_key_is_told_apart() -> None:
    with StandIns() as at:
        for make, first, outcome in (
            (resend, EMAIL, Unknown("answered 409 invalid_idempotent_request")),
            (telnyx, SMS, Rejected("answered 422 10015")),
        ):
            with open_gateway(make, at.url) as made:
                made.send(first, not_after=LATER)
                changed = Message(first.key, first.channel, first.to, Rendered("other", "other", None))
                assert made.send(changed, not_after=LATER) == outcome
        assert len(at.providers.messages) == 2


@ALL
def test_one_that_comes_too_late_is_not_begun(make: Make) -> None:
    with StandIns() as at, open_gateway(make, at.url) as made:
        late = made.send(message(made), not_after=uptime() - 0.001)
        assert late == Deferred("nothing was sent: this worker stood still since it took the reminder")
        assert at.providers.connections == 0
        assert isinstance(made.send(message(made), not_after=uptime() + 5), Accepted)


@ALL
def test_a_connection_is_used_again(make: Make) -> None:
    with StandIns() as at, open_gateway(make, at.url) as made:
        for _ in range(3):
            assert isinstance(made.send(message(made), not_after=LATER), Accepted)
        assert (at.providers.connections, len(at.providers.requests)) == (1, 3)


OK = b'{"sid": "SM1"}'
ODD: list[tuple[Behaviour, Outcome]] = [
    (saying(answer(201, OK)), Accepted("SM1")),
    (saying(answer(204, b"")), Unknown("204, but the answer names no message")),
    (saying(answer(200, b'{"sid": null}')), NOTHING_NAMED),
    (saying(answer(200, b'{"sid": true}')), NOTHING_NAMED),
    (saying(answer(200, b'{"sid": "a b\\n"}')), NOTHING_NAMED),
    (saying(answer(200, b"[]")), NOTHING_NAMED),
    (saying(answer(200, b"\xff{")), NOTHING_NAMED),
    (saying(answer(200, b"[" * 60_000)), NOTHING_NAMED),
    (saying_last(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"sid":'), NOTHING_NAMED),
    (saying(answer(302, b"", "Location: /elsewhere")), Unknown("answered 302")),
    (saying(answer(408)), Unknown("answered 408")),
    (saying(answer(503, b"", "Retry-After: 9")), Unknown("answered 503")),
    (saying(answer(404, b"")), Deferred("answered 404")),
    (saying(answer(429, b'{"code": "+4915112345678"}', "Retry-After: soon")), Deferred("answered 429")),
    (saying(answer(429, b"", "Retry-After: 999999")), Deferred("answered 429", timedelta(days=1))),
    (saying(answer(400, b'{"code": "' + b"x" * 65 + b'"}')), Rejected("answered 400")),
    (saying_last(b"SSH-2.0-OpenSSH\r\n"), Unknown("no answer: broken off, waiting for the answer")),
    (saying_last(b""), Unknown("no answer: broken off, waiting for the answer")),
    (flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
     Unknown("no answer: it sent more than any answer needs, waiting for the answer")),
    (flooding(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 60_000), NOTHING_NAMED),
]  # fmt: skip


@pytest.mark.parametrize(("behave", "outcome"), ODD)
def test_odd_answers_are_taken_for_what_they_are(behave: Behaviour, outcome: Outcome) -> None:
    with receiving(behave) as receiver, open_gateway(twilio, f"http://127.0.0.1:{receiver.port}") as made:
        assert made.send(SMS, not_after=LATER) == outcome
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "behave",
    [hanging, dripping(b"", b"H"), dripping(b"HTTP/1.1 200 OK\r\n", b"X: y")],
    ids=["hangs", "drips", "drips a head"],
)
def test_the_deadline_holds_for_the_whole_exchange(behave: Behaviour) -> None:
    with (
        receiving(behave) as receiver,
        open_gateway(twilio, f"http://127.0.0.1:{receiver.port}", deadline=BRIEF) as made,
    ):
        assert isinstance(made.send(SMS, not_after=LATER), Unknown)


def test_before_the_first_byte_nothing_was_sent(
    authority: trustme.CA, serve_with: ServerContext, ca_file: Path, crowded: int
) -> None:
    with open_gateway(twilio, f"http://127.0.0.1:{crowded}", deadline=BRIEF) as made:
        assert made.send(SMS, not_after=LATER) == Deferred("nothing was sent: the deadline came connecting")
    with open_gateway(twilio, "http://127.0.0.1:1") as made:
        assert made.send(SMS, not_after=LATER) == Deferred("nothing was sent: Connection refused, connecting")
    tls = serve_with(authority.issue_cert("other.example"))
    with receiving(saying(answer(201, OK)), tls=tls) as receiver:
        with open_gateway(twilio, f"https://localhost:{receiver.port}", ca_file=ca_file) as made:
            mismatch = "TLS: Hostname mismatch, certificate is not valid for 'localhost'."
            assert made.send(SMS, not_after=LATER) == Deferred(f"nothing was sent: {mismatch}")
        assert receiver.requests == []


def test_https_reaches_the_host_of_the_certificate(
    authority: trustme.CA, serve_with: ServerContext, ca_file: Path
) -> None:
    with receiving(saying(answer(201, OK)), tls=serve_with(authority.issue_cert("localhost"))) as receiver:
        url = f"https://localhost:{receiver.port}/prefix/"
        with open_gateway(twilio, url, ca_file=ca_file) as made:
            assert made.send(SMS, not_after=LATER) == Accepted("SM1")
        assert receiver.requests[0].line == f"POST /prefix/2010-04-01/Accounts/{ACCOUNT}/Messages.json HTTP/1.1"


@pytest.mark.parametrize("url", ["http://api.example.com", "http://192.0.2.1", "ftp://localhost", "api.example.com"])
def test_an_api_is_https_except_on_loopback(url: str) -> None:
    with pytest.raises(BadInput, match=r"^url: "):
        check_base_url(url)
    assert check_base_url("http://127.0.0.1:8080").port == 8080
    assert check_base_url("https://api.example.com/v1/").url == "https://api.example.com/v1"


@ALL
@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("x\ny", "holds U+000A, which no header may; remove it"),
        ("x\u2013y", "holds a character outside of ASCII, which cannot be sent; copy it anew"),
    ],
    ids=["line break", "dash"],
)
def test_a_credential_that_cannot_be_sent_is_refused_at_the_start_and_not_shown(
    make: Make, key: str, cause: str
) -> None:
    with pytest.raises(BadInput) as refused:
        make("https://api.example.com", key=key)
    assert str(refused.value) == f"{'twilio_secret' if make is twilio else 'Authorization'}: {cause}"


@pytest.mark.parametrize("sid", ["", "AC/../x", "AC 1", "AC1\r\n"])
def test_what_is_no_sid_is_refused_at_the_start(sid: str) -> None:
    with pytest.raises(BadInput, match="twilio_account: is no SID; copy it from Twilio's console"):
        Account(sid=sid, secret="s")
