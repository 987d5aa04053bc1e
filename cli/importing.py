"""`holdfast import`: read a file of holds line by line, show progress, report each bad line."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cli.output import print_json
from db.engine import Database
from db.holds import clock
from db.importing import Answer, Batch, prepare, take
from domain.errors import BadInput
from domain.importing import LONGEST_LINE, BadLine, Incoming, Reader, csv_reader, read_hold, read_json
from settings import settings

BATCH = 10_000
"""Lines in one transaction: a second's work, so that live writers never wait longer for it."""

_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line that is not blank, without its end. Of one that is too long only the first part is kept."""

    number: int
    raw: bytes


def lines_of(source: BinaryIO) -> Iterator[Line]:
    """The lines of a file, one at a time, however long the file or a line is; a byte order mark is passed over."""
    number = 0
    while raw := _read(source, LONGEST_LINE + 2):
        number += 1
        if not raw.endswith(b"\n"):
            _pass_over(source)
        line = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
        if line:
            yield Line(number, line)


def _read(source: BinaryIO, limit: int) -> bytes:
    try:
        return source.readline(limit)
    except OSError as problem:
        raise BadInput("FILE", f"cannot be read to its end: {problem.strerror}") from None


def _pass_over(source: BinaryIO) -> None:
    """Skip to the end of a line."""
    while (part := _read(source, LONGEST_LINE)) and not part.endswith(b"\n"):
        continue


class _Ready(NamedTuple):
    """A batch read and judged: what to take, and the lines that are bad already."""

    batch: Batch
    bad: list[BadLine]


@dataclass(slots=True)
class _Report:
    """What an import tells, and what it has counted."""

    as_json: bool
    console: Console
    totals: Console
    counts: dict[str, int] = field(default_factory=lambda: {"taken": 0, "already_there": 0, "bad": 0})

    def add(self, answer: Answer, unread: Sequence[BadLine]) -> None:
        """Count a batch, and tell of its bad lines in their order."""
        bad = sorted([*unread, *answer.bad], key=lambda line: line.number)
        for name, count in (("taken", answer.taken), ("already_there", answer.already_there), ("bad", len(bad))):
            self.counts[name] += count
        for line in bad:
            if self.as_json:
                print_json(line.as_data())
            else:
                self.console.print(str(line), style="red", markup=False, emoji=False, highlight=False, soft_wrap=True)

    def close(self) -> int:
        """Tell the counts; returns the exit code."""
        if self.as_json:
            print_json(self.counts)
        else:
            self.totals.print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items()))
        return 1 if self.counts["bad"] else 0


def import_file(
    database: Database, file: Path, *, strict: bool, emit: bool, as_json: bool, console: Console | None = None
) -> int:
    """Take the holds of a file, `-` for standard input; returns 0, or 1 where any line is bad.

    A name ending in `.csv` is CSV with a header, any other JSON lines. Bad lines go to standard error as they are
    met, the counts to standard output, both to `console` if one is given; `as_json` writes both to standard output,
    one object a line. Each batch is one transaction, so an import that died may be run again. `strict` makes it one
    for all, rolled back where a line is bad.

    Raises:
        BadInput: the file cannot be read, or its CSV header cannot be used.
    """
    report = _Report(as_json, console or Console(stderr=True), console or Console(highlight=False))
    with _opened(file) as source:
        lines = lines_of(source)
        reader = _csv(lines) if file.suffix.lower() == ".csv" else read_json
        batches = _with_bar(_batches(lines, database), file, source, report.console)
        ready = _ahead(lambda lines, now: _prepare(lines, now, reader, emit=emit), batches)
        (_all_or_none if strict else _each)(database, ready, report)
    return report.close()


def _each(database: Database, ready: Iterable[_Ready], report: _Report) -> None:
    for batch, bad in ready:
        with database.transaction() as tx:
            answer = take(tx, batch)
        report.add(answer, bad)


def _all_or_none(database: Database, ready: Iterable[_Ready], report: _Report) -> None:
    with database.transaction() as tx:
        for batch, bad in ready:
            report.add(take(tx, batch), bad)
        if report.counts["bad"]:
            tx.rollback()
            report.counts["taken"] = 0


Timed = tuple[list[Line], datetime]


def _ahead(prepare: Callable[[list[Line], datetime], _Ready], batches: Iterable[Timed]) -> Iterator[_Ready]:
    """Each batch prepared, the next one while the database has this one: two cores are better than one."""
    with ThreadPoolExecutor(1) as thread:
        ready: Future[_Ready] | None = None
        for lines, now in batches:
            coming = thread.submit(prepare, lines, now)
            if ready is not None:
                yield ready.result()
            ready = coming
        if ready is not None:
            yield ready.result()


def _prepare(lines: Iterable[Line], now: datetime, reader: Reader, *, emit: bool) -> _Ready:
    good: list[Incoming] = []
    bad: list[BadLine] = []
    for number, raw in lines:
        try:
            good.append(read_hold(number, reader(raw), now))
        except BadInput as problem:
            bad.append(BadLine(number, problem))
    return _Ready(prepare(good, emit=emit, leads=settings().leads), bad)


def _csv(lines: Iterator[Line]) -> Reader:
    header = next(lines, None)
    if header is None:
        raise BadInput("header", "is missing; the first line names the columns")
    return csv_reader(header.raw)


def _batches(lines: Iterator[Line], database: Database) -> Iterator[Timed]:
    """Lines by the batch, each with the instant by the database's clock when the last of them was read."""
    while batch := list(islice(lines, BATCH)):
        with database.transaction() as tx:
            now = clock(tx)
        yield batch, now


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as problem:
        raise BadInput("FILE", f"{str(file)!r} cannot be read: {problem.strerror}") from None
    with source:
        yield source


def _with_bar(batches: Iterable[Timed], file: Path, source: BinaryIO, console: Console) -> Iterator[Timed]:
    """The batches as they come, with a bar on a terminal: by bytes, where the size is known."""
    size = file.stat().st_size if file.is_file() else None
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(file.name, total=size)
        count = 0
        for lines, now in batches:
            yield lines, now
            count += len(lines)
            done = None if size is None else source.tell()
            progress.update(task, completed=done, description=f"{file.name}: {count:,} lines")
