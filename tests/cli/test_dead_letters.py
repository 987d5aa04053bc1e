"""`dead-letters`: what an operator sees of a command that could not be applied, and does about it."""

import pytest

from db import dead_letters, endpoints
from domain.endpoints import Overrides
from tests.cli.conftest import Command
from tests.helpers import Desk
from tests.histories import set_aside
from tests.hooks import BROKEN, Hooks

CAUSE = "numeric field overflow"


@pytest.fixture
def letter(desk: Desk) -> int:
    """The number of the dead letter with which hold `h` was set aside."""
    desk.overdue("h", amount=100, currency="EUR")
    return set_aside(desk, "h")


@pytest.fixture
def unreadable(desk: Desk) -> int:
    with desk.database.transaction() as tx:
        return dead_letters.bury(tx, "malformed:m-1:0", "malformed", {"raw": "[]"}, "job_id: is missing")


def test_list_and_show_tell_of_a_dead_letter(holdfast: Command, desk: Desk, letter: int) -> None:
    hold = desk.read("h")
    (since,) = desk.sql("SELECT created_at FROM dead_letters")[0]
    data = {
        "number": letter, "kind": "expiry", "hold": "h", "reference": hold.reference.as_data(), "error": CAUSE,
        "attempts": 3, "run": None, "since": since.isoformat().replace("+00:00", "Z"),
        "dealt_with_at": None, "dealt_with_by": None, "outcome": None,
    }  # fmt: skip
    assert holdfast("dead-letters", "show", str(letter), "--json") == holdfast("dead-letters", "list", "--json")
    assert holdfast("dead-letters", "list", "--json").data == data
    words = holdfast("dead-letters", "list").out.split()
    assert words[:8] == ["number", "kind", "hold", "attempts", "since", "dealt", "with", "error"]
    assert words[8:14] == [str(letter), "expiry", "h", "3", f"{since:%Y-%m-%d}", f"{since:%H:%M}"]
    shown = holdfast("dead-letters", "show", str(letter)).out.splitlines()
    assert shown[:3] == [f"number     {letter}", "kind       expiry", "hold       h"]
    assert shown[-1].startswith("since      20")


def test_list_shows_what_waits_newest_first_and_the_rest_on_demand(
    holdfast: Command, letter: int, unreadable: int
) -> None:
    assert [line["number"] for line in holdfast("dead-letters", "list", "--json").lines] == [unreadable, letter]
    assert holdfast("dead-letters", "list", "--limit", "1", "--json").data["number"] == unreadable
    holdfast("dead-letters", "discard", str(unreadable), "--operator", "ops")
    assert holdfast("dead-letters", "list", "--json").data["number"] == letter
    assert [line["outcome"] for line in holdfast("dead-letters", "list", "--all", "--json").lines] == [
        "discarded",
        None,
    ]


def test_list_says_that_there_are_none(holdfast: Command) -> None:
    assert holdfast("dead-letters", "list") == (0, "no dead letters\n", "")
    assert holdfast("dead-letters", "list", "--json") == (0, "", "")


def test_replay_applies_the_reference_once(holdfast: Command, desk: Desk, letter: int) -> None:
    said = holdfast("dead-letters", "replay", str(letter), "--operator", "ada", "--json")
    assert (said.code, said.data, said.err) == (0, {"dead_letter": letter, "outcome": "expired"}, "")
    assert desk.sql("SELECT status, set_aside FROM holds") == [("expired", False)]
    assert desk.sql("SELECT replayed_by, outcome FROM dead_letters") == [("ada", "expired")]
    assert desk.count("ledger", "side = 'close'") == 1
    before = desk.everything()
    for verb in ("replay", "discard"):
        again = holdfast("dead-letters", verb, str(letter), "--operator", "bob", "--json")
        line = f"dead letter {letter} was dealt with by ada: expired"
        assert (again.code, again.complaint) == (1, line)
        assert again.data == {"refused": "settled", "message": line}
    assert desk.everything() == before


def test_replay_prints_the_outcome(holdfast: Command, desk: Desk, letter: int) -> None:
    desk.sql("UPDATE holds SET version = 2")
    said = holdfast("dead-letters", "replay", str(letter), "--operator", "ada")
    assert said == (0, f"dead letter {letter}: stale\n", "")


def test_a_replay_that_fails_again_leaves_the_dead_letter_open(holdfast: Command, desk: Desk, letter: int) -> None:
    desk.sql("ALTER TABLE events ADD CONSTRAINT poison CHECK (type <> 'reservation.expired')")
    said = holdfast("dead-letters", "replay", str(letter), "--operator", "ada", "--json")
    line = (
        f'dead letter {letter} still cannot be applied (new row for relation "events" violates check constraint '
        '"poison"); mend the data, then replay it'
    )
    assert (said.code, said.complaint, said.data) == (1, line, {"refused": "failing", "message": line})
    assert desk.sql("SELECT attempts, replayed_at FROM dead_letters") == [(4, None)]
    assert desk.sql("SELECT status, set_aside FROM holds") == [("held", True)]


