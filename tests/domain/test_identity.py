"""Names that never change: ids, cohorts and effect keys, by known answers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.identity import (
    HoldId,
    cancelled_key,
    cohort,
    confirmed_key,
    event_id,
    expiry_key,
    extended_key,
    hold_id,
    new_hold_id,
    placed_key,
)

AT = datetime(2026, 12, 1, 9, tzinfo=UTC)
IDS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=64)


@pytest.mark.parametrize("raw", ["h", "A-Z_09", "-", "_", "x" * 64])
def test_an_id_of_the_alphabet_is_taken(raw: str) -> None:
    assert hold_id(raw) == raw


@pytest.mark.parametrize("raw", ["", "x" * 65, "a.b", "a b", "a:b", "ä", "h\n", "h\x00", "٣", "\ud800"])
def test_another_id_is_refused(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        hold_id(raw)
    assert str(refused.value) == f"id: {raw!r} is no hold id; use 1 to 64 of A-Z a-z 0-9 _ -"


def test_a_generated_id_is_an_id_and_never_the_same_twice() -> None:
    made = {new_hold_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(hold_id(name) == name for name in made)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("123456789", 62),  # the check value of CRC-32: 0xCBF43926
        ("a", 7),  # 0xE8B7BE43
        ("hello", 70),  # 0x3610A686
        ("seat-1", 62),
        ("x" * 64, 38),
    ],
)
def test_a_cohort_is_crc32_of_the_id_modulo_100(name: str, known: int) -> None:
    assert cohort(HoldId(name)) == known


@given(IDS)
def test_every_id_has_one_of_a_hundred_cohorts(name: str) -> None:
    assert 0 <= cohort(hold_id(name)) <= 99


def test_each_kind_of_effect_has_its_own_key() -> None:
    hold = HoldId("seat-1")
    assert placed_key(hold) == "hold-placed:seat-1"
    assert extended_key(hold, 2) == "hold-extended:seat-1:v2"
    assert confirmed_key(hold) == "hold-confirmed:seat-1"
    assert cancelled_key(hold) == "hold-cancelled:seat-1"
    assert expiry_key(hold, 3, AT) == "hold-expiry:seat-1:v3:1796115600"


@given(IDS, st.integers(1, 2**31 - 1), IDS, st.integers(1, 2**31 - 1))
def test_two_versions_never_share_an_expiry_key(a: str, v: int, b: str, w: int) -> None:
    same = expiry_key(HoldId(a), v, AT) == expiry_key(HoldId(b), w, AT)
    assert same == ((a, v) == (b, w))


@given(st.sampled_from(["placed", "extended", "confirmed", "cancelled", "expired"]), IDS, st.integers(1, 2**31 - 1))
def test_an_event_id_holds_no_dot(kind: str, name: str, version: int) -> None:
    identity = event_id(kind, HoldId(name), version)
    assert identity == f"reservation-{kind}:{name}:{version}"
    assert "." not in identity
