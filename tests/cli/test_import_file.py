"""`holdfast import`: what it takes from a file, what it tells, and that dying midway does no harm."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import importing
from cli.importing import import_file
from db import holds
from db.engine import Database
from domain.errors import BadInput
from domain.holds import Done
from domain.identity import HoldId
from settings import ROOT
from tests.helpers import Desk, carrier, terms, wait_for_lock

PLACED = "2026-01-01T00:00:00Z"


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def line(hold: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": hold, "resource": "seat", "customer": "acme", "expires_at": "2030-01-01T00:00:00Z", "placed_at": PLACED,
        **fields,
    }  # fmt: skip


def written(path: Path, *lines: dict[str, Any] | bytes) -> Path:
    raw = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def run(desk: Desk, file: Path, *, strict: bool = False, emit: bool = False, as_json: bool = False) -> int:
    return import_file(desk.database, file, strict=strict, emit=emit, as_json=as_json)


def ids(desk: Desk) -> list[str]:
    return [row.id for row in desk.sql("SELECT id FROM holds ORDER BY id")]


def test_bad_lines_are_told_with_their_numbers_and_the_good_ones_are_taken(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.placed("z", resource="berth", exclusive=True)
    file = written(
        tmp_path / "holds.jsonl",
        line("a"),
        line("b", amount=1.5, currency="EUR"),
        b"",
        line("c", resource="berth", exclusive=True),
        line("a"),
        line("a", customer="globex"),
        b'{"id":',
        b'{"id":"\xff"}',
        b'"' + b"x" * 200_000 + b'"',
        line("d"),
    )
    assert run(desk, file) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "line 2: amount: must be a whole number of minor units (cents), in digits",
        "line 4: resource: 'berth' is taken by the exclusive hold 'z'",
        "line 6: id: 'a' is a hold with other terms already; use another",
        "line 7: JSON: Expecting value at character 7; write one object a line",
        "line 8: text: is not UTF-8 at byte 8",
        "line 9: text: is longer than 65536 bytes",
    ]
    assert told.out == "2 taken, 1 already there, 6 bad\n"
    assert ids(desk) == ["a", "d", "z"]


def test_strict_takes_nothing_and_still_tells_every_bad_line(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH", 2)
    before = desk.everything()
    file = written(tmp_path / "f", line("a"), line("b", version=0), line("c"), line("c", customer="globex"), line("d"))
    assert run(desk, file, strict=True, emit=True) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "line 2: version: must be a whole number from 1 to 1000000000",
        "line 4: id: 'c' is a hold with other terms already; use another",
    ]
    assert told.out == "0 taken, 0 already there, 2 bad\n"
    assert desk.everything() == before


def test_strict_takes_all_where_all_are_good(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH", 2)
    assert run(desk, written(tmp_path / "f", *(line(name) for name in "abcde")), strict=True) == 0
    assert capsys.readouterr().out == "5 taken, 0 already there, 0 bad\n"
    assert ids(desk) == list("abcde")


def test_json_tells_bad_lines_and_counts_on_standard_output_alone(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(desk, written(tmp_path / "f", line("a"), line("b", exclusive="no")), as_json=True) == 1
    told = capsys.readouterr()
    assert [json.loads(out) for out in told.out.splitlines()] == [
        {"line": 2, "field": "exclusive", "cause": "must be true or false"},
        {"taken": 1, "already_there": 0, "bad": 1},
    ]
    assert told.err == ""


def test_csv_and_json_lines_give_equal_rows(desk: Desk, tmp_path: Path) -> None:
    lines = [
        line("a", timezone="Asia/Tokyo", amount=1250, currency="JPY", exclusive=True, version=2),
        line("b", status="cancelled", closed_at="2026-01-02T00:00:00Z", close_reason='rain, "again"', exclusive=False),
        line("c", status="confirmed", closed_at="2026-01-02T00:00:00Z", customer="Größe \\ N"),
    ]
    assert run(desk, written(tmp_path / "holds.jsonl", *lines), emit=True) == 0
    from_json = desk.everything()
    forget_all(desk)
    names = list(dict.fromkeys(name for entry in lines for name in entry))
    rows = [",".join(cell(entry.get(name)) for name in names).encode() for entry in lines]
    assert run(desk, written(tmp_path / "holds.CSV", ",".join(names).encode(), *rows), emit=True) == 0
    assert desk.everything() == from_json
    assert len(from_json["holds"]) == 3
    assert len(from_json["events"]) == 5


def cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return '"' + str(value).replace('"', '""') + '"'


def forget_all(desk: Desk) -> None:
    """Empty the tables, against the ledger's will."""
    desk.sql("ALTER TABLE ledger DISABLE TRIGGER ALL")
    desk.sql("TRUNCATE holds, effects, ledger, events")
    desk.sql("ALTER TABLE ledger ENABLE TRIGGER ALL")


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_are_passed_over(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "holds.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(line("a")).encode() + b"\r\n\r\n  \n" + json.dumps(line("b")).encode()
    )
    assert run(desk, file) == 0
    assert ids(desk) == ["a", "b"]


