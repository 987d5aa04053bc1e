"""The report as a table of 80 columns, and what a reader must know to read it."""

from typing import assert_never

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from comparison.candidate import Standing
from comparison.result import Column, Report, Result, Status

_WIDTH = 80
_WORDS = {
    Status.PASSED: ("pass", "green"),
    Status.FAILED: ("FAIL", "bold red"),
    Status.NOT_OFFERED: ("not offered", "yellow"),
    Status.SKIPPED: ("skipped", "dim"),
}


def print_report(console: Console, report: Report) -> None:
    """The matrix, then each engine, then each cell that is not a pass with its reason."""
    places = report.by_place()
    title = f"seed {report.seed}, each case {times(report.runs)}"
    table = Table(width=_WIDTH, title=title, title_justify="left")
    table.add_column("case", ratio=3)
    for column in report.columns:
        table.add_column(_head(column), ratio=2)
    for case in report.cases:
        cells = [places.get((case.id, column.name)) for column in report.columns]
        table.add_row(case.title, *(_cell(cell) for cell in cells))
    console.print(table)
    for column in report.columns:
        console.print(_engine(column), soft_wrap=True, markup=False)
    for result in report.results:
        if result.status in {Status.FAILED, Status.NOT_OFFERED}:
            word, style = _WORDS[result.status]
            console.print(f"{result.candidate}, {result.case}: [{style}]{word}[/]", end=" ")
            console.print(result.summary, markup=False, soft_wrap=True)
    console.print(f"Repeat it with --seed {report.seed}.")


def _head(column: Column) -> str:
    """Who it is, and on what if that is not what its name says."""
    if column.description is None:
        return column.title
    match column.description.engine.standing:
        case Standing.REAL:
            return column.title
        case Standing.PROTOCOL:
            return f"{column.title}\n[dim](on {escape(column.description.engine.name)})[/]"
        case Standing.CONTRACT:
            return f"{column.title}\n[dim](our server)[/]"
        case never:
            assert_never(never)


def times(runs: int) -> str:
    """How often something was done, in words."""
    return {1: "once", 2: "twice"}.get(runs, f"{runs} times")


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    word, style = _WORDS[result.status]
    of = f" {result.passed_runs}/{result.runs}" if result.runs > 1 else ""
    return f"[{style}]{word}{of}[/]"


def _engine(column: Column) -> str:
    if column.description is None:
        return f"{column.title}: skipped, {column.skipped}"
    engine = column.description.engine
    said = f"{column.title}: {engine.name} {engine.version}, {engine.standing}; by {column.description.client}"
    broken = f"; RECONCILE FOUND {', '.join(column.violations)}" if column.violations else "; reconcile finds nothing"
    left = f"; IT COULD NOT TIDY UP: {column.left}" if column.left else ""
    return said + broken + left
