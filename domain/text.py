"""Which text may stand in a hold: one line that every database, log and receiver can carry."""

import unicodedata

from domain.errors import BadInput

LONGEST_LABEL = 200
"""Characters in a resource, customer or reason, at most."""


def clean_label(field: str, raw: str) -> str:
    """The text as it is, if it is one printable line of 1 to 200 characters.

    Raises:
        BadInput: it is empty, too long, or holds a control character, a NUL or a lone surrogate.
    """
    if not raw or raw.isspace():
        raise BadInput(field, "is empty; give it a text")
    if len(raw) > LONGEST_LABEL:
        raise BadInput(field, f"has {len(raw)} characters; {LONGEST_LABEL} at most")
    if raw.isprintable():
        return raw
    for character in raw:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
            raise BadInput(field, f"holds U+{ord(character):04X}, a character that is no text; remove it")
    return raw
