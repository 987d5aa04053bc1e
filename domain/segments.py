"""How many SMS a text becomes: what providers charge by, and refuse beyond ten."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MOST_SEGMENTS = 10
"""Twilio takes 1,600 signs, Telnyx ten segments."""

_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED = frozenset("\f^{}\\[~]|€")
"""GSM 03.38: each is an escape and a septet, which stay together."""


class Encoding(StrEnum):
    """How a text travels."""

    GSM7 = "GSM-7"
    UCS2 = "UCS-2"


@dataclass(frozen=True, slots=True)
class Segments:
    """What a text takes."""

    encoding: Encoding
    units: int
    """Septets, or UTF-16 code units."""
    count: int


def measure(text: str) -> Segments:
    """The encoding of a text and its segments: 160 septets in one, 153 in each of several; 70 and 67 in UCS-2."""
    if all(sign in _BASIC or sign in _EXTENDED for sign in text):
        widths = [2 if sign in _EXTENDED else 1 for sign in text]
        return _counted(Encoding.GSM7, widths, alone=160, among=153)
    widths = [2 if ord(sign) > 0xFFFF else 1 for sign in text]  # noqa: PLR2004 - the end of the basic plane
    return _counted(Encoding.UCS2, widths, alone=70, among=67)


def _counted(encoding: Encoding, widths: list[int], *, alone: int, among: int) -> Segments:
    units = sum(widths)
    return Segments(encoding, units, 1 if units <= alone else _packed(widths, among))


def _packed(widths: Iterable[int], room: int) -> int:
    """Segments of this room; what takes two units never stands with one of them in each of two."""
    count, used = 1, 0
    for width in widths:
        if used + width > room:
            count, used = count + 1, 0
        used += width
    return count
