"""How a column of values travels to a bulk statement.

psycopg writes an array element by element in Python. Texts that hold no line break travel as the lines of one text,
and instants as Unix seconds, for a tenth of that; docs/adr/0006 has the figures.
"""

from collections.abc import Iterable


def lines(values: Iterable[str | None]) -> str:
    """Texts without a line break, as one; None as an empty line. `texts` reads it back."""
    return "\n".join("" if value is None else value for value in values)


def texts(parameter: str) -> str:
    """SQL: the array of texts that `lines` made of this parameter."""
    return f"string_to_array(:{parameter}, E'\\n', '')"
