"""`place`, `extend`, `confirm`, `cancel`: what they print, and that a repeat or a refusal changes nothing."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.holds import Status
from domain.terms import For, Until
from tests.cli.conftest import Command
from tests.helpers import Desk
from tests.histories import forget

SEAT = ("--resource", "seat 14", "--customer", "acme")
TWO_HOURS = (*SEAT, "--for", "2h")
FAR = datetime(2031, 1, 1, 9, tzinfo=UTC)


def test_place_prints_the_hold_as_a_person_reads_it(holdfast: Command) -> None:
    said = holdfast(
        "place", "seat-1", *SEAT, "--until", "2031-01-01T10:00:00+01:00", "--timezone", "Asia/Tokyo",
        "--amount", "1250", "--currency", "EUR", "--exclusive",
    )  # fmt: skip
    assert (said.code, said.err) == (0, "")
    assert re.sub(r"\(in [0-9dhms]+\)", "(in a while)", said.out) == (
        "seat-1  held  version 1\n"
        "  resource  seat 14  (exclusive)\n"
        "  customer  acme\n"
        "  amount    12.50 EUR\n"
        "  expires   2031-01-01 18:00:00 JST  (in a while)\n"
    )


def test_place_prints_the_hold_as_json(holdfast: Command, desk: Desk) -> None:
    said = holdfast(
        "place", "seat-1", *SEAT, "--until", "2031-01-01T10:00:00+01:00", "--timezone", "America/New_York",
        "--amount", "1250", "--currency", "EUR", "--exclusive", "--json",
    )  # fmt: skip
    assert (said.code, said.err) == (0, "")
    assert said.data == desk.read("seat-1").as_data()
    assert {name: said.data[name] for name in said.data if name not in {"placed_at", "cohort"}} == {
        "id": "seat-1", "resource": "seat 14", "customer": "acme", "status": "held", "version": 1,
        "expires_at": "2031-01-01T09:00:00Z", "timezone": "America/New_York", "amount": 1250, "currency": "EUR",
        "exclusive": True, "closed_at": None, "close_reason": None, "set_aside": False, "email": None, "phone": None,
        "locale": None, "leads": None,
    }  # fmt: skip


def test_place_makes_an_id_where_none_is_given(holdfast: Command, desk: Desk) -> None:
    said = holdfast("place", *TWO_HOURS, "--json")
    assert re.fullmatch("h_[0-9a-f]{20}", said.data["id"])
    assert said.data == desk.read(said.data["id"]).as_data()


def test_for_counts_from_now_and_a_fraction_of_a_second_is_rounded_up(holdfast: Command, desk: Desk) -> None:
    assert holdfast("place", "h", *SEAT, "--for", "1h30m0.25s").code == 0
    hold = desk.read("h")
    asked = hold.placed_at + timedelta(hours=1, minutes=30, seconds=0.25)
    assert asked <= hold.expires_at < asked + timedelta(seconds=1)
    assert hold.expires_at.microsecond == 0
    assert holdfast("place", "u", *SEAT, "--until", "2031-01-01T09:59:59.5+01:00").code == 0
    assert desk.read("u").expires_at == FAR


def test_the_same_id_with_the_same_terms_is_the_same_hold(holdfast: Command, desk: Desk) -> None:
    first = holdfast("place", "h", *TWO_HOURS, "--json")
    before = desk.everything()
    again = holdfast("place", "h", *TWO_HOURS, "--json")
    assert (again.code, again.out, again.err) == (0, first.out, "")
    assert desk.everything() == before


@pytest.mark.parametrize("standing", ["confirmed", "cancelled", "lapsed", "expired"])
def test_placed_again_after_its_end_it_is_shown_and_refused(holdfast: Command, desk: Desk, standing: str) -> None:
    desk.placed("h")
    match standing:
        case "confirmed":
            desk.confirm("h")
        case "cancelled":
            desk.cancel("h")
        case _:
            desk.age("h", timedelta(hours=3))
    if standing == "expired":
        desk.expire(desk.read("h").reference)
    before = desk.everything()
    said = holdfast("place", "h", *TWO_HOURS, "--json")
    assert said.code == 1
    assert (said.data["id"], said.data["status"]) == ("h", standing)
    assert said.complaint == f"hold h was placed before with these terms and is {standing}; use another id"
    assert holdfast("place", "h", *TWO_HOURS).out.startswith(f"h  {standing}  version 1\n")
    assert desk.everything() == before


@pytest.mark.parametrize(
    "other",
    [
        ("--resource", "seat 15"),
        ("--customer", "globex"),
        ("--for", "7201s"),
        ("--timezone", "Europe/Berlin"),
        ("--amount", "1", "--currency", "EUR"),
        ("--exclusive",),
    ],
)
def test_the_same_id_with_other_terms_is_refused(holdfast: Command, desk: Desk, other: tuple[str, ...]) -> None:
    desk.placed("h")
    before = desk.everything()
    said = holdfast("place", "h", *TWO_HOURS, *other, "--json")
    line = "hold h exists with other terms; see `holdfast show h`, or use another id"
    assert (said.code, said.complaint) == (1, line)
    assert said.data == {"refused": "terms_differ", "message": line, "hold": desk.read("h").as_data()}
    assert holdfast("place", "h", *TWO_HOURS, *other) == (1, "", f"holdfast: {line}\n")
    assert desk.everything() == before


def test_an_exclusive_hold_is_refused_while_another_has_the_resource(holdfast: Command, desk: Desk) -> None:
    desk.placed("first", Until(FAR), exclusive=True)
    before = desk.everything()
    said = holdfast("place", "second", *TWO_HOURS, "--exclusive", "--json")
    line = "the resource is taken by hold first until 2031-01-01T09:00:00Z; wait, or choose another"
    assert (said.code, said.complaint) == (1, line)
    assert said.data == {"refused": "resource_taken", "message": line, "hold": desk.read("first").as_data()}
    assert desk.everything() == before
    assert holdfast("place", "third", *TWO_HOURS).code == 0


def test_a_lapsed_hold_does_not_keep_its_resource(holdfast: Command, desk: Desk) -> None:
    desk.overdue("first", exclusive=True)
    assert holdfast("place", "second", *TWO_HOURS, "--exclusive").code == 0
    assert desk.read("first").status is Status.EXPIRED
    assert desk.sql("SELECT worker LIKE 'cli@%', path FROM receipts") == [(True, None)]


def test_the_id_of_a_pruned_hold_is_not_used_again(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", amount=100, currency="EUR")
    desk.confirm("h")
    forget(desk, "h")
    said = holdfast("place", "h", *TWO_HOURS, "--json")
    line = "the ledger already knows a pruned hold h; place this one under another id"
    assert (said.code, said.complaint) == (1, line)
    assert said.data == {"refused": "id_retired", "message": line, "hold": None}


def test_extend_for_counts_from_the_present_deadline(holdfast: Command, desk: Desk) -> None:
    before = desk.placed("h").expires_at
    said = holdfast("extend", "h", "--version", "1", "--for", "90m", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.data == desk.read("h").as_data()
    assert said.data["version"] == 2
    assert desk.read("h").expires_at == before + timedelta(minutes=90)
    again = desk.everything()
    assert holdfast("extend", "h", "--version", "1", "--for", "90m", "--json").out == said.out
    assert desk.everything() == again


def test_extend_until_may_be_earlier(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", Until(FAR + timedelta(days=1)))
    said = holdfast("extend", "h", "--version", "1", "--until", "2031-01-01T09:00:00Z")
    assert said.code == 0
    assert said.out.startswith("h  held  version 2\n")
    assert desk.read("h").expires_at == FAR


def test_extend_to_a_time_that_is_not_ahead_is_bad_usage(holdfast: Command, desk: Desk) -> None:
    desk.placed("h")
    before = desk.everything()
    said = holdfast("extend", "h", "--version", "1", "--until", "2020-01-01T00:00:00Z", "--json")
    assert (said.code, said.out) == (2, "")
    assert re.fullmatch(r"until: 2020-01-01T00:00:00Z is not after now \(20[0-9T:Z-]+\)", said.complaint)
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["confirm", "cancel"])
def test_closing_a_hold_works_twice_and_has_one_effect(holdfast: Command, desk: Desk, verb: str) -> None:
    desk.placed("h", amount=100, currency="EUR")
    command = closing(verb, "h")
    said = holdfast(*command, "--json")
    assert (said.code, said.err) == (0, "")
    assert (said.data["status"], said.data["close_reason"]) == {
        "confirm": ("confirmed", None),
        "cancel": ("cancelled", "no rain"),
    }[verb]
    assert said.data == desk.read("h").as_data()
    before = desk.everything()
    assert holdfast(*command, "--json") == said
    assert holdfast(*command).out.splitlines()[0] == f"h  {said.data['status']}  version 1"
    assert desk.everything() == before


def closing(verb: str, hold: str, version: int = 1) -> tuple[str, ...]:
    reason = ("--reason", "no rain") if verb == "cancel" else ()
    return (verb, hold, "--version", str(version), *reason)


CHANGES: list[tuple[str, ...]] = [
    ("extend", "h", "--version", "1", "--for", "1h"),
    ("confirm", "h", "--version", "1"),
    ("cancel", "h", "--version", "1", "--reason", "no rain"),
]


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: command[0])
@pytest.mark.parametrize("case", ["missing", "wrong_version", "lapsed", "closed"])
def test_a_change_is_refused_with_its_reason(
    holdfast: Command, desk: Desk, command: tuple[str, ...], case: str
) -> None:
    line = _prepared(desk, case)
    hold = None if case == "missing" else desk.read("h").as_data()
    before = desk.everything()
    assert holdfast(*command) == (1, "", f"holdfast: {line}\n")
    said = holdfast(*command, "--json")
    assert (said.code, said.complaint) == (1, line)
    assert said.data == {"refused": case, "message": line, "hold": hold}
    assert desk.everything() == before


def _prepared(desk: Desk, case: str) -> str:
    """Bring hold `h` into this case; returns the line that refuses."""
    match case:
        case "missing":
            return "there is no hold h; `holdfast list` shows those there are"
        case "wrong_version":
            desk.placed("h")
            desk.extend("h", 1, For(timedelta(hours=5)))
            return "hold h is at version 2; read it with `holdfast show h` and decide again"
        case "lapsed":
            return f"hold h lapsed at {desk.overdue('h').as_data()['expires_at']}; place a new one"
        case _:
            desk.expire(desk.overdue("h").reference)
            return "hold h is expired already; nothing changes it any more"


def test_cancel_again_with_another_reason_is_refused(holdfast: Command, desk: Desk) -> None:
    desk.placed("h")
    desk.cancel("h", reason="rain")
    before = desk.everything()
    said = holdfast(*closing("cancel", "h"))
    assert said == (1, "", "holdfast: hold h is cancelled already; nothing changes it any more\n")
    assert desk.everything() == before


def test_a_version_too_large_for_the_database_is_another_version(holdfast: Command, desk: Desk) -> None:
    desk.placed("h")
    said: Any = holdfast("confirm", "h", "--version", "9" * 30)
    assert said.complaint == "hold h is at version 1; read it with `holdfast show h` and decide again"
