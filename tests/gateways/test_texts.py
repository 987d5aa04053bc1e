"""Texts: which template is taken, what it may do, and what becomes of one that fails."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from domain.errors import BadInput
from domain.reminding import Channel, Rendered
from domain.segments import Encoding, measure
from domain.text import LONGEST_LABEL
from gateways.texts import Facts, TemplateFault, Texts

FACTS = Facts(
    hold_id="h_1", resource="Seat <7> & Co", customer="c-1", deadline=datetime(2026, 3, 1, 9, tzinfo=UTC),
    zone="Europe/Berlin", lead=timedelta(days=1),
)  # fmt: skip
Written = Callable[..., Texts]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Texts with these templates before ours: name without `.j2`, with `_` for `.`, and source."""

    def write(**sources: str) -> Texts:
        for name, source in sources.items():
            (tmp_path / f"{name.replace('__', '.')}.j2").write_text(source, "utf-8")
        return Texts(tmp_path)

    return write


def test_the_english_email() -> None:
    text = Texts().render(Channel.EMAIL, None, FACTS)
    assert text.subject == "Your hold on Seat <7> & Co ends Sunday, 1 March 2026, 10:00 CET"
    assert text.text == (
        "Hello,\n\nwe are holding Seat <7> & Co for you until Sunday, 1 March 2026, 10:00 CET.\n"
        "After that the hold lapses. Confirm it before then if you want to keep it.\n\nReference: h_1"
    )
    assert text.html is not None
    assert "<strong>Seat &lt;7&gt; &amp; Co</strong>" in text.html
    assert '<html lang="en">' in text.html
    assert "<7>" not in text.html


def test_the_german_sms_fits_one_segment() -> None:
    text = Texts().render(Channel.SMS, "de-AT", FACTS)
    assert text == Rendered(
        None,
        "Ihre Reservierung von Seat <7> & Co endet Sonntag, 1. März 2026, 10:00 CET. "
        "Zum Behalten bitte vorher bestätigen. Ref. h_1",
        None,
    )
    assert (measure(text.text).encoding, measure(text.text).count) == (Encoding.GSM7, 1)


@pytest.mark.parametrize(
    ("locale", "begins"), [("de", "Ihre"), ("de-AT", "Ihre"), ("en-GB", "Your"), ("fr", "Your"), (None, "Your")]
)
def test_the_nearest_locale_is_taken(locale: str | None, begins: str) -> None:
    for channel in Channel:
        text = Texts().render(channel, locale, FACTS)
        assert (text.subject or text.text).startswith(begins)


def test_a_folder_comes_before_ours_piece_by_piece_and_adds_locales(written: Written) -> None:
    texts = written(
        email__en__subject="Mine: {{ deadline_time }}",
        sms__fr__txt="Bonjour {{ customer }}, {{ deadline }}, {{ lead }}",
    )
    email = texts.render(Channel.EMAIL, "fr", FACTS)
    assert email.subject == "Mine: 10:00 CET"
    assert email.text.startswith("Hello,")
    assert texts.render(Channel.SMS, "fr-CA", FACTS).text == "Bonjour c-1, 2026-03-01 10:00 CET, 24 hours"
    assert texts.render(Channel.SMS, "de", FACTS).text.startswith("Ihre")


def test_an_empty_html_leaves_it_out(written: Written) -> None:
    assert written(email__en__html=" \n").render(Channel.EMAIL, "en", FACTS).html is None


def test_a_template_may_format_the_local_deadline_itself(written: Written) -> None:
    texts = written(sms__en__txt="{{ deadline_at.strftime('%d/%m %H:%M %z') }}")
    assert texts.render(Channel.SMS, "en", FACTS).text == "01/03 10:00 +0100"


@pytest.mark.parametrize(
    ("source", "line", "cause"),
    [
        ("line\n{{ misspelt }}", 2, "'misspelt' is undefined"),
        ("{{ deadline_at.nothing }}", 1, "'datetime.datetime object' has no attribute 'nothing'"),
        ("a\n\n{{ 1 / 0 }}", 3, "division by zero"),
        ("{% if x %}", 1, ("Unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or "
         "'endif'. The innermost block that needs to be closed is 'if'.")),
        ("{% for n in range(1000000) %}x{% endfor %}", 1, ("Range too big. The sandbox blocks ranges larger than"
         " MAX_RANGE (100000).")),
        ("{{ ''.__class__.__mro__ }}", 1, "access to attribute '__class__' of 'str' object is unsafe."),
        ("{% include 'no.j2' %}", 1, "no.j2"),
        ("", None, "an SMS of 1 segments (GSM-7); 1 to 10 are sent"),
        ("x" * 1531, None, "an SMS of 11 segments (GSM-7); 1 to 10 are sent"),
        ("{{ '\\x00' }}", None, "the text holds a NUL"),
    ],
)  # fmt: skip
def test_a_template_that_fails_is_named_with_its_line(
    written: Written, source: str, line: int | None, cause: str
) -> None:
    texts = written(sms__en__txt=source)
    with pytest.raises(TemplateFault) as failed:
        texts.render(Channel.SMS, "en", FACTS)
    assert (failed.value.name, failed.value.line, failed.value.cause) == ("sms.en.txt.j2", line, cause)
    assert str(failed.value) == f"sms.en.txt.j2{f', line {line}' if line else ''}: {cause}"
    assert texts.render(Channel.SMS, "de", FACTS).text.startswith("Ihre")


