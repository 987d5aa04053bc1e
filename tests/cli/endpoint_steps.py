"""What tests of endpoints do again and again."""

from typing import Any

from tests.cli.conftest import Command
from tests.cli.saying import Said

URL = "https://93.184.215.14/hooks"
"""An address, so that no name is looked up."""


def add(holdfast: Command, *options: str, url: str = URL) -> Any:
    """A new endpoint `ep`, as JSON."""
    said = holdfast("endpoints", "add", url, "--id", "ep", *options, "--json")
    assert (said.code, said.err) == (0, "")
    return said.data


def refused(said: Said) -> str:
    """The line of a refusal, which JSON repeats."""
    assert said.code == 1
    assert said.data == {"refused": "refused", "message": said.complaint}
    return said.complaint
