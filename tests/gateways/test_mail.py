"""An email as it goes over the wire, read again by a parser that is not ours."""

from email import message_from_bytes, policy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.contacts import Mailbox
from domain.reminding import Channel, Message, Rendered
from gateways.mail import composed

SENDER = Mailbox("Holds", "holds@example.com")
LONGEST_LINE = 998
WRITTEN = st.characters(categories=["L", "M", "N", "P", "S", "Zs"])


def sent(subject: str, text: str, html: str | None = None) -> bytes:
    """What a server keeps: the dots that were doubled taken off again."""
    message = Message("hold-reminder:h:email:1:1", Channel.EMAIL, "ada@example.com", Rendered(subject, text, html))
    return composed(message, SENDER).replace(b"\r\n..", b"\r\n.")


def subject_of(raw: bytes) -> str:
    return str(message_from_bytes(raw, policy=policy.default)["Subject"])


@pytest.mark.parametrize(
    "subject",
    ["Your hold on =?utf-8?q?Bcc=3A_eve=40example.com?= ends", "=?utf-8?b?eA==?=", "s" * 600, "\U0001f39f" * 200,
     "Zm\u00fcrich \u2013 =?x?="],
    ids=["a word that looks encoded", "nothing else", "long", "long and not ASCII", "both"],
)  # fmt: skip
def test_a_subject_is_shown_as_it_was_written(subject: str) -> None:
    raw = sent(subject, "t")
    assert subject_of(raw) == subject
    assert max(map(len, raw.split(b"\r\n"))) <= LONGEST_LINE
    assert raw.isascii()


@given(st.text(WRITTEN, min_size=1, max_size=600).map(str.strip).filter(bool))
@example("=?")
def test_no_subject_adds_a_header_or_a_line_that_is_too_long(subject: str) -> None:
    raw = sent(subject, "t")
    parsed = message_from_bytes(raw, policy=policy.compat32)
    assert sorted(parsed.keys()) == sorted(
        ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
         "Content-Transfer-Encoding"]
    )  # fmt: skip
    assert max(map(len, raw.split(b"\r\n"))) <= LONGEST_LINE


@given(st.text(st.one_of(WRITTEN, st.sampled_from(".\n=-\t ")), min_size=1, max_size=300))
@example(".")
@example("a\n.\nb")
@example("--=_holdfast--\n\nx: y")
@example("From here\n" + "x" * 2000)
def test_a_text_arrives_as_it_was_written(text: str) -> None:
    raw = sent("s", text, text)
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= LONGEST_LINE
    assert b"\r\n.\r\n" not in raw
    parts = [part.get_payload(decode=True) for part in message_from_bytes(raw).walk() if not part.is_multipart()]
    assert [str(part, "utf-8").split() for part in parts if isinstance(part, bytes)] == [text.split()] * 2
