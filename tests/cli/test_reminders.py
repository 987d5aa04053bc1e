"""Contacts on `place` and `import`, `reminders`, and who sees an address."""

import pytest

from domain.reminding import Unknown
from tests.cli.conftest import Command
from tests.helpers import Desk
from tests.reminded import EMAIL, Reminded, keys

PLACE = ("place", "h", "--resource", "seat", "--customer", "acme", "--for", "2d")


@pytest.fixture
def reminded(desk: Desk) -> Reminded:
    return Reminded(desk.database)


@pytest.fixture
def unknown(reminded: Reminded) -> str:
    """The key of a reminder of which nobody knows."""
    hold = reminded.reminded()
    reminded.make_due()
    reminded.settle(reminded.taken(), Unknown("the deadline came"))
    return keys(hold)[0]


def test_a_hold_is_placed_with_contacts_which_are_masked_unless_asked_for(holdfast: Command, desk: Desk) -> None:
    options = ("--email", "Ada@Example.com", "--phone", "+4915112345678", "--timezone", "Europe/Berlin")
    said = holdfast(*PLACE, *options, "--locale", "de-at", "--leads", "24h,5m", "--json")
    assert said.code == 0
    [hold] = said.lines
    assert (hold["email"], hold["phone"]) == ("A***@e***.com", "+49***78")
    assert (hold["locale"], hold["leads"]) == ("de-AT", ["1d", "5m"])
    [shown] = holdfast("show", "h", "--show-contacts", "--json").lines
    assert (shown["email"], shown["phone"]) == ("Ada@example.com", "+4915112345678")
    assert desk.count("reminders") == 4


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--email", "ada@example.com", "--timezone", "-05:00"), "timezone: '-05:00': an offset is no zone; use an"),
        (("--email", "ada@example.com", "--timezone", "Mars/Base"), "timezone: 'Mars/Base': no such zone; use an IANA"),
        (("--phone", "015112345678", "--timezone", "Europe/Berlin"), "phone: is no international number; write it in"),
        (("--phone", "+4915112345678"), "phone: needs a timezone, since nobody is texted at night; add one like"),
        (("--email", "ada.example.com"), "email: is no address: "),
        (("--email", "ada@example.com\r\nBcc: eve@example.com"), "email: holds U+000D, which no header may; remove it"),
        (("--email", "ada@example.com", "--leads", "0s"), "leads: is zero; it must be longer than that"),
        (("--email", "ada@example.com", "--leads", "31d"), "leads: hold 31d; each must be longer than zero and at"),
        (("--email", "ada@example.com", "--leads", "1h,60m"), "leads: hold one twice; one reminder is sent for each"),
        (("--leads", "1h"), "leads: is for reminders; add an email or a phone"),
    ],
)  # fmt: skip
def test_contacts_that_cannot_be_used_are_refused_in_one_line(
    holdfast: Command, desk: Desk, options: tuple[str, ...], line: str
) -> None:
    before = desk.everything()
    said = holdfast(*PLACE, *options)
    assert said.code == 2
    assert said.err.startswith(f"holdfast: {line}")
    assert said.err.count("\n") == 1
    assert desk.everything() == before


def test_an_imported_hold_has_its_reminders_and_one_that_came_due_before_has_not(holdfast: Command, desk: Desk) -> None:
    line = (
        b'{"id":"h","resource":"seat","customer":"acme","expires_in":"2h","email":"ada@example.com",'
        b'"phone":"+4915112345678","timezone":"Europe/Berlin","leads":"24h,5m"}\n'
    )
    bad = b'{"id":"g","resource":"seat","customer":"acme","expires_in":"2h","phone":"12"}\n'
    assert holdfast("import", "-", "--json", stdin=line + bad).lines[-1] == {"taken": 1, "already_there": 0, "bad": 1}
    rows = desk.sql("SELECT channel, extract(epoch FROM lead) AS lead, state FROM reminders ORDER BY channel")
    assert [(row.channel, row.lead, row.state) for row in rows] == [
        ("email", 300, "scheduled"), ("sms", 300, "scheduled"),
    ]  # fmt: skip
    assert holdfast("reconcile").code == 0
    again = holdfast("import", "-", "--json", stdin=line).lines[-1]
    assert again == {"taken": 0, "already_there": 1, "bad": 0}


def test_cancel_says_that_a_reminder_is_just_being_sent(holdfast: Command, reminded: Reminded) -> None:
    reminded.reminded()
    reminded.make_due()
    reminded.taken()
    said = holdfast("cancel", "h", "--version", "1", "--reason", "rain")
    assert said.code == 0
    assert said.err == "holdfast: a reminder by email was just being sent: the customer may still get it\n"


def test_an_operator_lists_shows_and_resends_what_nobody_knows(
    holdfast: Command, reminded: Reminded, unknown: str
) -> None:
    reminded.reminded("g")
    assert [line["reminder"] for line in holdfast("reminders", "list", "--waiting", "--json").lines] == [unknown]
    [shown] = holdfast("reminders", "show", unknown, "--json").lines
    assert (shown["to"], shown["text"], shown["state"]) == ("a***@e***.com", None, "unknown")
    assert [attempt["outcome"] for attempt in shown["requests"]] == ["unknown"]
    [whole] = holdfast("reminders", "show", unknown, "--show-contacts", "--json").lines
    assert (whole["to"], whole["text"]) == ("ada@example.com", "text")
    assert holdfast("reminders", "resend", unknown, "--operator", "ada").code == 0
    assert reminded.taken(EMAIL).number == 2
    again = holdfast("reminders", "resend", unknown, "--operator", "ada", "--json")
    assert (again.code, again.lines[0]["refused"]) == (1, "settled")


def test_an_operator_leaves_what_nobody_knows(holdfast: Command, unknown: str) -> None:
    assert holdfast("status").code == 1
    assert holdfast("reminders", "leave", unknown, "--operator", "ada").code == 0
    assert holdfast("reminders", "list", "--waiting", "--json").lines == []
    [shown] = holdfast("reminders", "show", unknown, "--json").lines
    assert (shown["state"], shown["decision"], shown["decided_by"]) == ("unknown", "leave", "ada")


def test_nothing_on_a_terminal_or_in_json_shows_an_address_unasked(
    holdfast: Command, reminded: Reminded, unknown: str
) -> None:
    told = ""
    for command in (("show", "h"), ("list",), ("trace", "h"), ("status",), ("reminders", "list"),
                    ("reminders", "show", unknown), ("reconcile",)):  # fmt: skip
        for as_json in ((), ("--json",)):
            said = holdfast(*command, *as_json)
            told += said.out + said.err
    assert "a***@e***.com" in told
    assert "ada@example.com" not in told
    assert "ada@example.com" in holdfast("trace", "h", "--show-contacts").out


def test_prune_erases_contacts_without_deleting_holds(holdfast: Command, reminded: Reminded) -> None:
    reminded.reminded()
    reminded.cancel("h")
    reminded.sql("UPDATE holds SET closed_at = closed_at - interval '91 days', placed_at = placed_at - interval '95 d'")
    assert holdfast("prune").code == 2
    said = holdfast("prune", "--contacts-after", "90d")
    assert said.out == "contacts erased of closed holds: 1\n"
    [hold] = holdfast("show", "h", "--show-contacts", "--json").lines
    assert (hold["email"], hold["leads"]) == (None, ["1h"])
