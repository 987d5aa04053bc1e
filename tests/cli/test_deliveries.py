"""`deliveries`: what is on its way, what came of each request, and sending again what died."""

from typing import Any

import pytest

from db import endpoints
from domain.endpoints import EVENT_TYPES, TEST_TYPE, Overrides
from domain.instants import rfc3339
from domain.webhooks import Answered
from tests.cli.conftest import Command
from tests.hooks import BROKEN, OK, Hooks, fill_backlog

PLACED = "reservation-placed:h:1"
NOBODY = {"replays": 0, "replayed_at": None, "replayed_by": None}


@pytest.fixture
def dead(hooks: Hooks) -> Hooks:
    """Of endpoint `ep`, one dead delivery of hold `a`, one of `b`; one of `c` was delivered, one of `d` waits."""
    hooks.endpoint("ep", overrides=Overrides(max_attempts=1), types=("reservation.placed",))
    for hold, result in (("a", BROKEN), ("b", BROKEN), ("c", OK)):
        hooks.placed(hold)
        hooks.make_due()
        hooks.attempt(result)
    hooks.placed("d")
    assert hooks.rows("SELECT state FROM deliveries ORDER BY created_at") == [
        ("dead",), ("dead",), ("delivered",), ("pending",),
    ]  # fmt: skip
    return hooks


def listed(holdfast: Command, *options: str) -> list[str]:
    said = holdfast("deliveries", "list", *options, "--json")
    assert said.code == 0
    return [line["event"].split(":")[1] for line in said.lines]


def states(hooks: Hooks) -> dict[str, str]:
    return {event.split(":")[1]: state for event, state in hooks.rows("SELECT event_id, state FROM deliveries")}


def test_list_tells_each_delivery_the_oldest_first(holdfast: Command, dead: Hooks) -> None:
    first, *_, last = holdfast("deliveries", "list", "--json").lines
    [(created, settled)] = dead.rows("SELECT created_at, settled_at FROM deliveries WHERE event_id LIKE '%:a:%'")
    assert first == {
        "event": "reservation-placed:a:1", "endpoint": "ep", "type": "reservation.placed", "state": "dead",
        "trigger": "auto", "attempts": 1, "spared": 0, "earlier": 0,
        "next_attempt_at": None, "created_at": rfc3339(created),
        "settled_at": rfc3339(settled), **NOBODY, "position": first["position"],
    }  # fmt: skip
    [(due,)] = dead.rows("SELECT next_attempt_at FROM deliveries WHERE event_id LIKE '%:d:%'")
    assert (last["state"], last["next_attempt_at"]) == ("pending", rfc3339(due))
    table = [line.split() for line in holdfast("deliveries", "list").out.splitlines()]
    assert table[0] == ["event", "endpoint", "state", "requests", "since", "next"]


def test_list_finds_by_event_endpoint_type_state_and_time(holdfast: Command, dead: Hooks) -> None:
    dead.endpoint("other")
    dead.placed("e")
    times = dict(dead.rows("SELECT split_part(event_id, chr(58), 2), min(created_at) FROM deliveries GROUP BY 1"))
    since, until = rfc3339(times["b"]), rfc3339(times["d"])
    assert listed(holdfast, "--state", "dead") == ["a", "b"]
    assert listed(holdfast, "--endpoint", "other") == ["e"]
    assert listed(holdfast, "--event", "reservation-placed:e:1") == ["e", "e"]
    assert listed(holdfast, "--since", since, "--until", until) == ["b", "c"]
    assert listed(holdfast, "--since", since, "--endpoint", "ep", "--state", "delivered") == ["c"]
    assert listed(holdfast, "--type", "reservation.expired") == []


def test_list_says_how_to_go_on_where_there_are_more(holdfast: Command, dead: Hooks) -> None:
    said = holdfast("deliveries", "list", "--limit", "2", "--json")
    assert len(said.lines) == 2
    assert said.complaint == f"there are more; go on with --after {said.lines[1]['position']}"
    assert listed(holdfast, "--after", said.lines[1]["position"]) == ["c", "d"]
    assert holdfast("deliveries", "list", "--limit", "4").err == ""
    assert holdfast("deliveries", "list", "--state", "cancelled") == (0, "no deliveries\n", "")


