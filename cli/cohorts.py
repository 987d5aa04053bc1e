"""Commands about cohorts: show, route, compare."""

from collections import defaultdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from cli.context import PATIENT, database
from cli.output import Json, print_json, table_console
from db import cohorts, comparing
from db.cohorts import Routing
from domain.cohorts import Carried, Compared, format_cohorts, parse_cohorts
from domain.durations import parse_duration
from domain.errors import BadInput
from domain.instants import rfc3339
from domain.outcomes import Outcome
from domain.paths import Path
from settings import settings

app = typer.Typer(help="Which path drives which holds.", rich_markup_mode=None)

Which = Annotated[str, typer.Argument(metavar="COHORTS", help="7, 0-9, 0-4,50 or all.", show_default=False)]
_LONGEST = timedelta(days=400)


@app.command()
def show(as_json: Json = False) -> int:
    """Show which path drives each cohort, and since when."""
    with database() as db, db.transaction() as tx:
        found = cohorts.routings(tx)
    if as_json:
        for one in found:
            print_json(_as_data(one))
        return 0
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for one in found:
        alike[_told(one)].append(one.cohort)
    table = Table("cohorts", "path", "since", "before", "", box=None, pad_edge=False)
    for told, numbers in alike.items():
        table.add_row(format_cohorts(numbers), *told)
    table_console().print(table)
    return 0


@app.command()
def route(
    which: Which,
    path: Annotated[str, typer.Argument(metavar="PATH", help="sweep, infrai or scanner.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Let another path drive cohorts; the same command again finishes what was cut short.

    Nothing in flight is lost: what the old path still carries changes nothing any more, and its claims run out.
    """
    chosen = parse_cohorts(which)
    if path not in set(Path) - {Path.RESCUE}:
        raise BadInput("path", f"{path[:40]!r} drives no cohort; use sweep, infrai or scanner")
    if path == Path.INFRAI and not settings().has_bridge:
        raise BadInput("HOLDFAST_INFRAI_URL", "is not set, so there is no bridge; set it, then route")
    with database(PATIENT) as db:
        moved = cohorts.route(db, chosen, Path(path))
    if as_json:
        print_json(
            {
                "path": path,
                "moved": {str(cohort): before.value for cohort, before in sorted(moved.cohorts.items())},
                "messages_written": moved.written,
                "messages_dropped": moved.dropped,
            }
        )
    else:
        names = format_cohorts(moved.cohorts) or "none"
        print(f"{path} drives {format_cohorts(chosen)}; moved: {names}")
        print(f"{moved.written:,} messages written for the bridge, {moved.dropped:,} dropped")
    return 0


@app.command()
def compare(
    which: Annotated[str, typer.Argument(metavar="COHORTS", help="7, 0-9, 0-4,50 or all.")] = "all",
    within: Annotated[str, typer.Option(metavar="24h", help="What closed within this time.")] = "24h",
    as_json: Json = False,
) -> int:
    """Hold cohorts against the source of truth. Exit 1 unless each is safe to move."""
    chosen = parse_cohorts(which)
    since = parse_duration(within, "--within")
    if since > _LONGEST:
        raise BadInput("--within", f"reaches back more than {_LONGEST.days}d; use less")
    grace = settings().rescue_grace
    with database(PATIENT) as db, db.transaction() as tx:
        comparing.one_snapshot(tx)
        found = comparing.compare(tx, chosen, since=since)
    if as_json:
        for one in found:
            print_json(one.as_data(grace))
    else:
        _print(found, grace)
    return 1 if any(one.unsafe(grace) for one in found) else 0


def _print(found: list[Compared], grace: timedelta) -> None:
    table = Table(
        "cohort", "drives", "held", "overdue", "no effect", "no event", "path", "expired", "p50", "p99",
        "duplicate", "stale", "early", "elsewhere", "rescued", box=None, pad_edge=False,
    )  # fmt: skip
    for one in found:
        stands = (str(one.cohort), one.path, *map(str, (one.held, one.overdue, one.without_effect, one.without_event)))
        for number, carried in enumerate(one.carried or (Carried(path=None),)):
            table.add_row(*(stands if number == 0 else ("",) * 6), *_carried(carried, known=bool(one.carried)))
    table_console().print(table)
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for one in found:
        alike[tuple(one.unsafe(grace))].append(one.cohort)
    for reasons, numbers in alike.items():
        print(
            f"{format_cohorts(numbers)}: " + (f"not safe to move: {'; '.join(reasons)}" if reasons else "safe to move")
        )


def _carried(one: Carried, *, known: bool) -> tuple[str, ...]:
    if not known:
        return ("-",) * 9
    told = (Outcome.DUPLICATE, Outcome.STALE, Outcome.EARLY, Outcome.ELSEWHERE)
    late = ("-" if length is None else f"{length.total_seconds():.3f} s" for length in (one.p50, one.p99))
    return (
        one.path or "by hand", str(one.expired), *late, *(str(one.outcomes.get(outcome, 0)) for outcome in told),
        str(one.lost),
    )  # fmt: skip


def _as_data(one: Routing) -> dict[str, object]:
    return {
        "cohort": one.cohort,
        "path": one.path.value,
        "since": None if one.routed_at is None else rfc3339(one.routed_at),
        "before": None if one.came_from is None else one.came_from.value,
        "bridged": one.bridged if one.path is Path.INFRAI else None,
    }


def _told(one: Routing) -> tuple[str, ...]:
    since = "" if one.routed_at is None else rfc3339(one.routed_at.replace(microsecond=0))
    unfinished = one.path is Path.INFRAI and not one.bridged
    return (
        one.path.value, since, "" if one.came_from is None else one.came_from.value,
        "messages are missing: route it again" if unfinished else "",
    )  # fmt: skip