def test_what_cannot_be_read_is_not_replayed_but_can_be_discarded(
    holdfast: Command, desk: Desk, unreadable: int
) -> None:
    before = desk.everything()
    said = holdfast("dead-letters", "replay", str(unreadable), "--operator", "ada", "--json")
    line = f"dead letter {unreadable} cannot be read (job_id: is missing); mend its sender, then discard it"
    assert (said.code, said.complaint, said.data) == (1, line, {"refused": "malformed", "message": line})
    assert desk.everything() == before
    discarded = holdfast("dead-letters", "discard", str(unreadable), "--operator", "ada")
    assert discarded == (0, f"dead letter {unreadable}: discarded\n", "")


def test_discard_gives_the_hold_back_to_the_sweep(holdfast: Command, desk: Desk, letter: int) -> None:
    said = holdfast("dead-letters", "discard", str(letter), "--operator", "ada", "--json")
    assert (said.code, said.data, said.err) == (0, {"dead_letter": letter, "outcome": "discarded"}, "")
    assert desk.sql("SELECT status, set_aside, claims FROM holds") == [("held", False, 0)]
    assert holdfast("sweep", "--here", "--json").data["outcomes"] == {"expired": 1}


@pytest.mark.parametrize(
    "command", [("show", "7"), ("replay", "7", "--operator", "ada"), ("discard", "7", "--operator", "ada")]
)
def test_a_number_that_is_none_is_told_in_one_line(holdfast: Command, command: tuple[str, ...]) -> None:
    line = "there is no dead letter 7; see `holdfast dead-letters list --all`"
    assert holdfast("dead-letters", *command) == (1, "", f"holdfast: {line}\n")
    said = holdfast("dead-letters", *command, "--json")
    assert (said.code, said.complaint, said.data) == (1, line, {"refused": "missing", "message": line})


@pytest.fixture
def undelivered(desk: Desk) -> int:
    """The number of the dead letter of hold `w`'s placing, which endpoint `ep` did not take."""
    hooks = Hooks(desk.database)
    hooks.endpoint("ep", overrides=Overrides(max_attempts=1))
    hooks.placed("w")
    hooks.make_due()
    hooks.attempt(BROKEN)
    return int(desk.sql("SELECT id FROM dead_letters")[0][0])


def test_a_dead_delivery_is_listed_with_its_event_and_endpoint(holdfast: Command, undelivered: int) -> None:
    data = holdfast("dead-letters", "show", str(undelivered), "--json").data
    assert (data["kind"], data["hold"], data["error"], data["reference"]) == (
        "delivery", None, "attempts used up", {"event_id": "reservation-placed:w:1", "endpoint_id": "ep"},
    )  # fmt: skip
    told = " ".join(holdfast("dead-letters", "list").out.split())
    assert told.endswith("attempts used up: reservation-placed:w:1 for ep")


def test_replaying_a_dead_delivery_lets_it_be_sent_again_once(holdfast: Command, desk: Desk, undelivered: int) -> None:
    said = holdfast("dead-letters", "replay", str(undelivered), "--operator", "ada", "--json")
    assert (said.code, said.data, said.err) == (0, {"dead_letter": undelivered, "outcome": "replayed"}, "")
    assert desk.sql("SELECT state, trigger, replays, replayed_by FROM deliveries") == [("pending", "replay", 1, "ada")]
    assert desk.sql("SELECT replayed_by, outcome FROM dead_letters") == [("ada", "replayed")]
    before = desk.everything()
    for verb in ("replay", "discard"):
        again = holdfast("dead-letters", verb, str(undelivered), "--operator", "bob")
        assert (again.code, again.complaint) == (1, f"dead letter {undelivered} was dealt with by ada: replayed")
    assert desk.everything() == before


def test_discarding_a_dead_delivery_cancels_it(holdfast: Command, desk: Desk, undelivered: int) -> None:
    said = holdfast("dead-letters", "discard", str(undelivered), "--operator", "ada")
    assert said == (0, f"dead letter {undelivered}: discarded\n", "")
    assert desk.sql("SELECT state, replays FROM deliveries") == [("cancelled", 0)]
    assert desk.sql("SELECT replayed_by, outcome FROM dead_letters") == [("ada", "discarded")]


def test_a_dead_delivery_of_a_deleted_endpoint_is_not_replayed_but_can_be_discarded(
    holdfast: Command, desk: Desk, undelivered: int
) -> None:
    Hooks(desk.database).call(endpoints.delete)
    before = desk.everything()
    said = holdfast("dead-letters", "replay", str(undelivered), "--operator", "ada", "--json")
    line = "delivery: its endpoint is deleted; add another"
    assert (said.code, said.complaint, said.data) == (1, line, {"refused": "refused", "message": line})
    assert desk.everything() == before
    assert holdfast("dead-letters", "discard", str(undelivered), "--operator", "ada").code == 0
    assert desk.sql("SELECT outcome FROM dead_letters") == [("discarded",)]


def test_a_dead_letter_whose_delivery_is_gone_can_be_discarded(holdfast: Command, desk: Desk, undelivered: int) -> None:
    desk.sql("DELETE FROM deliveries")
    assert holdfast("dead-letters", "replay", str(undelivered), "--operator", "ada").code == 1
    assert holdfast("dead-letters", "discard", str(undelivered), "--operator", "ada").code == 0
    assert desk.sql("SELECT replayed_by, outcome FROM dead_letters") == [("ada", "discarded")]