def test_a_walk_gets_past_any_number_of_deliveries_of_one_instant(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep")
    fill_backlog(hooks, 1_100)
    assert hooks.rows("SELECT count(DISTINCT created_at) FROM deliveries") == [(1,)]
    seen: list[str] = []
    options: tuple[str, ...] = ()
    for expected in (500, 500, 100):
        said = holdfast("deliveries", "list", "--limit", "500", *options, "--json")
        assert len(said.lines) == expected
        seen += [line["event"] for line in said.lines]
        options = ("--after", said.lines[-1]["position"])
    assert (said.err, seen) == ("", sorted({event for (event,) in hooks.rows("SELECT event_id FROM deliveries")}))


def test_a_position_stays_good_when_its_delivery_is_settled_or_pruned(holdfast: Command, dead: Hooks) -> None:
    second = holdfast("deliveries", "list", "--json").lines[1]["position"]
    dead.sql("DELETE FROM deliveries WHERE event_id LIKE '%:b:%'")
    dead.make_due()
    dead.attempt(OK)
    assert listed(holdfast, "--after", second) == ["c", "d"]
    assert listed(holdfast, "--after", second, "--state", "delivered") == ["c", "d"]


def test_show_tells_every_request_of_a_delivery(holdfast: Command, hooks: Hooks) -> None:
    hooks.endpoint("ep")
    hooks.placed("h")
    hooks.make_due()
    hooks.attempt(Answered(503, "busy \x1b[31m\n", None, "192.0.2.1:443"))
    hooks.make_due()
    hooks.taken(hooks.held())
    data = holdfast("deliveries", "show", PLACED, "ep", "--json").data
    common = {"event": PLACED, "endpoint": "ep", "trigger": "auto", "key_ids": ["key-ep"], "worker": "worker@test"}
    starts = [rfc3339(at) for (at,) in hooks.rows("SELECT started_at FROM attempts ORDER BY number")]
    assert (data["state"], data["attempts"]) == ("pending", 2)
    assert data["requests"] == [
        {**common, "number": 1, "started_at": starts[0], "duration_s": 0.02, "peer": "192.0.2.1:443", "status": 503,
         "failure": None, "detail": "busy \x1b[31m\n"},
        {**common, "number": 2, "started_at": starts[1], "duration_s": None, "peer": None, "status": None,
         "failure": None, "detail": None},
    ]  # fmt: skip
    shown = holdfast("deliveries", "show", PLACED, "ep").out
    assert "\x1b" not in shown
    assert "busy ?[31m?" in shown
    assert [line for line in shown.splitlines() if line.startswith("request")] == ["request 1", "request 2"]


def test_a_delivery_that_is_not_there_is_told_in_one_line(holdfast: Command) -> None:
    line = "there is no delivery of zzz that fits; see `holdfast deliveries list`"
    for command in (("show", "zzz", "ep"), ("replay", "zzz", "--operator", "jo"),
                    ("replay", "zzz", "--endpoint", "ep", "--operator", "jo")):  # fmt: skip
        said = holdfast("deliveries", *command, "--json")
        assert (said.code, said.complaint, said.data) == (1, line, {"refused": "missing", "message": line})


def test_one_dead_delivery_is_replayed_in_the_operators_name(holdfast: Command, dead: Hooks) -> None:
    said = holdfast("deliveries", "replay", "reservation-placed:a:1", "--endpoint", "ep", "--operator", "jo", "--json")
    assert (said.code, said.data, said.err) == (0, {"replayed": 1, "would_be_replayed": 0, "dead": 0}, "")
    assert states(dead) == {"a": "pending", "b": "dead", "c": "delivered", "d": "pending"}
    assert dead.rows("SELECT replayed_by, outcome FROM dead_letters ORDER BY id") == [("jo", "replayed"), (None, None)]
    before = dead.everything()
    again = holdfast("deliveries", "replay", "reservation-placed:a:1", "--endpoint", "ep", "--operator", "bo", "--json")
    assert (again.code, again.data) == (0, {"replayed": 0, "would_be_replayed": 0, "dead": 0})
    assert dead.everything() == before


def test_all_that_fit_are_replayed_and_nothing_else(holdfast: Command, dead: Hooks) -> None:
    [(since,)] = dead.rows("SELECT created_at FROM deliveries WHERE event_id LIKE '%:b:%'")
    said = holdfast("deliveries", "replay", "--since", rfc3339(since), "--endpoint", "ep", "--operator", "jo")
    assert said == (0, "1 deliveries replayed\n", "")
    assert states(dead) == {"a": "dead", "b": "pending", "c": "delivered", "d": "pending"}


def test_a_limit_replays_the_oldest_and_says_what_is_left(holdfast: Command, dead: Hooks) -> None:
    said = holdfast("deliveries", "replay", "--type", "reservation.placed", "--limit", "1", "--operator", "jo")
    assert said == (0, "1 deliveries replayed; 1 more are dead, run this again\n", "")
    assert states(dead)["b"] == "dead"


def test_a_dry_run_counts_what_would_be_replayed_and_changes_nothing(holdfast: Command, dead: Hooks) -> None:
    before = dead.everything()
    for options, would, more in (
        (("--endpoint", "ep"), 2, 0), (("reservation-placed:a:1",), 1, 0), (("--endpoint", "none"), 0, 0),
        (("--endpoint", "ep", "--limit", "1"), 1, 1),
    ):  # fmt: skip
        said = holdfast("deliveries", "replay", *options, "--dry-run", "--json")
        assert (said.code, said.data) == (0, {"replayed": 0, "would_be_replayed": would, "dead": more})
    told = holdfast("deliveries", "replay", "--endpoint", "ep", "--dry-run", "--operator", "jo")
    assert told == (0, "2 dead deliveries would be replayed\n", "")
    told = holdfast("deliveries", "replay", "--endpoint", "ep", "--dry-run", "--limit", "1")
    assert told == (0, "1 dead deliveries would be replayed; 1 more are dead\n", "")
    assert dead.everything() == before


@pytest.mark.parametrize("options", [("--endpoint", "ep"), ()])
def test_a_delivered_one_is_not_replayed(holdfast: Command, dead: Hooks, options: tuple[str, ...]) -> None:
    before = dead.everything()
    said = holdfast("deliveries", "replay", "reservation-placed:c:1", *options, "--operator", "jo", "--json")
    assert said.code == 1
    assert said.complaint in {
        "delivery: is delivered; only a dead one can be replayed",
        "the deliveries of reservation-placed:c:1 are delivered; only a dead one can be replayed",
    }
    assert said.data == {"refused": "refused", "message": said.complaint}
    assert dead.everything() == before


def test_nothing_is_replayed_to_a_deleted_endpoint(holdfast: Command, dead: Hooks) -> None:
    dead.call(endpoints.delete)
    before = dead.everything()
    one = holdfast("deliveries", "replay", "reservation-placed:a:1", "--endpoint", "ep", "--operator", "jo")
    assert (one.code, one.complaint) == (1, "delivery: its endpoint is deleted; add another")
    of_event = holdfast("deliveries", "replay", "reservation-placed:a:1", "--operator", "jo")
    line = "the endpoints of reservation-placed:a:1's dead deliveries are deleted; add others"
    assert (of_event.code, of_event.complaint) == (1, line)
    assert holdfast("deliveries", "replay", "--endpoint", "ep", "--operator", "jo").out == "0 deliveries replayed\n"
    assert dead.everything() == before


TYPES = ", ".join((*EVENT_TYPES, TEST_TYPE))
BAD: dict[str, Any] = {
    "nothing chosen": (("replay", "--operator", "jo"),
                       "deliveries: say which: EVENT, --endpoint, --type, --since or --until"),
    "nobody's name": (("replay", "--endpoint", "ep"),
                      "--operator: is missing; say who does this, or only count with --dry-run"),
    "an empty name": (("replay", "--endpoint", "ep", "--operator", ""), "operator: is empty; give it a text"),
    "an unknown type": (("list", "--type", "hold.gone"), f"--type: 'hold.gone' is none; use {TYPES}"),
    "an unknown state": (("list", "--state", "lost"),
                         "--state: 'lost' is none; use pending, delivered, dead, cancelled"),
    "a naive time": (("list", "--since", "2031-01-01T00:00:00"),
                     "--since: '2031-01-01T00:00:00' has no zone; add an offset like +01:00 or Z"),
    "no position": (("list", "--after", "bm8"), "--after: 'bm8' is no position; give one that `list` has printed"),
    "a position of no instant": (("list", "--after", "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LCJhIiwiYiJd"),
                                 ("--after: 'Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LCJhIiwiYiJd' is no position; give one that "
                                  "`list` has printed")),
    "a position of a surrogate": (("list", "--after", "WzEsIlx1ZDgwMCIsImIiXQ"),
                                  "--after: 'WzEsIlx1ZDgwMCIsImIiXQ' is no position; give one that `list` has printed"),
    "a NUL in an id": (("show", "a\0b", "ep"), "event: 'a\\x00b' is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -"),
    "a bad endpoint": (("list", "--endpoint", "e p"), ("endpoint: 'e p' is no endpoint id; use 1 to 64 of A-Z a-z 0-9 "
                                                      "_ -")),
}  # fmt: skip


@pytest.mark.parametrize(("command", "line"), BAD.values(), ids=BAD)
def test_what_is_not_understood_is_told_in_one_line_and_changes_nothing(
    holdfast: Command, dead: Hooks, command: tuple[str, ...], line: str
) -> None:
    before = dead.everything()
    said = holdfast("deliveries", *command)
    assert (said.code, said.out, said.complaint) == (2, "", line)
    assert dead.everything() == before


def test_reconcile_judges_attempts_by_the_bounds_that_held_for_them(
    holdfast: Command, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks.endpoint("ep")
    hooks.placed("h")
    for _ in range(3):
        hooks.make_due()
        hooks.attempt(BROKEN)
    assert holdfast("reconcile").code == 0
    monkeypatch.setenv("HOLDFAST_WEBHOOK_ATTEMPTS", "2")
    said = holdfast("reconcile", "--json")
    told = "3 attempts, 0 of them spared, 0 replays; allowed: 2 each, within 4 days"
    assert (said.code, said.data["violations"]) == (
        1, [{"check": "delivery-bounds", "hold_id": "h", "detail": f"delivery of {PLACED} for ep: {told}"}],
    )  # fmt: skip
    [(now,)] = hooks.rows("SELECT clock_timestamp()")
    assert holdfast("reconcile", "--bounds-since", rfc3339(now)).code == 0
