"""`apply`, the door for any other transport: an outcome for each reference, an error for each malformed line."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import make_url

from domain.identity import HoldId, cohort
from domain.references import Reference
from domain.terms import For, Until
from tests.cli.conftest import Command
from tests.cli.saying import Script
from tests.helpers import Desk

FAR = datetime(2031, 1, 1, 9, tzinfo=UTC)
REFERENCE = Reference.to(HoldId("h"), 1, FAR).as_data()
"""Hold `h` as the tests place it here."""


def line(**changes: object) -> bytes:
    """A reference's line; a field that is changed to `...` is left out."""
    return json.dumps({name: value for name, value in (REFERENCE | changes).items() if value is not ...}).encode()


def of(desk: Desk, hold: str) -> bytes:
    return json.dumps(desk.read(hold).reference.as_data()).encode()


def test_each_reference_gets_its_outcome_in_order(holdfast: Command, desk: Desk) -> None:
    desk.overdue("due")
    desk.placed("h", Until(FAR))
    desk.placed("kept", Until(FAR))
    kept = of(desk, "kept")
    desk.confirm("kept")
    desk.placed("longer", Until(FAR))
    longer = of(desk, "longer")
    desk.extend("longer", 1, For(timedelta(hours=1)))
    asked = [of(desk, "due"), of(desk, "due"), line(), kept, longer, of(desk, "longer"), missing("nobody")]
    said = holdfast("apply", stdin=b"\n".join(asked) + b"\n")
    assert (said.code, said.err) == (0, "")
    assert said.lines == [
        {"job_id": json.loads(raw)["job_id"], "outcome": outcome}
        for raw, outcome in zip(
            asked, ["expired", "duplicate", "early", "stale", "stale", "early", "missing"], strict=True
        )
    ]
    assert desk.sql("SELECT id, status FROM holds ORDER BY id") == [
        ("due", "expired"), ("h", "held"), ("kept", "confirmed"), ("longer", "held"),
    ]  # fmt: skip
    assert holdfast("apply", "--json", stdin=line()).out == holdfast("apply", stdin=line()).out


def missing(hold: str) -> bytes:
    return json.dumps(Reference.to(HoldId(hold), 1, FAR).as_data()).encode()


def test_a_receipt_says_who_applied_it(holdfast: Command, desk: Desk) -> None:
    hold = desk.overdue("h")
    holdfast("apply", "--path", "sweep", stdin=of(desk, "h"))
    assert desk.sql("SELECT message_id ~ '^cli:[0-9a-f]{16}$', worker LIKE 'cli@%', path, tally FROM receipts") == [
        (True, True, "sweep", {"expired": {str(hold.cohort): 1}})
    ]


def test_a_path_applies_its_own_cohorts_only(holdfast: Command, desk: Desk) -> None:
    desk.sql("UPDATE cohort_paths SET path = 'infrai' WHERE cohort = :mine", mine=cohort(HoldId("mine")))
    for name in ("mine", "theirs"):
        desk.overdue(name)
    assert cohort(HoldId("mine")) != cohort(HoldId("theirs"))
    asked = of(desk, "mine") + b"\n" + of(desk, "theirs")
    said = holdfast("apply", "--path", "infrai", stdin=asked)
    assert (said.code, [answer["outcome"] for answer in said.lines]) == (0, ["expired", "elsewhere"])
    assert desk.sql("SELECT id, status FROM holds ORDER BY id") == [("mine", "expired"), ("theirs", "held")]
    assert holdfast("apply", stdin=of(desk, "theirs")).data["outcome"] == "expired"


