"""`show`, `list` and `trace`: what they print of a hold."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from domain.terms import Until
from tests.cli.conftest import Command
from tests.helpers import Desk, wait_until, whole_second
from tests.histories import forget, set_aside, sweep

FAR = datetime(2031, 1, 1, 9, tzinfo=UTC)
MISSING = "there is no hold h; `holdfast list` shows those there are"


def test_show_prints_a_hold_as_it_stands_now(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", Until(FAR), amount=1250, currency="JPY", timezone="Europe/Berlin")
    desk.cancel("h", reason="no rain")
    closed = desk.read("h").as_data()["closed_at"]
    said = holdfast("show", "h")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "h  cancelled  version 1\n"
        "  resource  seat 14\n"
        "  customer  acme\n"
        "  amount    1,250 JPY\n"
        "  expires   2031-01-01 10:00:00 CET\n"
        f"  closed    {closed}\n"
        "  reason    no rain\n"
    )


def test_show_calls_a_hold_lapsed_before_any_sweep_has_seen_it(holdfast: Command, desk: Desk) -> None:
    hold = desk.overdue("h", by=timedelta(minutes=10))
    lines = holdfast("show", "h").out.splitlines()
    assert lines[0] == "h  lapsed  version 1"
    assert re.fullmatch(rf"  expires   {hold.expires_at:%Y-%m-%d %H:%M:%S} UTC  \((9m|10m)\d*s? ago\)", lines[3])
    assert holdfast("show", "h", "--json").data["status"] == "lapsed"


def test_show_says_where_a_hold_that_is_set_aside_waits(holdfast: Command, desk: Desk) -> None:
    desk.overdue("h")
    set_aside(desk, "h")
    assert holdfast("show", "h").out.splitlines()[-1] == "  set aside  yes; see `holdfast dead-letters list`"
    assert holdfast("show", "h", "--json").data == desk.read("h").as_data()


@pytest.mark.parametrize("command", [("show", "h"), ("show", "h", "--reference"), ("trace", "h")])
def test_a_hold_that_is_not_there_is_told_in_one_line(holdfast: Command, command: tuple[str, ...]) -> None:
    assert holdfast(*command) == (1, "", f"holdfast: {MISSING}\n")
    said = holdfast(*command, "--json")
    assert (said.code, said.complaint) == (1, MISSING)
    assert said.data == {"refused": "missing", "message": MISSING, "hold": None}


def test_the_reference_that_show_prints_is_what_apply_takes(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", Until(FAR))
    said = holdfast("show", "h", "--reference")
    assert said.data == {
        "job_id": "hold-expiry:h:v1:1925024400",
        "reservation_id": "h",
        "hold_version": 1,
        "expected_expires_at": "2031-01-01T09:00:00Z",
    }
    job = said.data["job_id"]
    assert holdfast("apply", stdin=said.out.encode()).data == {"job_id": job, "outcome": "early"}
    assert desk.read("h").counts
    overdue = desk.overdue("late").reference
    piped = holdfast("show", "late", "--reference", "--json").out.encode()
    assert holdfast("apply", stdin=piped).data == {"job_id": overdue.job_id, "outcome": "expired"}
    assert holdfast("show", "late", "--json").data["status"] == "expired"


def test_list_prints_a_table_in_the_order_of_ids(holdfast: Command, desk: Desk) -> None:
    desk.placed("b", Until(FAR), resource="booth :heart: [red]", amount=1250, currency="EUR")
    desk.placed("a", Until(FAR), timezone="Asia/Tokyo")
    desk.confirm("a")
    said = holdfast("list")
    assert (said.code, said.err) == (0, "")
    assert [line.rstrip() for line in said.out.splitlines()] == [
        "id  status     v  expires                  amount  resource",
        "a   confirmed  1  2031-01-01 18:00 JST             seat 14",
        "b   held       1  2031-01-01 09:00 UTC  12.50 EUR  booth :heart: [red]",
    ]


def test_list_prints_one_json_object_a_line(holdfast: Command, desk: Desk) -> None:
    assert holdfast("list", "--json") == (0, "", "")
    for name in ("b", "a"):
        desk.placed(name)
    assert holdfast("list", "--json").lines == [desk.read(name).as_data() for name in ("a", "b")]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--status", "held"), ["berth", "live"]),
        (("--status", "lapsed"), ["overdue"]),
        (("--status", "confirmed"), ["kept"]),
        (("--status", "cancelled"), ["dropped"]),
        (("--status", "expired"), ["gone"]),
        (("--resource", "berth"), ["berth"]),
        (("--customer", "globex"), ["dropped"]),
        (("--customer", "globex", "--status", "held"), []),
        (("--after", "gone", "--status", "held"), ["live"]),
    ],
)
def test_list_finds_by_status_resource_and_customer(
    holdfast: Command, desk: Desk, filters: tuple[str, ...], found: list[str]
) -> None:
    desk.placed("live")
    desk.placed("berth", resource="berth")
    desk.placed("kept")
    desk.confirm("kept")
    desk.placed("dropped", customer="globex")
    desk.cancel("dropped")
    desk.expire(desk.overdue("gone").reference)
    desk.overdue("overdue")
    assert [hold["id"] for hold in holdfast("list", *filters, "--json").lines] == found


def test_list_says_how_to_go_on_where_there_may_be_more(holdfast: Command, desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.placed(name)
    first = holdfast("list", "--limit", "2", "--json")
    assert ([hold["id"] for hold in first.lines], first.complaint) == (["a", "b"], "there may be more: --after b")
    rest = holdfast("list", "--limit", "2", "--after", "b", "--json")
    assert ([hold["id"] for hold in rest.lines], rest.err) == (["c"], "")


def test_trace_tells_everything_in_order_of_time(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", amount=100, currency="EUR")
    with desk.database.transaction() as tx:
        soon = whole_second(tx, timedelta(seconds=2))
    desk.extend("h", 1, Until(soon))
    with desk.database.transaction() as tx:
        wait_until(tx, soon)
    run = sweep(desk)
    said = holdfast("trace", "h", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.data["hold"] == desk.read("h").as_data()
    steps = said.data["steps"]
    assert [step["what"] for step in steps] == [
        "placed", "ledger entry", "event", "extended", "event", "lapsed", "observed", "message", "attempt", "expired",
        "ledger entry", "event",
    ]  # fmt: skip
    facts = {step["what"]: step["facts"] for step in steps}
    assert facts["message"] == {"message": f"m-{run}", "path": "sweep", "run": run}
    assert facts["ledger entry"] == {"side": "close", "amount": -100, "currency": "EUR", "reason": "expired"}
    assert facts["event"] == {"event": "reservation-expired:h:2", "type": "reservation.expired"}


def test_trace_prints_a_day_once_and_a_step_a_line(holdfast: Command, desk: Desk) -> None:
    hold = desk.placed("h", Until(FAR))
    said = holdfast("trace", "h")
    assert (said.code, said.err) == (0, "")
    moment = f"{hold.placed_at:%H:%M:%S.%f}"[:-3]
    assert [line.rstrip() for line in said.out.splitlines()] == [
        "h  held, version 1",
        f"{hold.placed_at:%Y-%m-%d} UTC",
        f"  {moment}  placed  version 1, deadline 2031-01-01T09:00:00Z",
        f"  {moment}  event   event reservation-placed:h:1, type reservation.placed",
    ]


def test_trace_tells_what_remains_of_a_pruned_hold(holdfast: Command, desk: Desk) -> None:
    desk.placed("h", amount=100, currency="EUR")
    desk.confirm("h")
    forget(desk, "h")
    assert holdfast("trace", "h").out.splitlines()[0] == "h  pruned; this is what remains"
    said = holdfast("trace", "h", "--json")
    assert (said.code, said.data["hold"]) == (0, None)
    assert [(step["what"], step["facts"]["side"]) for step in said.data["steps"]] == [
        ("ledger entry", "open"),
        ("ledger entry", "close"),
    ]
