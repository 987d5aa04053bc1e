"""Labels: one line of text that every database, log and receiver can carry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.text import clean_label


@pytest.mark.parametrize(
    "raw", ["seat 14", " padded ", "Zürich · Gleis 3", "料金", "🎟️", "a\u200db", "x" * 200, "👍" * 200, "\u00a0 nbsp"]
)
def test_a_printable_line_is_kept_as_it_is(raw: str) -> None:
    assert clean_label("resource", raw) == raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", "resource: is empty; give it a text"),
        (" ", "resource: is empty; give it a text"),
        ("\u3000\n", "resource: is empty; give it a text"),
        ("x" * 201, "resource: has 201 characters; 200 at most"),
        ("a\x00b", "resource: holds U+0000, a character that is no text; remove it"),
        ("a\nb", "resource: holds U+000A, a character that is no text; remove it"),
        ("a\x1bb", "resource: holds U+001B, a character that is no text; remove it"),
        ("a\x85b", "resource: holds U+0085, a character that is no text; remove it"),
        ("a\u2028b", "resource: holds U+2028, a character that is no text; remove it"),
        ("a\u2029b", "resource: holds U+2029, a character that is no text; remove it"),
        ("a\ud800b", "resource: holds U+D800, a character that is no text; remove it"),
    ],
)
def test_what_no_line_can_carry_is_refused_by_its_code_point(raw: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        clean_label("resource", raw)
    assert str(refused.value) == message


@given(st.text(max_size=220))
def test_whatever_is_taken_survives_utf8_and_json_on_one_line(raw: str) -> None:
    try:
        kept = clean_label("customer", raw)
    except BadInput:
        return
    assert kept.encode().decode() == raw
    assert "\x00" not in kept
    assert len(json.dumps(kept, ensure_ascii=False).splitlines()) == 1