def test_a_line_of_the_greatest_length_is_read_and_one_byte_more_is_not(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = [json.dumps(line(name)).encode() for name in ("a", "b")]
    padded = [raw[:-1] + b" " * (65_536 + more - len(raw)) + b"}" for more, raw in enumerate(longest)]
    assert run(desk, written(tmp_path / "f", *padded, line("c"))) == 1
    assert capsys.readouterr().err == "line 2: text: is longer than 65536 bytes\n"
    assert ids(desk) == ["a", "c"]


def test_an_empty_file_is_no_error(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(desk, written(tmp_path / "f")) == 0
    assert capsys.readouterr().out == "0 taken, 0 already there, 0 bad\n"


def test_a_dash_reads_json_lines_from_standard_input(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(line("a")).encode())))
    assert run(desk, Path("-")) == 0
    assert ids(desk) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.jsonl", None, "FILE: {path!r} cannot be read: No such file or directory"),
        ("holds.csv", b"", "header: is missing; the first line names the columns"),
        ("holds.csv", b"id,resource,customer\n", "expires_at: is no column of the header; every hold needs it"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_whole(
    desk: Desk, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        run(desk, path)
    assert str(refused.value) == said.format(path=str(path))


def test_a_terminal_sees_how_far_the_import_is(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH", 2)
    screen = io.StringIO()
    import_file(
        desk.database, written(tmp_path / "holds.jsonl", *(line(name) for name in "abc")),
        strict=False, emit=False, as_json=True, console=Console(file=screen, force_terminal=True, width=100),
    )  # fmt: skip
    assert "holds.jsonl: 3 lines" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_the_examples_can_be_imported_again_and_again(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(desk, ROOT / "examples/holds.jsonl", strict=True, emit=True) == 0
    before = desk.everything()
    assert run(desk, ROOT / "examples/holds.jsonl", strict=True, emit=True) == 0
    assert capsys.readouterr().out == "40 taken, 0 already there, 0 bad\n0 taken, 40 already there, 0 bad\n"
    assert desk.everything() == before


_CHILD = """
import sys
from pathlib import Path
from cli import importing
from db.engine import Database
importing.BATCH = 50
importing.import_file(Database(sys.argv[1]), Path(sys.argv[2]), strict=False, emit=True, as_json=False)
"""


def test_an_import_killed_inside_a_batch_and_run_again_ends_as_one_that_was_not(
    desk: Desk, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        tmp_path / "holds.jsonl",
        *(
            line(f"h-{n:03}", amount=n + 1, currency="EUR", **({} if n % 2 else closed()))
            for n in range(200)
        ),
    )  # fmt: skip
    assert run(desk, file, emit=True) == 0
    undisturbed = desk.everything()
    forget_all(desk)
    with desk.database.transaction() as tx:
        assert isinstance(holds.place(tx, HoldId("h-120"), terms(), carrier()), Done)
        child = subprocess.Popen([sys.executable, "-c", _CHILD, database_url, str(file)], cwd=ROOT)
        with desk.database.transaction() as watcher:
            wait_for_lock(watcher)
        child.kill()
        child.wait(20)
        tx.rollback()
    assert ids(desk) == [f"h-{n:03}" for n in range(100)]
    assert run(desk, file, emit=True) == 0
    assert desk.everything() == undisturbed
    assert capsys.readouterr().out.splitlines()[-1] == "100 taken, 100 already there, 0 bad"


def closed() -> dict[str, str]:
    return {"status": "confirmed", "closed_at": "2026-01-02T00:00:00Z"}
