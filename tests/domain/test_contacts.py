"""How a customer is reached: what is taken, what is refused and why, and how little of it is shown."""

from datetime import timedelta

import pytest

from domain.contacts import (
    Contacts,
    Mailbox,
    check_email,
    check_leads,
    check_locale,
    check_mailbox,
    check_phone,
    mask_email,
    mask_phone,
    one_line,
)
from domain.errors import BadInput

DAY = timedelta(days=1)
E164 = "write it in E.164 like +4915112345678: plus, country code, number, no spaces"


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("anna@example.com", "anna@example.com"), ("Anna.B+x@EXAMPLE.com", "Anna.B+x@example.com"),
        ("a@exämple.com", "a@xn--exmple-cua.com"), ("o'neil@example.co.uk", "o'neil@example.co.uk"),
    ],
)  # fmt: skip
def test_an_address_is_kept_in_one_form(raw: str, kept: str) -> None:
    assert check_email(raw) == kept


@pytest.mark.parametrize(
    "raw",
    ["", "anna", "anna@", "@example.com", "a b@example.com", "a@b", "a@localhost", "a@example..com", ".a@example.com",
     "ännä@example.com", "Anna <anna@example.com>", "a@[127.0.0.1]", "x" * 65 + "@example.com", "a@b.com,c@d.com"],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_one_line(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_email(raw)
    assert str(refused.value).startswith("email: is no address: ")
    assert str(refused.value).endswith("; write it like anna@example.com")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "sign"),
    [("a@example.com\r\nBcc: x@example.com", "000D"), ("a@example.com\n", "000A"), ("a\x00@example.com", "0000"),
     ("a@example.com\u2028", "2028"), ("a@example.com\x85", "0085")],
)  # fmt: skip
def test_no_second_header_is_smuggled_in(raw: str, sign: str) -> None:
    for check in (check_email, check_mailbox, lambda text: one_line("subject", text)):
        with pytest.raises(BadInput, match=f"holds U\\+{sign}, which no header may; remove it"):
            check(raw)


@pytest.mark.parametrize("raw", ["+4915112345678", "+12025550123", "+15551234567", "+447700900123", "+97714123456"])
def test_a_number_in_e164_is_taken(raw: str) -> None:
    assert check_phone(raw) == raw


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        ("0151 12345678", "is no international number"), ("+49 151 12345678", "is no international number"),
        ("004915112345678", "is no international number"), ("+0123456", "is no international number"),
        ("+4915112345678\n", "is no international number"), ("+٤٩١٥١١٢٣٤٥٦٧٨", "is no international number"),
        ("", "is no international number"), ("+1234567890123456", "is no international number"),
        ("+999123456789", "has a country code that does not exist"),
        ("+1234", "has too many or too few digits for its country"),
        ("+1202555012345", "has too many or too few digits for its country"),
    ],
)  # fmt: skip
def test_another_number_is_refused_and_not_repeated(raw: str, cause: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_phone(raw)
    assert str(refused.value) == f"phone: {cause}; {E164}"


@pytest.mark.parametrize(
    ("raw", "kept"), [("de", "de"), ("DE_at", "de-AT"), ("zh-hant-tw", "zh-Hant-TW"), ("es-419", "es-419")]
)
def test_a_locale_is_kept_in_one_form(raw: str, kept: str) -> None:
    assert check_locale(raw) == kept


@pytest.mark.parametrize("raw", ["", "d", "german", "de-", "de--AT", "de/AT", "../de", "de.AT", "de\n", "de-AT-x-y"])
def test_another_locale_is_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_locale(raw)
    assert str(refused.value) == f"locale: {raw!r} is no locale; write it like de or de-AT"


def test_leads_are_kept_longest_first() -> None:
    assert check_leads([timedelta(minutes=5), DAY]) == (DAY, timedelta(minutes=5))
    assert check_leads([30 * DAY]) == (30 * DAY,)
    assert check_leads([timedelta(seconds=1)]) == (timedelta(seconds=1),)


@pytest.mark.parametrize(
    ("leads", "cause"),
    [
        ([], "are 0; give 1 to 5"), ([DAY * n for n in range(1, 7)], "are 6; give 1 to 5"),
        ([timedelta(0)], "hold 0s; each must be longer than zero and at most 30d"),
        ([-DAY], "hold -1d; each must be longer than zero and at most 30d"),
        ([30 * DAY + timedelta(seconds=1)], "hold 30d1s; each must be longer than zero and at most 30d"),
        ([timedelta(seconds=1.5)], "hold 1.5s; give whole seconds"),
        ([DAY, DAY], "hold one twice; one reminder is sent for each"),
    ],
)  # fmt: skip
def test_other_leads_are_refused(leads: list[timedelta], cause: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_leads(leads)
    assert str(refused.value) == f"leads: {cause}"


def test_contacts_are_kept_as_they_were_checked() -> None:
    kept = Contacts(email="Anna@EXAMPLE.com", phone="+4915112345678", locale="de_at", timezone="Europe/Berlin")
    assert (kept.email, kept.phone, kept.locale, kept.leads) == ("Anna@example.com", "+4915112345678", "de-AT", None)
    assert "Anna" not in repr(kept)
    assert "+49" not in repr(kept)
    assert Contacts() == Contacts(email=None)


def test_contacts_that_make_no_sense_together_are_refused() -> None:
    with pytest.raises(BadInput, match="phone: needs a timezone, since nobody is texted at night; add one like"):
        Contacts(phone="+4915112345678")
    with pytest.raises(BadInput, match="leads: is for reminders; add an email or a phone"):
        Contacts(leads=(DAY,))
    with pytest.raises(BadInput, match="locale: is for reminders; add an email or a phone"):
        Contacts(locale="de")


@pytest.mark.parametrize(
    ("raw", "mailbox"),
    [
        ("holds@example.com", Mailbox("", "holds@example.com")),
        ("Holds <holds@example.com>", Mailbox("Holds", "holds@example.com")),
        ('"Holds, Inc." <holds@example.com>', Mailbox("Holds, Inc.", "holds@example.com")),
    ],
)
def test_a_sender_has_an_address_and_may_have_a_name(raw: str, mailbox: Mailbox) -> None:
    assert check_mailbox(raw) == mailbox
    assert str(mailbox) == raw
    assert mailbox.domain == "example.com"


@pytest.mark.parametrize("raw", ["", "Holds", "<>", "Holds <holds>", "a@example.com, b@example.com"])
def test_another_sender_is_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_mailbox(raw)
    assert str(refused.value) == f"from: {raw!r} is no sender; write it like Holds <holds@example.com>"


def test_a_mask_shows_no_more_than_it_says() -> None:
    assert mask_email("anna.schmidt@mail.example.com") == "a***@m***.com"
    assert mask_phone("+4915112345678") == "+49***78"