def test_the_fault_of_an_included_template_is_its_own(written: Written) -> None:
    texts = written(_sign="a\n{{ nobody }}", sms__en__txt="{% include '_sign.j2' %}")
    with pytest.raises(TemplateFault, match=r"_sign.j2, line 2: 'nobody' is undefined"):
        texts.render(Channel.SMS, "en", FACTS)


def test_a_subject_is_one_line(written: Written) -> None:
    with pytest.raises(TemplateFault, match=r"email.en.subject.j2: subject: holds U\+000A, which no header may"):
        written(email__en__subject="Hello\nBcc: x@example.com").render(Channel.EMAIL, "en", FACTS)


@pytest.mark.parametrize("length", [0, 601])
def test_a_subject_is_neither_empty_nor_endless(written: Written, length: int) -> None:
    with pytest.raises(TemplateFault, match=f"a subject of {length} characters; 1 to 600 are sent"):
        written(email__en__subject="s" * length).render(Channel.EMAIL, "en", FACTS)


@pytest.mark.parametrize("locale", ["en", "de"])
@pytest.mark.parametrize("sign", ["x", "\u2013", "\U0001f39f"], ids=["ASCII", "UCS-2", "two units"])
def test_a_hold_with_the_longest_names_there_are_is_told_of_by_every_channel(locale: str, sign: str) -> None:
    facts = Facts(
        hold_id="h" * 64, resource=sign * LONGEST_LABEL, customer=sign * LONGEST_LABEL, lead=timedelta(days=1),
        deadline=datetime(2026, 9, 30, 9, tzinfo=UTC), zone="Asia/Kathmandu",
    )  # fmt: skip
    for channel in Channel:
        assert facts.resource in Texts().render(channel, locale, facts).text


@pytest.mark.parametrize(
    "name",
    ["email.fr.text.j2", "email.fr.txt", "sms.fr", "email.DE.txt.j2", "sms.de-at.txt.j2", "sms.french.txt.j2",
     "sms.fr.html.j2", "push.fr.txt.j2"],
)  # fmt: skip
def test_a_file_that_would_never_be_used_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "README").write_text("how we write")
    Texts(tmp_path)
    (tmp_path / name).write_text("x")
    with pytest.raises(BadInput) as refused:
        Texts(tmp_path)
    assert str(refused.value) == (
        f"texts: {name} would never be used; name it like email.de-AT.txt.j2, sms.de.txt.j2 or _x.j2"
    )


def test_what_customers_wrote_is_escaped_in_a_part_for_others_where_its_name_says_html(written: Written) -> None:
    texts = written(
        _sign__html="{{ resource }}", _sign="{{ resource }}", email__en__html="{% include '_sign.html.j2' %}",
        sms__en__txt="{% include '_sign.j2' %}",
    )  # fmt: skip
    assert texts.render(Channel.EMAIL, "en", FACTS).html == "Seat &lt;7&gt; &amp; Co"
    assert texts.render(Channel.SMS, "en", FACTS).text == "Seat <7> & Co"


def test_an_email_without_its_subject_is_refused_at_the_start(written: Written) -> None:
    with pytest.raises(BadInput, match=r"texts: email.fr.txt.j2 has no email.fr.subject.j2 beside it; add it"):
        written(email__fr__txt="x")


def test_a_folder_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere is no folder"):
        Texts(tmp_path / "nowhere")


def test_what_is_no_text_at_all_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sms.en.txt.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"texts: sms.en.txt.j2 cannot be read: 'utf-8' codec can't decode"):
        Texts(tmp_path)


def test_rendering_touches_no_disk(written: Written, tmp_path: Path) -> None:
    texts = written(sms__en__txt="{% include '_x.j2' %}", _x="first")
    for path in tmp_path.iterdir():
        path.unlink()
    assert texts.render(Channel.SMS, "en", FACTS).text == "first"