OBJECT = "line: is no JSON object in UTF-8"
FIELDS = "reference: must be a JSON object with the four fields of a reference"
VERSION = "hold_version: must be a whole number from 1 to 2147483647"
MALFORMED: list[tuple[str, bytes, str]] = [
    ("an unknown field", line(urgent=True), "urgent: is no field of a reference"),
    ("an unknown field with a NUL", line(**{"a\0b": 1}), "a\\x00b: is no field of a reference"),
    ("a missing field", line(hold_version=...), "hold_version: is missing"),
    ("a version that is text", line(hold_version="1"), VERSION),
    ("a version that is a float", line(hold_version=1.0), VERSION),
    ("a version that is a truth value", line(hold_version=True), VERSION),
    ("version 0", line(hold_version=0), VERSION),
    ("a version beyond 32 bits", line(hold_version=2**31), VERSION),
    ("a version that is no number", line().replace(b'_version": 1', b'_version": NaN'), VERSION),
    ("an endless version", line().replace(b'_version": 1', b'_version": 1' + b"0" * 3000), VERSION),
    ("an id that is a number", line(reservation_id=7), "reservation_id: must be a text"),
    ("a job_id that is null", line(job_id=None), "job_id: must be a text"),
    ("an id with a space", line(reservation_id="a b"),
     "reservation_id: 'a b' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"),
    ("an id with a lone surrogate", line(reservation_id="\ud800"),
     "reservation_id: '\\ud800' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"),
    ("an id with a NUL", line(reservation_id="h\0"),
     "reservation_id: 'h\\x00' is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"),
    ("a naive time", line(expected_expires_at="2031-01-01T09:00:00"),
     "expected_expires_at: '2031-01-01T09:00:00' has no zone; add an offset like +01:00 or Z"),
    ("a time that is a number", line(expected_expires_at=1925024400),
     "expected_expires_at: must be a text like 2026-12-01T10:00:00+01:00"),
    ("no time", line(expected_expires_at="soon"),
     "expected_expires_at: 'soon' is no time; write it like 2026-12-01T10:00:00+01:00"),
    ("a fraction of a second", line(expected_expires_at="2031-01-01T09:00:00.5Z"),
     "expected_expires_at: must be in whole seconds"),
    ("the job of another version", line(hold_version=2),
     "job_id: does not belong to the rest; it would be hold-expiry:h:v2:1925024400"),
    ("a job with a lone surrogate", line(job_id="\udfff"),
     "job_id: does not belong to the rest; it would be hold-expiry:h:v1:1925024400"),
    ("a list", b"[1, 2]", FIELDS),
    ("a text", b'"h"', FIELDS),
    ("null", b"null", FIELDS),
    ("two objects on a line", line() + b" " + line(), OBJECT),
    ("half an object", line()[:-1], OBJECT),
    ("no JSON", b"hello", OBJECT),
    ("a bare NUL", b"\0", OBJECT),
    ("bytes that are no UTF-8", b'{"job_id": "\xff"}', OBJECT),
    ("deep nesting", b"[" * 4000, OBJECT),
    ("a long number", b"9" * 4000, FIELDS),
    ("a line too long", line(reservation_id="x" * 100_000), "line: is longer than 4096 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "error"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_malformed_line_is_told_and_the_next_is_applied(
    holdfast: Command, desk: Desk, raw: bytes, error: str
) -> None:
    desk.placed("h", Until(FAR))
    before = desk.everything()
    said = holdfast("apply", stdin=raw + b"\n" + missing("n") + b"\n")
    assert (said.code, said.err) == (1, "")
    assert said.lines == [
        {"line": 1, "error": error, "malformed": True},
        {"job_id": "hold-expiry:n:v1:1925024400", "outcome": "missing"},
    ]
    assert {**desk.everything(), "receipts": []} == before
    assert desk.count("receipts") == 1


def test_a_line_may_have_4096_bytes_with_its_line_feed(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", Until(FAR))
    longest = line() + b" " * (4095 - len(line()))
    said = holdfast("apply", stdin=longest + b"\n" + longest + b" \n" + line())
    assert [answer.get("outcome", answer.get("error")) for answer in said.lines] == [
        "early", "line: is longer than 4096 bytes", "early",
    ]  # fmt: skip


@pytest.mark.parametrize("nothing", [b"", b"\n", b"  \n\r\n\n"])
def test_no_reference_is_no_error(holdfast: Command, nothing: bytes) -> None:
    assert holdfast("apply", stdin=nothing) == (0, "", "")


def test_blank_lines_count_and_the_last_line_needs_no_end(holdfast: Command, desk: Desk) -> None:
    said = holdfast("apply", stdin=b"\n\r\nhello\r\n" + missing("n"))
    assert said.code == 1
    assert said.lines == [
        {"line": 3, "error": OBJECT, "malformed": True},
        {"job_id": "hold-expiry:n:v1:1925024400", "outcome": "missing"},
    ]


def test_a_line_that_waits_too_long_is_not_applied_and_the_next_is(
    holdfast: Command, desk: Desk, impatient: None
) -> None:
    desk.overdue("a")
    desk.overdue("b")
    asked = of(desk, "a") + b"\n" + of(desk, "b")
    with desk.database.transaction() as other:
        other.exec_driver_sql("SELECT FROM holds WHERE id = 'a' FOR UPDATE")
        said = holdfast("apply", stdin=asked)
    jobs = [json.loads(raw)["job_id"] for raw in asked.splitlines()]
    assert said.code == 1
    assert said.lines == [
        {
            "line": 1, "job_id": jobs[0], "malformed": False,
            "error": "not applied: canceling statement due to lock timeout; try again",
        },
        {"job_id": jobs[1], "outcome": "expired"},
    ]  # fmt: skip
    assert desk.read("a").standing == "lapsed"


def test_without_a_database_nothing_is_applied_and_nothing_called_malformed(
    holdfast: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = make_url(address).update_query_dict({"host": "/nowhere"})
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", nowhere.render_as_string(hide_password=False))
    said = holdfast("apply", stdin=line() + b"\n{}\n")
    assert said.code == 1
    first, second = said.lines
    assert (first["line"], first["job_id"], first["malformed"]) == (1, REFERENCE["job_id"], False)
    assert first["error"].startswith('not applied: connection is bad: connection to server on socket "/nowhere')
    assert second == {"line": 2, "error": "expected_expires_at: is missing", "malformed": True}


def test_an_answer_comes_before_the_next_line_is_asked_for(script: Script, desk: Desk) -> None:
    desk.overdue("h")
    asked = of(desk, "h") + b"\n"
    with script.start("apply") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[Any] = []
        for raw in (asked, b"hello\n", asked):
            process.stdin.write(raw)
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(20) == 1
    assert [answer.get("outcome", answer.get("error")) for answer in answers] == ["expired", OBJECT, "duplicate"]
