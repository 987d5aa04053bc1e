"""The report as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

A cell opens by the browser's own popover: by mouse, by keyboard, closed by Escape. A page without script cannot break.
"""

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from comparison.candidate import Limit
from comparison.report.terminal import times
from comparison.report.timeline import timeline_svg
from comparison.result import CaseText, Check, Column, Report, Result, Status
from domain.instants import rfc3339

_MARKS = {Status.PASSED: "✓", Status.FAILED: "✕", Status.NOT_OFFERED: "–", Status.SKIPPED: "·"}
_MEANINGS = {
    Status.PASSED: "everything checked holds",
    Status.FAILED: "at least one check does not hold",
    Status.NOT_OFFERED: "the transport does not have what the case is about",
    Status.SKIPPED: "its engine does not answer here",
}


def page(report: Report) -> str:
    """The whole page."""
    style = (files("comparison.report") / "page.css").read_text(encoding="utf-8")
    places = report.by_place()
    cells = [
        (case, column, places[case.id, column.name])
        for case in report.cases
        for column in report.columns
        if (case.id, column.name) in places
    ]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Holdfast: the hostile experiment</title><style>{style}</style></head><body>",
            _head(report),
            f"<main>{_legend()}{_matrix(report)}{_orders(report)}{_engines(report)}{_cases(report)}</main>",
            *(_sheet(case, column, result) for case, column, result in cells),
            "<footer>Made by <code>holdfast compare</code>. ",
            f"Repeat it with <code>--seed {report.seed}</code>.</footer>",
            "</body></html>",
        ]
    )


def _head(report: Report) -> str:
    counts = {status: sum(result.status is status for result in report.results) for status in Status}
    good = not report.failed
    verdict = "Every case that could be tried passed." if good else _what_failed(report, counts[Status.FAILED])
    facts = [f"<b>{counts[status]}</b> {status}" for status in Status if counts[status]] + [
        f"each case <b>{times(report.runs)}</b>",
        f"seed <b>{report.seed}</b>",
        f"<b>{rfc3339(report.at.replace(microsecond=0))}</b>",
    ]
    return (
        '<header class="top"><h1>Same reservations, same hostile deliveries, each transport</h1>'
        "<p>Each transport carried references to expired, extended, missing and future holds: twice, early, out of "
        "order, without an acknowledgement, and to consumers that were killed. A message is only a prompt to look at "
        "the row; what counts is what the database says afterwards.</p>"
        f'<p class="verdict {"ok" if good else "bad"}">{escape(verdict)}</p>'
        f'<ul class="facts soft">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul></header>'
    )


def _what_failed(report: Report, failed: int) -> str:
    if failed:
        return f"{failed} case{'s' if failed > 1 else ''} failed; open what is marked ✕."
    return "A database did not reconcile; see the engines." if report.inconsistent else "Nothing could be tried."


def _legend() -> str:
    items = (f"<li>{_badge(status)}{_MEANINGS[status]}</li>" for status in Status)
    return (
        f'<h2>What came of it</h2><ul class="legend">{"".join(items)}</ul><p class="soft small">Each cell opens on '
        "what was observed. Its seconds are how long the case took here, most of it waiting: they measure no "
        "transport.</p>"
    )


def _matrix(report: Report) -> str:
    places = report.by_place()
    heads = "".join(
        f'<th scope="col">{escape(column.title)}<small>{escape(_engine(column))}</small></th>'
        for column in report.columns
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(case.title)}</th>'
        + "".join(_cell(case, column, places.get((case.id, column.name))) for column in report.columns)
        + "</tr>"
        for case in report.cases
    )
    return (
        f'<table class="matrix"><thead><tr><th scope="col">Case</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _cell(case: CaseText, column: Column, result: Result | None) -> str:
    if result is None:
        return "<td></td>"
    of = f" {result.passed_runs}/{result.runs}" if result.runs > 1 else ""
    time = f'<span class="time">{result.seconds:.1f} s</span>' if result.runs else ""
    return (
        f'<td data-candidate="{escape(column.title)}"><button class="cell {_class(result.status)}" '
        f'popovertarget="{_id(case, column)}" aria-label="{escape(case.title)}, {escape(column.title)}: '
        f'{result.status}{of}; open"><span class="mark" aria-hidden="true">{_MARKS[result.status]}</span>'
        f"<span>{result.status}{of}</span>{time}</button></td>"
    )


def _sheet(case: CaseText, column: Column, result: Result) -> str:
    """What was observed in one cell."""
    inside = [f"<p>{escape(case.passes)}</p>"]
    if not result.runs:
        inside.append(f"<p>{escape(result.summary)}</p>")
    if result.runs > 1:
        inside.append(f"<p>{_shown_run(result)}</p>")
    if result.checks:
        inside.append(f'<h3>Checked</h3><ul class="checks">{"".join(map(_check, _worst_first(result.checks)))}</ul>')
    if result.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(result.notes))
        inside.append(f'<h3>To know</h3><ul class="notes">{notes}</ul>')
    if result.timelines:
        inside.append(f"<h3>As it happened</h3>{''.join(map(timeline_svg, result.timelines))}")
    name = _id(case, column)
    return (
        f'<section class="sheet" popover id="{name}" aria-labelledby="{name}-t" tabindex="-1"><header><div>'
        f'<h3 id="{name}-t">{escape(case.title)}</h3>{_badge(result.status)} <span class="soft">'
        f"{escape(column.title)}, {escape(_engine(column))}</span></div>"
        f'<button class="close" popovertarget="{name}" popovertargetaction="hide">Close</button></header>'
        f'<div class="inside">{"".join(inside)}</div></section>'
    )


