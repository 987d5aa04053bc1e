"""`holdfast demo`: the main job on real services, told as it goes, in under a minute; nothing is left running."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path as FilePath

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import text

from cli import reports
from cli.demo_reminders import Reminders, sent_to
from cli.demo_webhooks import CLOSED, LADDER, SHOP, Door, Webhooks, broken_thrice, shop
from cli.importing import import_file
from cli.local.scratch import own_settings
from cli.local.stack import Stack
from cli.output import print_json
from cli.receiver import Behaviour, Receiver
from cli.stand_ins.running import StandIns
from db import holds, reconcile, trace
from db import status as operating_status
from db.engine import Database
from db.status import Status
from domain.errors import HoldfastError
from domain.holds import Done, Hold
from domain.identity import HoldId
from domain.outcomes import Outcome
from domain.paths import Path
from domain.terms import For
from gateways.vault import Vault
from settings import ROOT, settings
from tasks.lane import ExpiryLane

EXAMPLES = ROOT / "examples" / "holds.jsonl"

_PATIENCE = 45.0
"""Seconds that a thing the demo waits for may take."""
_SOON = timedelta(seconds=30)
"""Holds with deadlines within this time are waited for."""
_COPIES = 5
"""Messages delivered a second time."""

_DUE_SOON = text("""
SELECT id FROM holds WHERE status = 'held' AND expires_at BETWEEN now() + interval '5 seconds' AND now() + :soon
ORDER BY expires_at DESC, id LIMIT 3
""")
_WAITED_FOR = text("""
SELECT count(*) FILTER (WHERE status = 'expired') AS done, count(*) AS all FROM holds
WHERE expires_at <= CAST(:until AS timestamptz) AND status IN ('held', 'expired')
""")
_LAST_EXPIRED = text("""
SELECT h.id, h.claimed_run FROM holds AS h JOIN effects AS e ON e.hold_id = h.id AND e.kind = 'expired'
WHERE h.amount IS NOT NULL AND e.receipt IS NOT NULL ORDER BY e.at DESC, h.id LIMIT :copies
""")
_LEDGER = text("""
SELECT currency, sum(amount) FILTER (WHERE side = 'open') AS opened,
       -sum(amount) FILTER (WHERE side = 'close') AS closed
