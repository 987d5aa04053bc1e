"""How many SMS a text becomes, by known answers and against a slow count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.segments import Encoding, Segments, measure


@pytest.mark.parametrize(
    ("text", "units", "count"),
    [
        ("", 0, 1), ("a" * 160, 160, 1), ("a" * 161, 161, 2), ("a" * 306, 306, 2), ("a" * 307, 307, 3),
        ("äöüßÄÖÜñ@£$¥èéùìòÇØøÅåΔ_ÆæÉ§¿¡à", 31, 1), ("€" * 80, 160, 1), ("€" * 81, 162, 2),
        ("a" * 152 + "€" + "a" * 10, 164, 2),  # the pair begins a segment: 152, then 2 + 10
        ("a" * 152 + "€" + "a" * 152, 306, 3),  # so one septet is lost, and there are three
        ("[" * 76 + "a" + "]", 155, 1), ("\n\r\f", 4, 1),
    ],
)  # fmt: skip
def test_a_plain_text_goes_in_septets(text: str, units: int, count: int) -> None:
    assert measure(text) == Segments(Encoding.GSM7, units, count)


@pytest.mark.parametrize(
    ("text", "units", "count"),
    [
        ("–", 1, 1), ("ç", 1, 1), ("–" * 70, 70, 1), ("–" * 71, 71, 2), ("–" * 134, 134, 2), ("–" * 135, 135, 3),
        ("🎟" * 35, 70, 1), ("🎟" * 36, 72, 2),
        ("–" * 66 + "🎟" + "–" * 66, 134, 3),  # the surrogates stay together, and one unit is lost
    ],
)  # fmt: skip
def test_any_other_goes_in_utf_16(text: str, units: int, count: int) -> None:
    assert measure(text) == Segments(Encoding.UCS2, units, count)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
def test_units_in_utf_16_are_its_code_units_and_they_fit_their_segments(text: str) -> None:
    found = measure(text + "–")
    assert found.units == len((text + "–").encode("utf-16-le")) // 2
    assert (found.count == 1) == (found.units <= 70)
    assert found.count == 1 or (found.count - 1) * 66 < found.units <= found.count * 67
