"""The report: what stands in JSON, in the table and on the page; and the page in a real browser."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from comparison.candidate import Ability, Description, Engine, Limit, Standing
from comparison.cases import CASES
from comparison.report.page import page
from comparison.report.terminal import print_report
from comparison.report.timeline import timeline_svg
from comparison.result import Check, Column, Report, Result, Status, Step, Timeline
from tests.comparison.chromium import browser, needs_chromium

HOSTILE = "<script>alert('x')</script> & \"quoted\""
WORDS = {"hold": "1 s passes", "worker": "duplicate, withheld", "publisher": "publish, delay 604,800 s"}
LONG = "a-word-that-nobody-breaks-" * 12


def description(name: str) -> Description:
    return Description(
        name=name, title=f"Candidate {name}", engine=Engine("Engine", "1.2", Standing.PROTOCOL), redelivery=HOSTILE,
        comes_back=2.0, payload=Limit(262_144, "256 KB", "https://example.com/limits"), delay=Limit(None, LONG),
        client="a client 3.4", cron="its cron", lacks={Ability.DELAY: "none"},
    )  # fmt: skip


def result(case: str, candidate: str, status: Status) -> Result:
    tried = status in {Status.PASSED, Status.FAILED}
    lanes = ["publisher", "transport", "worker", "hold"] * 4
    steps = [Step(3.0 * n, lane, WORDS.get(lane, "act"), f"hold {n % 2}", n % 5 != 4) for n, lane in enumerate(lanes)]
    checks = [Check("holds", passed=True, seen="yes"), Check(LONG, passed=False, seen=HOSTILE)]
    return Result(
        candidate=candidate, case=case, status=status, summary=HOSTILE, runs=2 if tried else 0,
        passed_runs={Status.PASSED: 2, Status.FAILED: 1}.get(status, 0), seconds=12.3,
        checks=checks if tried else (), notes=[LONG],
        timelines=[Timeline("expired first", steps), Timeline("extended first", steps)] if tried else (),
    )  # fmt: skip


def report() -> Report:
    """Every status, a candidate that was skipped, and texts that would break a careless page."""
    names = ["celery-redis", "celery-rabbitmq", "infrai", "sweep"]
    statuses = list(Status)
    return Report(
        seed=7, runs=2, at=datetime(2026, 12, 1, 10, tzinfo=UTC), cases=[case.text for case in CASES],
        columns=[
            Column(name=name, title=f"Candidate {name}", description=None if name == "sweep" else description(name),
                   skipped=HOSTILE if name == "sweep" else None) for name in names],
        results=[
            result(case.id, name, Status.SKIPPED if name == "sweep" else statuses[(row + place) % 3])
            for row, case in enumerate(CASES) for place, name in enumerate(names)],
    )  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page(report()))
    return file


def test_the_page_needs_nothing_else_and_shows_hostile_texts_as_texts() -> None:
    html = page(report())
    assert "<script" not in html
    assert re.findall(r"<(?:link|img|iframe|object)\b|@import|url\(|\bon\w+=", html) == []
    assert set(re.findall(r'(?:src|href)="([^"]+)"', html)) == {"https://example.com/limits"}
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;quoted&quot;" in html


def test_every_cell_has_its_sheet_and_every_sheet_its_cell() -> None:
    html = page(report())
    sheets = re.findall(r'<section class="sheet" popover id="([^"]+)"', html)
    assert len(sheets) == len(set(sheets)) == len(CASES) * 4
    assert re.findall(r'<button class="cell [^"]+" popovertarget="([^"]+)"', html) == sheets


def test_a_timeline_has_one_mark_an_act_in_its_own_column_and_grows_downwards() -> None:
    steps = [
        Step(0, "publisher", "publish", "a"),
        Step(4.4, "transport", "deliver again", "a"),
        Step(1500, "worker", "x<y", "b", good=False),
    ]
    figure = ET.fromstring(timeline_svg(Timeline("one & two", steps)))
    marks = [(mark.get("class"), float(mark.get("cx", 0)), float(mark.get("cy", 0))) for mark in figure.iter("circle")]
    assert [mark[0] for mark in marks] == ["dot s0", "dot s0", "dot bad"]
    assert sorted(mark[1] for mark in marks) == [mark[1] for mark in marks]
    assert [b[2] - a[2] for a, b in pairwise(marks)] == [24, 24]
    times = [text.text for text in figure.iter("text") if text.get("class") == "at"]
    assert times == ["0 ms", "4 ms", "1.5 s"]
    assert len(list(figure.iter("path"))) == 1, "only acts about one subject are linked"


def test_json_has_every_check_and_every_engine() -> None:
    data = report().as_data()
    assert (data["seed"], data["runs"], data["at"], data["failed"]) == (7, 2, "2026-12-01T10:00:00Z", True)
    assert len(data["results"]) == len(CASES) * 4  # type: ignore[arg-type]


def test_a_report_fails_if_a_case_fails_nothing_was_tried_or_a_database_does_not_reconcile() -> None:
    def made(*statuses: Status, violations: tuple[str, ...] = ()) -> Report:
        column = Column(name="a", title="A", description=description("a"), violations=violations)
        results = [Result(candidate="a", case=f"c{n}", status=status, summary="") for n, status in enumerate(statuses)]
        return Report(seed=1, runs=1, at=datetime(2026, 12, 1, tzinfo=UTC), columns=[column], cases=[], results=results)

    assert not made(Status.PASSED, Status.NOT_OFFERED, Status.SKIPPED).failed
    assert made(Status.PASSED, Status.FAILED).failed
    assert made(Status.SKIPPED, Status.SKIPPED).failed
    assert made(Status.PASSED, violations=("closed-twice",)).failed


def test_words_of_the_last_column_stay_inside_the_figure_and_what_is_about_nothing_has_no_colour() -> None:
    steps = [
        Step(0, "hold", "604,802 s pass", "beyond"),
        Step(1, "hold", "expired", "expired"),
        Step(2, "transport", "a tick finds nothing due", ""),
    ]
    figure = ET.fromstring(timeline_svg(Timeline("t", steps)))
    words = [text for text in figure.iter("text") if text.get("class") is None]
    assert [text.get("text-anchor") for text in words] == ["end", None, None]
    assert [mark.get("class") for mark in figure.iter("circle")] == ["dot s0", "dot s1", "dot idle"]
    assert len(list(figure.iter("path"))) == 0


def test_a_sheet_says_how_many_runs_passed_and_which_of_them_it_shows() -> None:
    html = page(report())
    assert "<p>2 of 2 runs passed. Shown is the last of them.</p>" in html
    assert "<p>1 of 2 runs passed. Shown is the first that failed.</p>" in html


def test_the_delivery_orders_of_every_candidate_that_was_tried_stand_on_the_page() -> None:
    shown = re.findall(r"<details( open)?><summary>(Candidate [^ ]+) ", page(report()))
    assert shown == [(" open", "Candidate celery-redis"), ("", "Candidate celery-rabbitmq")]
    assert page(report()).count("Carried by</dt><dd>a client 3.4") == 3


def test_the_table_has_80_columns_and_says_why() -> None:
    out = StringIO()
    print_report(Console(file=out, width=200, highlight=False), report())
    table = [line for line in out.getvalue().splitlines() if line[:1] in "┏┃┡│└"]
    assert {len(line) for line in table} == {80}
    assert f"celery-redis, withheld: FAIL {HOSTILE}" in out.getvalue()
    assert f"Candidate sweep: skipped, {HOSTILE}" in out.getvalue()
    assert "Candidate infrai: Engine 1.2, its protocol on another engine; by a client 3.4; reconcile finds nothing" in (
        out.getvalue()
    )
    assert out.getvalue().count("(on Engine)") == 3, "a column is not named for an engine that did not run"
    assert out.getvalue().startswith("seed 7, each case twice ")
    assert "Repeat it with --seed 7." in out.getvalue()


@needs_chromium
def test_in_a_browser_nothing_complains_nothing_is_fetched_and_nothing_overflows(written: Path) -> None:
    with browser() as seen:
        for width in (1280, 760, 390):
            seen.resize(width, 844)
            seen.open(written)
            assert seen.run("document.documentElement.scrollWidth") <= width
        cells = int(seen.run("document.querySelectorAll('.cell').length"))
        assert cells == len(CASES) * 4
        too_wide = """[...document.querySelectorAll('.cell')].filter(cell => {
            const sheet = cell.popoverTargetElement;
            sheet.showPopover();
            const place = sheet.getBoundingClientRect();
            const wide = sheet.scrollWidth > sheet.clientWidth + 1 || place.right > innerWidth + 1;
            const open = sheet.matches(':popover-open') && place.height > 80;
            sheet.hidePopover();
            return wide || !open;
        }).map(cell => cell.getAttribute('aria-label'))"""
        assert seen.run(too_wide) == []
        assert seen.complaints == []
        assert {url for url in seen.requests if not url.startswith("file:")} == set()


@needs_chromium
def test_every_cell_opens_by_keyboard_and_closes_by_escape_with_the_focus_back_on_it(written: Path) -> None:
    with browser() as seen:
        seen.resize(1280, 900)
        seen.open(written)
        for place in range(len(CASES) * 4):
            seen.run(f"document.querySelectorAll('.cell')[{place}].focus()")
            seen.press("Enter")
            target = f"document.querySelectorAll('.cell')[{place}].getAttribute('popovertarget')"
            assert seen.run("document.querySelector(':popover-open')?.id") == seen.run(target)
            seen.press("Escape")
            assert seen.run("document.querySelector(':popover-open')") is None
            assert seen.run(f"document.activeElement === document.querySelectorAll('.cell')[{place}]")


@needs_chromium
def test_on_paper_every_cell_is_told_in_dark_ink_and_nothing_overflows(written: Path) -> None:
    with browser() as seen:
        seen.resize(760, 1100)
        seen.open(written)
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        seen.ask("Emulation.setEmulatedMedia", media="print", features=[dark])
        assert seen.run("document.documentElement.scrollWidth") <= 760
        assert seen.run("[...document.querySelectorAll('.sheet')].filter(s => s.offsetHeight < 40).length") == 0
        assert seen.run("[...document.querySelectorAll('.orders .pair')].filter(p => p.offsetHeight < 40).length") == 0
        assert seen.run("getComputedStyle(document.body).color") == "rgb(27, 30, 36)"


@needs_chromium
def test_no_word_of_a_timeline_is_cut(written: Path) -> None:
    cut = """[...document.querySelectorAll('.orders svg text')].filter(text => {
        const [word, whole] = [text, text.closest('svg')].map(one => one.getBoundingClientRect());
        return word.left < whole.left - 1 || word.right > whole.right + 1;
    }).map(text => text.textContent)"""
    with browser() as seen:
        seen.resize(1280, 900)
        seen.open(written)
        assert seen.run(cut) == []


@needs_chromium
def test_light_and_dark_have_enough_contrast_for_every_status(written: Path) -> None:
    contrast = """[...document.querySelectorAll('.legend .badge')].map(badge => {
        const canvas = document.createElement('canvas').getContext('2d');
        const light = colour => {
            canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const style = getComputedStyle(badge);
        const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    })"""
    with browser() as seen:
        seen.open(written)
        assert min(seen.run(contrast)) >= 4.5
        seen.dark()
        assert min(seen.run(contrast)) >= 4.5