def _shown_run(result: Result) -> str:
    """Which of several runs a sheet shows."""
    passed = f"{result.passed_runs} of {result.runs} runs passed."
    which = "last of them" if result.status is Status.PASSED else "first that failed"
    return f"{passed} Shown is the {which}."


def _worst_first(checks: Iterable[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: check.passed)


def _check(check: Check) -> str:
    status = Status.PASSED if check.passed else Status.FAILED
    said = check.passed and check.what.endswith(check.seen)
    seen = "" if said else f'<span class="seen">seen: {escape(check.seen)}</span>'
    return (
        f'<li class="{_class(status)}"><b aria-label="{status}">{_MARKS[status]}</b><span>{escape(check.what)}</span>'
        f"{seen}</li>"
    )


def _orders(report: Report) -> str:
    """The two delivery orders of each candidate that was tried, on the page itself; the first one's stand open."""
    places = report.by_place()
    tried = [
        (column, result)
        for column in report.columns
        if (result := places.get(("orders", column.name))) is not None and result.timelines
    ]
    if not tried:
        return ""
    shown = (
        f"<details{' open' if place == 0 else ''}><summary>{escape(column.title)} {_badge(result.status)} "
        f'<span class="soft">{escape(_engine(column))}</span></summary>'
        f'<div class="pair">{"".join(map(timeline_svg, result.timelines))}</div></details>'
        for place, (column, result) in enumerate(tried)
    )
    return (
        '<h2>The two delivery orders</h2><p class="soft">One expired hold and one extended, two deliveries each. '
        "Whatever comes first, the expired hold must be expired once and the extended one left alone.</p>"
        f'<div class="orders">{"".join(shown)}</div>'
    )


def _engines(report: Report) -> str:
    return f'<h2>What really ran</h2><div class="engines">{"".join(map(_card, report.columns))}</div>'


def _card(column: Column) -> str:
    told = column.description
    if told is None:
        return (
            f'<article class="engine"><h3>{escape(column.title)}</h3>{_badge(Status.SKIPPED)}'
            f"<p>{escape(column.skipped or '')}</p></article>"
        )
    reconciled = ", ".join(column.violations) or "nothing found"
    facts = {
        "Engine": escape(f"{told.engine.name} {told.engine.version}: {told.engine.standing}"),
        "Carried by": escape(told.client),
        "Reaches the worker": escape(f"pushed to {told.push}" if told.push else "polled by the worker"),
        "An unacknowledged message comes back": escape(told.redelivery),
        "Largest payload": _limit(told.payload),
        "Longest delay": _limit(told.delay),
        "Ticks": escape(told.cron or "no scheduler of its own"),
        "Reconcile at the end": escape(reconciled),
    }
    if column.left:
        facts["Could not tidy up"] = escape(column.left)
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    return f'<article class="engine"><h3>{escape(told.title)}</h3><dl>{listed}</dl></article>'


def _limit(limit: Limit) -> str:
    """The published limit, and where it is published."""
    text = escape(limit.text)
    if limit.source is None:
        return text
    return f'{text.replace(f" ({escape(limit.source)})", "")} (<a href="{escape(limit.source)}">published</a>)'


def _cases(report: Report) -> str:
    listed = "".join(f"<dt>{escape(case.title)}</dt><dd>{escape(case.passes)}</dd>" for case in report.cases)
    return f'<h2>The cases, and what passes</h2><dl class="cases">{listed}</dl>'


def _engine(column: Column) -> str:
    if column.description is None:
        return "did not answer"
    engine = column.description.engine
    return f"{engine.name} {engine.version}, {engine.standing}"


def _badge(status: Status) -> str:
    return f'<span class="badge {_class(status)}"><span aria-hidden="true">{_MARKS[status]}</span>{status}</span>'


def _class(status: Status) -> str:
    return status.value.replace(" ", "-")


def _id(case: CaseText, column: Column) -> str:
    return f"{case.id}-{column.name}"
