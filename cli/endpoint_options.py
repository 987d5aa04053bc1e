"""An endpoint's terms as options: read, judged, and laid over the terms it has."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from domain.durations import parse_duration, parse_lengths
from domain.endpoints import MOST_SLOTS, Overrides, Terms, event_types
from domain.errors import BadInput
from domain.text import clean_label

Types = Annotated[str | None, typer.Option(metavar="A,B", help="Only events of these types.", show_default=False)]
Label = Annotated[str | None, typer.Option(help="A name for people.", show_default=False)]
Rate = Annotated[float | None, typer.Option(help="Requests a second, at most.", show_default=False)]
Attempts = Annotated[int | None, typer.Option(min=1, max=100, help="Attempts a delivery, at most.", show_default=False)]
Age = Annotated[str | None, typer.Option(metavar="4d", help="No attempt after this long.", show_default=False)]
Waits = Annotated[str | None, typer.Option(metavar="0s,5s,5m", help="Longest wait before each.", show_default=False)]
SLOTS = typer.Option(min=1, max=MOST_SLOTS, help="Requests under way at once, at most.", show_default=False)

_UNSETTABLE = {name: name.replace("-", "_") for name in ("types", "label", "rate", "max-attempts", "max-age", "waits")}
"""Options that can be given up, with their fields."""


@dataclass(frozen=True, slots=True)
class Given:
    """The terms that a command line names; None where it does not."""

    types: tuple[str, ...] | None
    label: str | None
    rate: float | None
    slots: int | None
    bounds: dict[str, object]

    def over(self, terms: Terms) -> Terms:
        """These terms, but for what was given."""
        others = {"types": self.types, "label": self.label, "rate": self.rate, "slots": self.slots}
        return replace(
            terms,
            overrides=replace(terms.overrides, **{k: v for k, v in self.bounds.items() if v is not None}),  # type: ignore[arg-type]  # fields by their names
            **{k: v for k, v in others.items() if v is not None},  # type: ignore[arg-type]  # the same
        )


def given_terms(
    types: str | None, label: str | None, rate: float | None, slots: int | None, max_attempts: int | None,
    max_age: str | None, waits: str | None, *, final: bool | None,
) -> Given:  # fmt: skip
    """What the options say.

    Raises:
        BadInput: one of them says nothing that is possible.
    """
    bounds: dict[str, object] = {
        "max_attempts": max_attempts,
        "max_age": None if max_age is None else parse_duration(max_age, "--max-age"),
        "waits": None if waits is None else parse_lengths(waits, "--waits"),
        "client_errors_final": final,
    }
    given = Given(
        types=None if types is None else event_types([name.strip() for name in types.split(",")]),
        label=None if label is None else clean_label("label", label),
        rate=rate,
        slots=slots,
        bounds=bounds,
    )
    given.over(Terms(url="https://example.com/"))  # said before anything is looked up or locked
    return given


def unset_terms(raw: str | None) -> Callable[[Terms], Terms]:
    """What gives up the options that are named.

    Raises:
        BadInput: an option that cannot be given up.
    """
    names = [] if raw is None else [name.strip().removeprefix("--") for name in raw.split(",")]
    for name in names:
        if name not in _UNSETTABLE:
            raise BadInput("--unset", f"{name[:40]!r} cannot be given up; use {', '.join(_UNSETTABLE)}")
    of_terms = {"types", "label", "rate"}

    def bare(terms: Terms) -> Terms:
        fields = {_UNSETTABLE[name] for name in names}
        overrides: Overrides = replace(terms.overrides, **dict.fromkeys(fields - of_terms))  # type: ignore[arg-type]  # fields by their names
        return replace(terms, overrides=overrides, **dict.fromkeys(fields & of_terms))  # type: ignore[arg-type]  # the same

    return bare
