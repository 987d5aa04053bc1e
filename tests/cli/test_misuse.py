"""Bad usage: exit 2, one line on stderr that names cause and cure, nothing on stdout, nothing changed."""

from collections.abc import Iterator

import pytest

from db.engine import Database
from tests.cli.conftest import Command
from tests.cli.saying import Script
from tests.helpers import Desk

SEAT = ("place", "x", "--resource", "seat", "--customer", "acme")
HOUR = (*SEAT, "--for", "1h")
DURATION = "is no duration; write it like 90s, 30m, 1h30m or 2d"
TIME = "is no time; write it like 2026-12-01T10:00:00+01:00"
ZONE = "use an IANA name like Europe/Berlin"
ID = "is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"
CENTS = "is no whole number of minor units (cents); write 12.50 EUR as 1250"
RANGE = "amount: must lie between 1 and 1000000000000000 minor units (cents)"
NUMBER = "must be a valid integer"
TOO_LARGE = "must be less than or equal to 9223372036854775807"
TOO_SMALL = "must be greater than or equal to 1"


def asking(*others: str) -> tuple[str, ...]:
    """A hold for an hour with 12.50 EUR on it, but for what is said otherwise."""
    return (*HOUR, "--amount", "1250", "--currency", "EUR", *others)


COMMAND_LINES: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown command": (("plcae",), "there is no command 'plcae'; did you mean 'place'? See `holdfast --help`"),
    "no command of a group": (("dead-letters",), "a command is missing; see `holdfast dead-letters --help`"),
    "an unknown option": ((*HOUR, "--zzz"), "--zzz: there is no such option; see `holdfast place --help`"),
    "a missing option": (
        ("place", "x", "--customer", "acme"), "--resource: is missing; see `holdfast place --help`"),
    "a missing value": ((*SEAT, "--for"), "--for: needs a value; see `holdfast --help`"),
    "a missing argument": (("show",), "ID: is missing; see `holdfast show --help`"),
    "one argument too many": (("show", "a", "b"), "too many arguments: b; see `holdfast show --help`"),
    "a version that is no number": (
        ("confirm", "x", "--version", "one"),
        f"--version: {NUMBER}; see `holdfast confirm --help`"),
    "version 0": (
        ("confirm", "x", "--version", "0"),
        f"--version: {TOO_SMALL}; see `holdfast confirm --help`"),
    "limit 0": (("list", "--limit", "0"), f"--limit: {TOO_SMALL}; see `holdfast list --help`"),
    "dead letter 0": (
        ("dead-letters", "show", "0"),
        f"NUMBER: {TOO_SMALL}; see `holdfast dead-letters show --help`"),
    "a dead letter's number beyond all": (
        ("dead-letters", "show", "9" * 30),
        f"NUMBER: {TOO_LARGE}; see `holdfast dead-letters show --help`"),
    "for 0s": ((*SEAT, "--for", "0s"), "--for: is zero; it must be longer than that"),
    "for less than nothing": ((*SEAT, "--for", "-5m"), f"--for: '-5m' {DURATION}"),
    "for a number": ((*SEAT, "--for", "30"), f"--for: '30' {DURATION}"),
    "for an empty text": ((*SEAT, "--for", ""), f"--for: '' {DURATION}"),
    "for eleven years": ((*SEAT, "--for", "4015d"), "for: must be longer than zero and at most 3660d"),
    "for longer than there are days": ((*SEAT, "--for", "999999999w"), "--for: '999999999w' is too long"),
    "both for and until": ((*HOUR, "--until", "2031-01-01T00:00:00Z"), "--for/--until: give one of the two"),
    "neither for nor until": (SEAT, "--for/--until: give one of the two"),
    "extend by neither": (("extend", "x", "--version", "1"), "--for/--until: give one of the two"),
    "a naive time": (
        (*SEAT, "--until", "2031-01-01T00:00:00"),
        "--until: '2031-01-01T00:00:00' has no zone; add an offset like +01:00 or Z"),
    "a time in words": ((*SEAT, "--until", "tomorrow"), f"--until: 'tomorrow' {TIME}"),
    "a day that is none": ((*SEAT, "--until", "2031-02-29T00:00:00Z"), f"--until: '2031-02-29T00:00:00Z' {TIME}"),
    "a time outside the calendar": (
        (*SEAT, "--until", "0001-01-01T00:00:00+01:00"),
        "--until: '0001-01-01T00:00:00+01:00' lies outside the calendar"),
    "an unknown zone": ((*HOUR, "--timezone", "Mars/Base"), f"timezone: 'Mars/Base': no such zone; {ZONE}"),
    "a zone that is an offset": ((*HOUR, "--timezone", "-05:00"), f"timezone: '-05:00': an offset is no zone; {ZONE}"),
    "the host's own zone": ((*HOUR, "--timezone", "localtime"), f"timezone: 'localtime': no such zone; {ZONE}"),
    "an unknown currency": (asking("--currency", "XYZ"), "currency: 'XYZ' is no ISO 4217 code; write it like EUR"),
    "a currency in small letters": (
        asking("--currency", "eur"), "currency: 'eur' is no ISO 4217 code; write it like EUR"),
    "an amount alone": ((*HOUR, "--amount", "1"), "currency: is missing beside an amount; give both or neither"),
    "a currency alone": ((*HOUR, "--currency", "EUR"), "amount: is missing beside a currency; give both or neither"),
    "amount 0": (asking("--amount", "0"), RANGE),
    "a huge amount": (asking("--amount", "1" + "0" * 15 + "1"), RANGE),
    "a negative amount": (asking("--amount", "-1"), f"--amount: '-1' {CENTS}"),
    "an amount with a point": (asking("--amount", "12.50"), f"--amount: '12.50' {CENTS}"),
    "an amount with a point and no cents": (asking("--amount", "12.00"), f"--amount: '12.00' {CENTS}"),
    "an amount with an underscore": (asking("--amount", "1_0"), f"--amount: '1_0' {CENTS}"),
    "an amount beside a space": (asking("--amount", " 12"), f"--amount: ' 12' {CENTS}"),
    "an amount in other digits": (asking("--amount", "١٢"), f"--amount: '١٢' {CENTS}"),
    "an amount without end": (asking("--amount", "9" * 5000), f"--amount: '{'9' * 40}' {CENTS}"),
    "an id with a space": (("show", "a b"), f"id: 'a b' {ID}"),
    "an id with a line break": (("show", "a\nb"), f"id: 'a\\nb' {ID}"),
    "an id with a NUL": (("show", "a\0"), f"id: 'a\\x00' {ID}"),
    "an id of other letters": (("show", "é"), f"id: 'é' {ID}"),
    "an id of 65 characters": (("trace", "a" * 65), f"id: '{'a' * 65}' {ID}"),
    "an empty id": (("confirm", "", "--version", "1"), f"id: '' {ID}"),
    "an empty resource": ((*HOUR, "--resource", ""), "resource: is empty; give it a text"),
    "a blank customer": ((*HOUR, "--customer", "  "), "customer: is empty; give it a text"),
    "a resource of 201 characters": ((*HOUR, "--resource", "r" * 201), "resource: has 201 characters; 200 at most"),
    "a line break in a customer": (
        (*HOUR, "--customer", "a\nb"), "customer: holds U+000A, a character that is no text; remove it"),
    "an escape sequence in a resource": (
        (*HOUR, "--resource", "\x1b[2J"), "resource: holds U+001B, a character that is no text; remove it"),
    "a NUL in a reason": (
        ("cancel", "x", "--version", "1", "--reason", "a\0"),
        "reason: holds U+0000, a character that is no text; remove it"),
    "an empty operator": (
        ("dead-letters", "discard", "1", "--operator", ""), "operator: is empty; give it a text"),
    "an unknown status": (
        ("list", "--status", "open"),
        "--status: 'open' is none; use one of held, confirmed, cancelled, expired, lapsed"),
    "a list after no id": (("list", "--after", "a b"), f"--after: 'a b' {ID}"),
    "a list of a resource with a NUL": (
        ("list", "--resource", "\0"), "--resource: holds U+0000, a character that is no text; remove it"),
    "a list of a resource with a lone surrogate": (
        ("list", "--resource", "\udcff"), "--resource: holds U+DCFF, a character that is no text; remove it"),
    "a command with a lone surrogate": (("\udcff",), "there is no command '\\udcff'; see `holdfast --help`"),
    "a list of an empty customer": (("list", "--customer", ""), "--customer: is empty; give it a text"),
    "an unknown path of apply": (
        ("apply", "--path", "beat"), "--path: 'beat' is none; use one of sweep, infrai, scanner, rescue"),
    "an unknown path of sweep": (
        ("sweep", "--path", "rescue"), "--path: 'rescue' drives no cohort; use sweep, infrai or scanner"),
    "a file that is not there": (("import", "/no/such"), "FILE: '/no/such' cannot be read: No such file or directory"),
    "prune without a time": (("prune",), "--closed-after/--contacts-after: give one of the two, or both"),
    "prune all": (("prune", "--closed-after", "0s"), "--closed-after: is zero; it must be longer than that"),
    "prune before the calendar": (
        ("prune", "--closed-after", "9999999w"), "--closed-after: reaches back more than 36600d; nothing is as old"),
}  # fmt: skip