FROM ledger GROUP BY currency ORDER BY currency
""")


class DemoFailed(HoldfastError):
    """Something the demo promises did not come about."""


def run_demo(*, keep: bool = False, as_json: bool = False) -> int:
    """Run it; returns 0 once everything was shown and reconciled.

    Raises:
        DemoFailed: says what failed, and where the logs are.
    """
    console = Console(stderr=as_json, highlight=False)
    with _home(console, keep=keep) as home:
        console.print("[bold]1 · Set-up:[/] Postgres, Valkey, workers, beat and Flower, all real")
        began = time.monotonic()
        door = Door()
        behaviours: dict[str, Behaviour] = {f"/{SHOP}": shop, f"/{LADDER}": broken_thrice, f"/{CLOSED}": door}
        with (
            Receiver(behaviours) as receiver,
            StandIns() as outside,
            Stack(own_settings(home, **sent_to(outside))) as stack,
        ):
            console.print(
                f"    up after {time.monotonic() - began:.1f} s; Flower: http://127.0.0.1:{stack.flower_port}"
            )
            with closing(Database(stack.database_url)) as db:
                hooks = Webhooks(db, receiver, Vault(stack.vault_keys.split(",")), console, door)
                _Demo(db, ExpiryLane(stack.broker_url), hooks, Reminders(db, outside, console), console=console).run()
                if as_json:
                    print_json(_status(db).as_data())
    console.print("[bold green]Done.[/] Every process has been stopped.")
    return 0


@contextmanager
def _home(console: Console, *, keep: bool) -> Iterator[FilePath]:
    """A folder for this run alone, gone afterwards; where the run failed, or on request, it is kept and named."""
    home = FilePath(tempfile.mkdtemp(prefix="holdfast-demo-"))
    home.chmod(0o755)
    try:
        yield home
    except HoldfastError as failure:
        raise DemoFailed(f"the demo failed: {failure}; its logs are in {home / 'logs'}") from failure
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    if keep:
        console.print(f"    kept: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)


def _status(db: Database) -> Status:
    with db.transaction() as tx:
        return operating_status.status(tx, grace=settings().rescue_grace, silence=settings().silence)


class _Demo:
    """The steps, in order."""

    def __init__(
        self, db: Database, lane: ExpiryLane, hooks: Webhooks, reminders: Reminders, *, console: Console
    ) -> None:
        self._db, self._lane, self._hooks, self._reminders = db, lane, hooks, reminders
        self._console = console

    def run(self) -> None:
        """Import, act, deliver early, wait, deliver again, tell of webhooks and reminders, report."""
        self._console.print(f"[bold]2 · Import[/] of {EXAMPLES.relative_to(ROOT)}")
        self._hooks.subscribe_shop()
        if import_file(self._db, EXAMPLES, strict=True, emit=True, as_json=False, console=self._console) != 0:
            raise DemoFailed("the example holds cannot be imported")
        self._hooks.subscribe_others()
        self._reminders.begin()
        extended, cancelled = self._act()
        self._deliver_early()
        self._wait_for_deadlines()
        self._deliver_again(extended)
        self._console.print("[bold]7 · Webhooks[/] of every change, signed, to a receiver that is not always well")
        self._hooks.tell(extended, cancelled, self._until)
        self._console.print("[bold]8 · Reminders,[/] to a mail server and an SMS provider that lose answers")
        self._reminders.tell(self._until)
        self._report()

    def _act(self) -> tuple[Hold, Hold]:
        """Three customers act in time; returns the hold extended and the one cancelled, as they were before."""
        with self._db.transaction() as tx:
            chosen = [HoldId(row.id) for row in tx.execute(_DUE_SOON, {"soon": _SOON})]
            if len(chosen) < 3:  # noqa: PLR2004 - one for each act
                raise DemoFailed("fewer than three example holds come due soon")
            before, cancelled = holds.get(tx, chosen[0]), holds.get(tx, chosen[2])
            assert before is not None
            assert cancelled is not None
        with self._db.transaction() as tx:
            answers = {
                "extended by an hour": holds.extend(tx, chosen[0], before.version, For(timedelta(hours=1))),
                "confirmed": holds.confirm(tx, chosen[1], 1),
                "cancelled": holds.cancel(tx, chosen[2], 1, "changed my mind"),
            }
        self._console.print("[bold]3 · Three customers act[/] before their deadline")
        for act, answer in answers.items():
            if not isinstance(answer, Done):
                raise DemoFailed(f"a hold could not be {act}: {answer.reason}")
            self._console.print(f"    {answer.hold.id} {act}")
        return before, cancelled

    def _deliver_early(self) -> None:
        with self._db.transaction() as tx:
            live = holds.listing(tx, status="held", resource=None, customer=None, after=None, limit=50)
        latest = max(live, key=lambda hold: hold.expires_at)
        self._lane.publish(None, Path.SWEEP, [latest.reference])
        self._console.print(f"[bold]4 · A message too early[/] for {latest.id}: it must change nothing")
        self._until(lambda: _status(self._db).outcomes.counts.get(Outcome.EARLY, 0) > 0, "the early message")
        with self._db.transaction() as tx:
            after = holds.get(tx, latest.id)
        if after is None or after.as_data() != latest.as_data():
            raise DemoFailed(f"the early message changed hold {latest.id}")

    def _wait_for_deadlines(self) -> None:
        self._console.print("[bold]5 · Deadlines pass;[/] beat ticks, the sweep publishes, workers expire")
        with self._db.transaction() as tx:
            until = holds.clock(tx) + _SOON
        columns = (TextColumn("    expired"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            bar = progress.add_task("expired")

            def all_expired() -> bool:
                with self._db.transaction() as tx:
                    row = tx.execute(_WAITED_FOR, {"until": until}).one()
                progress.update(bar, completed=row.done, total=row.all)
                return bool(row.done == row.all)

            self._until(all_expired, "the expiry of all due holds")

    def _deliver_again(self, extended: Hold) -> None:
        """Copies of messages that were applied, and the one for the deadline that was moved."""
        with self._db.transaction() as tx:
            copies = tx.execute(_LAST_EXPIRED, {"copies": _COPIES}).all()
            references = [found.reference for row in copies if (found := holds.get(tx, HoldId(row.id)))]
        run = copies[0].claimed_run
        self._console.print(f"[bold]6 · {len(references)} messages once more,[/] and the one for the moved deadline")
        self._lane.publish(run, Path.SWEEP, references)
        self._lane.publish(run, Path.SWEEP, [extended.reference])
        self._until(
            lambda: (
                _status(self._db).outcomes.counts.get(Outcome.DUPLICATE, 0) >= len(references)
                and _status(self._db).outcomes.counts.get(Outcome.STALE, 0) > 0
            ),
            "the outcomes duplicate and stale",
        )

    def _report(self) -> None:
        self._console.print("[bold]9 · What came of it[/]")
        found = _status(self._db)
        with self._db.transaction() as tx:
            entries = tx.execute(_LEDGER).all()
            (traced,) = tx.execute(_LAST_EXPIRED, {"copies": 1}).all()
            told = trace.trace(tx, HoldId(traced.id))
        reports.print_counts(self._console, "Holds by status", found.totals)
        reports.print_ledger(self._console, [(row.currency, int(row.opened), int(row.closed or 0)) for row in entries])
        reports.print_counts(self._console, "Outcomes of messages", found.outcomes.as_data())
        self._console.print("[bold]One hold traced[/]")
        assert told is not None
        reports.print_trace(self._console, told)
        with self._db.transaction() as tx:
            violations = reconcile.violations(tx)
        self._console.print("[bold]Reconcile[/]")
        reports.print_violations(self._console, violations, len(reconcile.CHECKS))
        if violations:
            raise DemoFailed(f"reconcile found {len(violations)} violations")

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + _PATIENCE
        while not reached():
            if time.monotonic() > ends:
                raise DemoFailed(f"{what} did not come about within {_PATIENCE:.0f} s")
            time.sleep(0.2)  # noqa: TID251 - watching other processes work, up to a limit
