"""How an operator's reports look on a terminal: status, trace, reconcile. 80 columns are enough."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.output import print_fields
from db.endpoint_status import EndpointHealth
from db.reconcile import Violation
from db.reminder_status import ChannelStatus
from db.status import Status
from domain.durations import format_duration
from domain.instants import rfc3339
from domain.money import format_money
from domain.tracing import Step, Trace

_ENDPOINTS_SHOWN = 20
"""Lines of endpoints in a status on a terminal, at most; JSON has all."""
_YOUNG = timedelta(minutes=1)


def print_counts(console: Console, title: str, counts: Mapping[str, object]) -> None:
    """A small table of names and numbers under a title."""
    console.print(f"[bold]{title}[/]")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, count in counts.items():
        table.add_row(f"   {name}", Text(str(count), justify="right"))
    console.print(table)


def print_ledger(console: Console, totals: Iterable[tuple[str, int, int]]) -> None:
    """Opened, closed and still held, per currency: `totals` are (currency, opened, closed) in minor units."""
    console.print("[bold]Ledger[/]")
    table = Table(box=None, pad_edge=False)
    for name in ("   currency", "opened", "closed", "held"):
        table.add_column(name, justify="left" if "currency" in name else "right", header_style="dim")
    for currency, opened, closed in totals:
        amounts = (format_money(amount, currency).rpartition(" ")[0] for amount in (opened, closed, opened - closed))
        table.add_row(f"   {currency}", *amounts)
    console.print(table)


def print_status(console: Console, status: Status) -> None:
    """How Holdfast stands, and what is alarming."""
    oldest = status.oldest_overdue
    held = {
        "live": f"{status.live:,}",
        "overdue": f"{status.overdue:,}" + ("" if oldest is None else f"  (the oldest by {format_duration(oldest)})"),
        "in flight": f"{status.in_flight:,}",
        "set aside": f"{status.set_aside:,}",
        "dead letters": ", ".join(f"{n:,} {kind}" for kind, n in status.dead_letters.items()) or "0",
        "rescued": f"{status.rescued:,} in the last hour" if status.rescued else None,
    }
    console.print("[bold]Holds[/]")
    print_fields(held, indent="   ")
    if status.totals:
        print_counts(console, "By status", status.totals)
    if status.open_amounts:
        amounts = {
            currency: format_money(amount, currency).rpartition(" ")[0]
            for currency, amount in status.open_amounts.items()
        }
        print_counts(console, "Held amounts", amounts)
    print_counts(console, "Outcomes in the last hour", status.outcomes.as_data() or {"none": 0})
    ticks = {sweep.name: f"ticked {_ago(sweep.age)} ago, last run {sweep.last_run or '-'}" for sweep in status.sweeps}
    print_counts(console, "Sweeps", ticks or {"none": "has ever ticked"})
    if status.bridge is not None:
        print_counts(console, "Messages to publish", status.bridge.as_data())
    if status.endpoints:
        _print_endpoints(console, status.endpoints)
    if status.reminders.channels:
        _print_reminders(console, status.reminders.channels)
    for line in status.red:
        console.print(Text(f"red: {line}", style="bold red"), soft_wrap=True)
    if not status.red:
        console.print(Text("all is well", style="green"))


def _ago(age: timedelta) -> str:
    """Tenths of a second while it is young; a clock that was set back makes it no younger than now."""
    return format_duration(age) if age >= _YOUNG else f"{max(0.0, age.total_seconds()):.1f} s"


def _print_endpoints(console: Console, endpoints: Sequence[EndpointHealth]) -> None:
    """The endpoints with most to do, and how many there are besides."""
    console.print("[bold]Endpoints[/]")
    table = Table(box=None, pad_edge=False)
    for name in ("   id", "state", "breaker", "waiting", "due for", "2xx", "p50", "p95"):
        left = name.strip() in {"id", "state", "breaker"}
        table.add_column(name, justify="left" if left else "right", header_style="dim")
    busiest = sorted(endpoints, key=lambda one: -one.backlog)[:_ENDPOINTS_SHOWN]
    for one in busiest:
        due = "" if one.oldest_due is None else format_duration(one.oldest_due)
        rate = "" if one.success_rate is None else f"{one.success_rate:.1%}"
        took = ("" if length is None else f"{length.total_seconds():.3f} s" for length in (one.p50, one.p95))
        table.add_row(f"   {one.id}", one.state, one.breaker, f"{one.backlog:,}", due, rate, *took)
    console.print(table)
    if len(endpoints) > len(busiest):
        console.print(f"   and {len(endpoints) - len(busiest):,} more; see `holdfast endpoints list`")


def _print_reminders(console: Console, channels: Sequence[ChannelStatus]) -> None:
    """Each channel's reminders; what was sent, suppressed and failed is the last day's."""
    console.print("[bold]Reminders[/]")
    table = Table(box=None, pad_edge=False)
    for name in ("   channel", "scheduled", "under way", "late for", "sent", "suppressed", "failed", "waiting"):
        table.add_column(name, justify="left" if "channel" in name else "right", header_style="dim")
    for one in channels:
        late = "" if one.late is None else format_duration(one.late)
        counts = (f"{count:,}" for count in (one.sent, one.suppressed, one.failed, one.waiting))
        table.add_row(f"   {one.channel}", f"{one.scheduled:,}", f"{one.under_way:,}", late, *counts)
    console.print(table)


def print_trace(console: Console, trace: Trace) -> None:
    """What happened to one hold, one step a line."""
    hold = trace.hold
    said = "pruned; this is what remains" if hold is None else f"{hold.standing}, version {hold.version}"
    console.print(Text.assemble((trace.hold_id, "bold"), f"  {said}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    day = ""
    for step in trace.steps:
        date = f"{step.at:%Y-%m-%d}"
        if date != day:
            table.add_row(Text(f"{date} UTC", style="dim"))
        day = date
        table.add_row(f"  {step.at:%H:%M:%S.%f}"[:-3], step.what, Text(_facts(step)))
    console.print(table)


def _facts(step: Step) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in step.facts.items() if value is not None)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return rfc3339(value)
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def print_violations(console: Console, found: Sequence[Violation], checks: int) -> None:
    """What does not hold, by check and hold; or that all does."""
    for violation in found:
        console.print(Text(f"{violation.check}  {violation.hold_id or '-'}  {violation.detail}", style="red"))
    if found:
        console.print(
            Text(f"{len(found):,} violations in {len({v.check for v in found})} of {checks} checks", "bold red")
        )
    else:
        console.print(Text(f"{checks} checks passed", style="green"))
