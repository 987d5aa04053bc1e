"""A timeline as inline SVG: time runs down, one column each for publisher, transport, worker and hold."""

from html import escape

from comparison.result import Step, Timeline

_LANES = ("publisher", "transport", "worker", "hold")
_LEFT, _LANE, _LAST, _ROW, _HEAD = 54, 134, 112, 24, 30
_WIDTH = _LEFT + _LANE * (len(_LANES) - 1) + _LAST
"""The last column has the shortest words. On a page of 1,280 this comes to letters of their own size."""
_FITS = 15
"""Letters that find room beside the last column; longer words stand before it."""
_COLOURS = 4
"""Subjects are told apart by this many colours; any more share them."""


def timeline_svg(timeline: Timeline) -> str:
    """The figure with its caption. Each row is one act; rows are evenly apart, their times stand at the left."""
    subjects = sorted({step.subject for step in timeline.steps if step.subject})  # the same colour in each order
    height = _HEAD + _ROW * len(timeline.steps) + 6
    parts = [
        f"<figure><figcaption>{escape(timeline.title)}</figcaption>",
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(_aloud(timeline))}">',
    ]
    for lane in _LANES:
        x = _x(lane)
        parts.append(f'<text class="lane" x="{x - 5}" y="13">{lane}</text>')
        parts.append(f'<line class="rail" x1="{x}" y1="20" x2="{x}" y2="{height}"/>')
    parts += _links(timeline)
    for row, step in enumerate(timeline.steps):
        parts.append(_mark(row, step, f"s{subjects.index(step.subject) % _COLOURS}" if step.subject else "idle"))
    return "".join([*parts, "</svg></figure>"])


def _links(timeline: Timeline) -> list[str]:
    """From each act to the next about the same subject, where it is another's."""
    drawn = []
    for row, (one, other) in enumerate(zip(timeline.steps, timeline.steps[1:], strict=False)):
        if one.subject == other.subject != "" and one.lane != other.lane:
            x1, y1, x2, y2 = _x(one.lane), _y(row), _x(other.lane), _y(row + 1)
            drawn.append(f'<path class="link" d="M{x1} {y1}C{x1} {y2} {x1} {y2} {x2} {y2}"/>')
    return drawn


def _mark(row: int, step: Step, colour: str) -> str:
    x, y = _x(step.lane), _y(row)
    tone = colour if step.good else "bad"
    fits = step.lane != _LANES[-1] or len(step.what + step.subject) <= _FITS
    aside = f'x="{x + 10}"' if fits else f'x="{x - 10}" text-anchor="end"'
    return (
        f'<text class="at" x="{_LEFT - 14}" y="{y + 4}" text-anchor="end">{_time(step.at_ms)}</text>'
        f'<circle class="dot {tone}" cx="{x}" cy="{y}" r="5"/>'
        f'<text {aside} y="{y + 4}">{escape(step.what)} <tspan class="lane">{escape(step.subject)}</tspan></text>'
    )


def _aloud(timeline: Timeline) -> str:
    return "; ".join(f"{_time(step.at_ms)} {step.lane}: {step.what} {step.subject}" for step in timeline.steps)


def _time(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"  # noqa: PLR2004 - a second


def _x(lane: str) -> int:
    return _LEFT + _LANE * _LANES.index(lane) + 6


def _y(row: int) -> int:
    return _HEAD + _ROW * row + 8
