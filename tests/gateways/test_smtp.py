"""Email by SMTP: what a mail server sees, and what is certain after each way it can fail."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from cli.stand_ins.faults import Fault, Then
from cli.stand_ins.mail import MailServer
from cli.stand_ins.running import StandIns
from domain.errors import BadInput
from domain.reminding import Accepted, Channel, Deferred, Message, Outcome, Rejected, Rendered, Unknown
from gateways import exchange
from gateways.exchange import uptime
from gateways.resolver import Resolver
from gateways.smtp import Security, Server, Smtp
from tests.gateways.conftest import ServerContext
from tests.gateways.receiver import Talk
from tests.gateways.reminders import (
    BRIEF,
    DEADLINE,
    EMAIL,
    LATER,
    PIPELINING,
    SENDER,
    Script,
    Step,
    breaking,
    flooding,
    hanging,
    resetting,
    scripted,
    then_closing,
)

TAKEN = Accepted("<hold-reminder.h_1.email.1796000000.86400@example.com>")


@contextmanager
def gateway(
    port: int, *, security: Security = Security.NONE, deadline: timedelta = DEADLINE, ca_file: Path | None = None,
    login: tuple[str, str] = ("", ""),
) -> Iterator[Smtp]:  # fmt: skip
    user, password = login
    server = Server(host="localhost", port=port, security=security, user=user, password=password)
    smtp = Smtp(server, SENDER, deadline=deadline, ca_file=ca_file)
    yield smtp
    smtp.close()


def test_a_mail_arrives_as_it_was_written() -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        (mail,) = at.mail.mails
    parsed = mail.parsed
    assert (mail.to, parsed["To"], parsed["From"]) == ("anna@example.com", "anna@example.com", SENDER)
    assert (parsed["Subject"], parsed["Message-ID"]) == (EMAIL.text.subject, TAKEN.provider_id)
    assert parsed["Auto-Submitted"] == "auto-generated"
    texts = [part.get_content().replace("\r\n", "\n") for part in parsed.iter_parts()]
    assert texts == [EMAIL.text.text, EMAIL.text.html]
    assert [part.get_content_type() for part in parsed.iter_parts()] == ["text/plain", "text/html"]
    assert parsed.defects == []
    assert mail.raw.isascii()


def test_a_mail_without_html_is_one_part() -> None:
    text = Rendered("Plain", "only text", None)
    with StandIns() as at, gateway(at.mail_port) as smtp:
        assert smtp.send(Message(EMAIL.key, Channel.EMAIL, EMAIL.to, text), not_after=LATER) == TAKEN
        parsed = at.mail.mails[0].parsed
    assert (parsed.get_content_type(), parsed.get_content()) == ("text/plain", "only text\r\n")


def test_one_that_comes_too_late_is_not_begun() -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        late = smtp.send(EMAIL, not_after=uptime() - 0.001)
        assert late == Deferred("nothing was sent: this worker stood still since it took the reminder")
        assert at.mail.connections == 0
        assert smtp.send(EMAIL, not_after=uptime() + 5) == TAKEN


def test_a_machine_that_slept_before_the_dot_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(talk: Talk) -> None:
        monkeypatch.setattr(exchange, "uptime", lambda: uptime() + 3600)
        talk.say(b"354 go on\r\n")

    with scripted({"DATA": sleep}) as (receiver, script), gateway(receiver.port) as smtp:
        slept = smtp.send(EMAIL, not_after=LATER)
        monkeypatch.undo()
        assert script.taken == []
    stages = "before the message", "before the end of the message"  # it may have begun to write when it wakes
    assert slept in [Deferred(f"not accepted: the deadline came {stage}") for stage in stages]


def test_a_connection_is_used_again() -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        assert [smtp.send(EMAIL, not_after=LATER) for _ in range(3)] == [TAKEN] * 3
        assert (at.mail.connections, len(at.mail.mails)) == (1, 3)


def test_threads_share_as_many_connections_as_they_need_at_once() -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        start = threading.Barrier(4)
        outcomes: list[Outcome] = []

        def work() -> None:
            start.wait()
            outcomes.extend(smtp.send(EMAIL, not_after=LATER) for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [TAKEN] * 20
        assert at.mail.connections <= 4


def test_starttls_and_login(authority: trustme.CA, serve_with: ServerContext, ca_file: Path) -> None:
    tls = serve_with(authority.issue_cert("localhost"))
    server = MailServer(tls=tls, login=("holds", "s3cret"))
    with StandIns(server) as at:
        with gateway(at.mail_port, security=Security.STARTTLS, ca_file=ca_file, login=("holds", "s3cret")) as smtp:
            assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        with gateway(at.mail_port, security=Security.STARTTLS, ca_file=ca_file, login=("holds", "wrong")) as smtp:
            assert smtp.send(EMAIL, not_after=LATER) == Deferred("the server refuses the login: 535 5.7.8")
        with gateway(at.mail_port, security=Security.STARTTLS, ca_file=ca_file) as smtp:
            assert smtp.send(EMAIL, not_after=LATER) == Deferred("the server refuses the sender: 530 5.7.0")
        assert len(server.mails) == 1


def test_tls_from_the_first_byte(authority: trustme.CA, serve_with: ServerContext, ca_file: Path) -> None:
    tls = serve_with(authority.issue_cert("localhost"))
    with scripted({}, tls) as (receiver, script):
        with gateway(receiver.port, security=Security.TLS, ca_file=ca_file) as smtp:
            assert [smtp.send(EMAIL, not_after=LATER), smtp.send(EMAIL, not_after=LATER)] == [TAKEN, TAKEN]
        assert (receiver.connections, len(script.taken)) == (1, 2)


def test_without_a_certificate_for_the_host_nothing_is_sent(
    authority: trustme.CA, serve_with: ServerContext, ca_file: Path
) -> None:
    tls = serve_with(authority.issue_cert("other.example"))
    with (
        StandIns(MailServer(tls=tls)) as at,
        gateway(at.mail_port, security=Security.STARTTLS, ca_file=ca_file) as smtp,
    ):
        mismatch = "TLS: Hostname mismatch, certificate is not valid for 'localhost'."
        assert smtp.send(EMAIL, not_after=LATER) == Deferred(f"nothing was sent: {mismatch}")
        assert at.mail.mails == []


def test_starttls_is_never_left_out() -> None:
    with scripted({}) as (receiver, script), gateway(receiver.port, security=Security.STARTTLS) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == Deferred("the server refuses STARTTLS, which it does not offer")
        assert script.heard[:1] == ["EHLO"]
        assert "MAIL" not in script.heard


NEVER_ACCEPTED = "before the message"
STAGES: list[tuple[str, Step, Outcome]] = [
    ("connect", b"554 5.3.2 anna@example.com\r\n", Deferred("the server refuses the greeting: 554 5.3.2")),
    ("connect", b"SSH-2.0-OpenSSH\r\n", Deferred("the server refuses the greeting")),
    ("connect", breaking, Deferred("nothing was sent: broken off, connecting")),
    ("connect", hanging, Deferred("nothing was sent: the deadline came connecting")),
    ("EHLO", b"502 5.5.1 what\r\n", Deferred("the server refuses EHLO: 502 5.5.1")),
    ("EHLO", resetting, Deferred("nothing was sent: Connection reset by peer, sending the request")),
    ("MAIL", b"550 5.7.1 holds@example.com\r\n", Deferred("the server refuses the sender: 550 5.7.1")),
    ("MAIL", b"421 4.7.0 later\r\n", Deferred("the server refuses the sender: 421 4.7.0")),
    ("MAIL", breaking, Deferred(f"not accepted: broken off, {NEVER_ACCEPTED}")),
    ("MAIL", hanging, Deferred(f"not accepted: the deadline came {NEVER_ACCEPTED}")),
    ("RCPT", b"450 4.2.1 anna@example.com\r\n", Deferred("the server refuses the recipient: 450 4.2.1")),
    ("RCPT", b"550 5.1.1 <anna@example.com>\r\n", Rejected("the server refuses the recipient: 550 5.1.1")),
    ("RCPT", b"550-no\r\n550 anna\r\n", Rejected("the server refuses the recipient: 550")),
    ("RCPT", breaking, Deferred(f"not accepted: broken off, {NEVER_ACCEPTED}")),
    ("RCPT", b"hello\r\n", Deferred("the server refuses the recipient")),
    ("DATA", b"451 4.3.0 full\r\n", Deferred("the server refuses the message: 451 4.3.0")),
    ("DATA", b"554 5.5.1 none\r\n", Rejected("the server refuses the message: 554 5.5.1")),
    ("DATA", b"250 taken\r\n", Deferred("the server refuses the message: 250")),
    ("DATA", hanging, Deferred(f"not accepted: the deadline came {NEVER_ACCEPTED}")),
    (".", b"251 2.0.0 taken\r\n", TAKEN),
    (".", b"452 4.3.1 full\r\n", Deferred("the server refuses the message: 452 4.3.1")),
    (".", b"554 5.7.1 spam for anna@example.com\r\n", Rejected("the server refuses the message: 554 5.7.1")),
    (".", b"what?\r\n", Unknown("the answer to the message is no SMTP")),
    (".", b"354 go on\r\n", Unknown("the answer to the message is no SMTP")),
    (".", b"250" + b"x" * 9000 + b"\r\n", Unknown("no answer: broken off, after the end of the message")),
    (".", flooding, Unknown("no answer: it sent more than any answer needs, after the end of the message")),
    (".", breaking, Unknown("no answer: broken off, after the end of the message")),
    (".", resetting, Unknown("no answer: Connection reset by peer, after the end of the message")),
    (".", hanging, Unknown("no answer: the deadline came after the end of the message")),
]


@pytest.mark.parametrize(("stage", "step", "outcome"), STAGES)
def test_each_stage_says_what_is_certain(stage: str, step: Step, outcome: Outcome) -> None:
    _fails_at({stage: step}, outcome, deadline=BRIEF if step is hanging else DEADLINE, taken=stage == ".")


@pytest.mark.parametrize(
    ("stage", "step", "outcome"),
    [one for one in STAGES if one[0] in {"MAIL", "RCPT", "DATA", "."} and one[1] is not hanging],
)
def test_a_server_that_takes_commands_together_is_understood_the_same(stage: str, step: Step, outcome: Outcome) -> None:
    _fails_at(PIPELINING | {stage: step}, outcome, deadline=DEADLINE, taken=stage == ".")


def _fails_at(steps: dict[str, Step], outcome: Outcome, *, deadline: timedelta, taken: bool) -> None:
    with scripted(steps) as (receiver, script):
        with gateway(receiver.port, deadline=deadline) as smtp:
            found = smtp.send(EMAIL, not_after=LATER)
        assert found == outcome
        assert len(script.taken) == taken
        assert "anna" not in str(found)


def test_the_text_alone_is_not_accepted() -> None:
    big = Message(EMAIL.key, Channel.EMAIL, EMAIL.to, Rendered("s", "x" * 50_000_000, None))
    with scripted({"DATA": then_closing(b"354 go on\r\n")}) as (receiver, script), gateway(receiver.port) as smtp:
        outcome = smtp.send(big, not_after=LATER)
        assert script.taken == []
    assert isinstance(outcome, Deferred)
    assert outcome.reason.endswith(", before the end of the message")


def test_commands_go_together_where_the_server_takes_that_and_one_by_one_where_not() -> None:
    for steps, at_mail in ((PIPELINING, 2), ({}, 0)):
        came: list[int] = []

        def mail(talk: Talk, came: list[int] = came) -> None:
            came.append(talk.left.count(b"\r\n"))
            talk.say(b"250 2.1.0 ok\r\n")

        with scripted(steps | {"MAIL": mail}) as (receiver, _), gateway(receiver.port) as smtp:
            assert [smtp.send(EMAIL, not_after=LATER), smtp.send(EMAIL, not_after=LATER)] == [TAKEN, TAKEN]
        assert came == [at_mail, at_mail]


def test_a_connection_that_the_server_closed_while_it_rested_costs_nothing() -> None:
    with scripted({".": then_closing(b"250 2.0.0 taken\r\n")}) as (receiver, script):
        with gateway(receiver.port) as smtp:
            assert [smtp.send(EMAIL, not_after=LATER) for _ in range(3)] == [TAKEN] * 3
        assert (receiver.connections, len(script.taken)) == (3, 3)


def test_a_connection_that_rested_and_is_told_421_costs_nothing() -> None:
    with scripted({}) as (receiver, script), gateway(receiver.port) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        script.steps["MAIL"] = _only_once(script, b"421 4.4.2 idle\r\n")
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        assert (receiver.connections, len(script.taken)) == (2, 2)


def _only_once(script: Script, reply: bytes) -> Step:
    def step(talk: Talk) -> None:
        script.steps["MAIL"] = b"250 2.1.0 ok\r\n"
        talk.say(reply)
        raise EOFError

    return step


def test_a_connection_that_rested_and_is_refused_otherwise_is_heard() -> None:
    with scripted({}) as (receiver, script), gateway(receiver.port) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        script.steps["MAIL"] = b"451 4.7.1 slower\r\n"
        assert smtp.send(EMAIL, not_after=LATER) == Deferred("the server refuses the sender: 451 4.7.1")
        assert receiver.connections == 1


def test_a_connection_that_rested_too_long_is_not_used() -> None:
    with scripted({}) as (receiver, script), gateway(receiver.port) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        smtp._resting[0].used -= 31
        assert smtp.send(EMAIL, not_after=LATER) == TAKEN
        assert receiver.connections == 2
        assert script.heard.count("QUIT") == 1


def test_after_a_refused_recipient_the_next_mail_starts_afresh() -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        at.mail.recipients.add(Fault(Then.ANSWER, status=550))
        assert [smtp.send(EMAIL, not_after=LATER), smtp.send(EMAIL, not_after=LATER)] == [
            Rejected("the server refuses the recipient: 550 5.1.1"),
            TAKEN,
        ]
        assert len(at.mail.mails) == 1


def test_one_that_was_taken_and_not_answered_is_unknown_and_one_copy() -> None:
    with StandIns() as at, gateway(at.mail_port, deadline=BRIEF) as smtp:
        at.mail.faults.add(Fault(Then.DROP, effect=True), Fault(Then.SILENCE, effect=True))
        assert isinstance(smtp.send(EMAIL, not_after=LATER), Unknown)
        assert len(at.mail.mails) == 1
        assert smtp.send(EMAIL, not_after=LATER) == Unknown("no answer: the deadline came after the end of the message")
        assert len(at.mail.mails) == 2


@pytest.mark.parametrize(
    ("to", "subject"),
    [("anna@example.com>\r\nRCPT TO:<eve@example.com", "s"), ("anna@example.com", "s\r\nBcc: eve@example.com")],
)
def test_a_line_break_in_a_header_is_refused_before_anything_is_sent(to: str, subject: str) -> None:
    with StandIns() as at, gateway(at.mail_port) as smtp:
        outcome = smtp.send(Message(EMAIL.key, Channel.EMAIL, to, Rendered(subject, "t", None)), not_after=LATER)
        assert outcome == Rejected("no email can be made of it: BadInput")
        assert at.mail.connections == 0


def test_nobody_there_or_no_such_host_means_that_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with gateway(port) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == Deferred("nothing was sent: Connection refused, connecting")
        smtp._resolver = Resolver(anywhere=True, lookup=_no_such_name)
        assert smtp.send(EMAIL, not_after=LATER) == Deferred("nothing was sent: the host has no address")


def _no_such_name(*_: object, **__: object) -> list[tuple[object, object, object, object, object]]:
    raise socket.gaierror(socket.EAI_NONAME, "no")


def test_a_dripping_server_is_left_at_the_deadline() -> None:
    def drip(talk: Talk) -> None:
        talk.drip(b"250-x\r\n" * 1000, 0.02)

    with scripted({".": drip}) as (receiver, _), gateway(receiver.port, deadline=BRIEF) as smtp:
        assert smtp.send(EMAIL, not_after=LATER) == Unknown("no answer: the deadline came after the end of the message")


def test_a_password_is_never_sent_in_the_clear() -> None:
    with pytest.raises(BadInput, match="smtp_security: must be starttls or tls where there is a login"):
        Server(host="mail.example.com", security=Security.NONE, user="u", password="secret")
    assert "secret" not in repr(Server(host="mail.example.com", user="u", password="secret"))


@pytest.mark.parametrize("password", ["p\u00e4ss", "pass\n"])
def test_a_password_that_cannot_be_sent_is_refused_at_the_start(password: str) -> None:
    with pytest.raises(BadInput, match=r"^smtp_password: holds "):
        Server(host="mail.example.com", user="u", password=password)


@pytest.mark.parametrize("sender", ["Holds", "holds@example.com\r\nBcc: eve@example.com"])
def test_a_sender_that_is_none_is_refused_at_the_start(sender: str) -> None:
    with pytest.raises(BadInput, match=r"^from: "):
        Smtp(Server(host="localhost"), sender, deadline=DEADLINE)