@pytest.fixture(scope="module")
def address(one_database: str) -> str:
    """One database for all of these, since none of them changes it."""
    return one_database


@pytest.fixture(scope="module")
def there(address: str) -> Iterator[Desk]:
    database = Database(address)
    desk = Desk(database)
    desk.placed("there", amount=100, currency="EUR")
    yield desk
    database.close()


@pytest.fixture
def unwritten(there: Desk) -> Iterator[Desk]:
    """A database with a hold in it, in which the test's command changes nothing."""
    before = there.everything()
    yield there
    assert there.everything() == before


@pytest.mark.parametrize(("arguments", "line"), COMMAND_LINES.values(), ids=COMMAND_LINES.keys())
def test_bad_usage_is_told_in_one_line(
    holdfast: Command, unwritten: Desk, arguments: tuple[str, ...], line: str
) -> None:
    assert holdfast(*arguments) == (2, "", f"holdfast: {line}\n")


@pytest.mark.parametrize(
    "arguments", [HOUR[:3], (*SEAT, "--for", "0s"), ("show", "a b"), ("list", "--limit", "x"), ("plcae",)]
)
def test_bad_usage_prints_no_json(holdfast: Command, unwritten: Desk, arguments: tuple[str, ...]) -> None:
    said = holdfast(*arguments, "--json")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("show", b"\xff"), f"id: '\\udcff' {ID}"),
        ((*HOUR, "--customer", b"a\xed\xa0\x80"), "customer: holds U+DCED, a character that is no text; remove it"),
        (("import", b"/no/\xff"), "FILE: '/no/\\udcff' cannot be read: No such file or directory"),
    ],
)
def test_bytes_that_are_no_text_are_told_in_one_line(
    script: Script, unwritten: Desk, arguments: tuple[str | bytes, ...], line: str
) -> None:
    assert script(*arguments) == (2, "", f"holdfast: {line}\n")


def test_a_file_that_cannot_be_read_to_its_end_is_named(holdfast: Command) -> None:
    said = holdfast("import", "/proc/self/mem")
    assert said == (2, "", "holdfast: FILE: cannot be read to its end: Input/output error\n")
