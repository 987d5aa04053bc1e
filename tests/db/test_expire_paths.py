"""Which path may expire a hold, and which outcome is said where several fit."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from db.engine import Database
from domain.holds import Hold
from domain.identity import HoldId
from domain.outcomes import Outcome
from domain.paths import Path
from domain.references import Reference
from domain.terms import For
from tests.helpers import GRACE, Desk, carrier, without_receipts

SECOND = timedelta(seconds=1)


class TestPaths:
    """Which path may drive a hold's cohort."""

    @pytest.fixture
    def moved(self, desk: Desk) -> Hold:
        """An overdue hold whose cohort another path drives."""
        hold = desk.overdue("h", by=GRACE - SECOND, amount=1250, currency="EUR")
        desk.sql("UPDATE cohort_paths SET path = 'infrai' WHERE cohort = :cohort", cohort=hold.cohort)
        return hold

    def test_a_message_whose_cohort_has_moved_is_elsewhere_and_changes_nothing(self, desk: Desk, moved: Hold) -> None:
        before = without_receipts(desk)
        assert desk.expire(moved.reference, by=carrier(path=Path.SWEEP, run=1)) == [Outcome.ELSEWHERE]
        assert desk.expire(moved.reference, by=carrier(path=Path.SCANNER)) == [Outcome.ELSEWHERE]
        assert without_receipts(desk) == before

    def test_the_path_that_drives_the_cohort_expires_it(self, desk: Desk, moved: Hold) -> None:
        assert desk.expire(moved.reference, by=carrier(path=Path.INFRAI)) == [Outcome.EXPIRED]

    def test_an_operators_hand_expires_whatever_the_path(self, desk: Desk, moved: Hold) -> None:
        assert desk.expire(moved.reference, by=carrier(path=None)) == [Outcome.EXPIRED]

    def test_a_rescue_takes_any_cohort_once_overdue_by_the_grace_time_not_before(self, desk: Desk, moved: Hold) -> None:
        rescue = carrier(path=Path.RESCUE, run=3)
        before = without_receipts(desk)
        early = moved.expires_at + GRACE - timedelta.resolution
        assert desk.expire(moved.reference, by=rescue, now=early) == [Outcome.ELSEWHERE]
        assert without_receipts(desk) == before
        assert desk.expire(moved.reference, by=rescue, now=moved.expires_at + GRACE) == [Outcome.EXPIRED]
        assert desk.sql("SELECT path, tally FROM receipts ORDER BY id DESC LIMIT 1") == [
            ("rescue", {"expired": {str(moved.cohort): 1}})
        ]

    def test_a_due_hold_is_never_called_early_even_if_its_cohort_moves_meanwhile(
        self, desk: Desk, database: Database, moved: Hold
    ) -> None:
        """The cohort comes back between the change and the classification."""
        moves: list[str] = []

        def move_back(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "CASE" in statement and not moves:
                moves.append(statement)
                desk.sql("UPDATE cohort_paths SET path = 'sweep'")

        event.listen(database.engine, "before_cursor_execute", move_back)
        assert desk.expire(moved.reference, by=carrier(path=Path.SWEEP)) == [Outcome.ELSEWHERE]
        assert len(moves) == 1


class TestOrderOfClassification:
    """Where several outcomes fit, the first is said: missing, duplicate, stale, elsewhere, early."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, desk: Desk) -> None:
        desk.sql("UPDATE cohort_paths SET path = 'scanner'")

    def test_duplicate_comes_before_stale_and_elsewhere(self, desk: Desk) -> None:
        hold = desk.overdue("h")
        desk.expire(hold.reference)
        assert desk.expire(hold.reference, by=carrier(path=Path.SWEEP)) == [Outcome.DUPLICATE]

    def test_stale_comes_before_elsewhere_and_early(self, desk: Desk) -> None:
        hold = desk.placed("h")
        desk.extend("h", 1, For(timedelta(hours=1)))
        assert desk.expire(hold.reference, by=carrier(path=Path.SWEEP)) == [Outcome.STALE]

    def test_elsewhere_comes_before_early(self, desk: Desk) -> None:
        hold = desk.placed("h")
        assert desk.expire(hold.reference, by=carrier(path=Path.SWEEP)) == [Outcome.ELSEWHERE]
        assert desk.expire(hold.reference, by=carrier(path=Path.SCANNER)) == [Outcome.EARLY]

    def test_missing_comes_before_elsewhere(self, desk: Desk) -> None:
        reference = Reference.to(HoldId("nobody"), 1, desk.placed("h").expires_at)
        assert desk.expire(reference, by=carrier(path=Path.SWEEP)) == [Outcome.MISSING]
