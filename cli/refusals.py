"""How a command says that what was asked was refused: one line on stderr, as JSON too where that was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.output import print_json
from domain.errors import BadInput, HoldfastError


class NotDone(HoldfastError):
    """What was asked was refused, for a reason that programs can tell by its one word."""

    def __init__(self, reason: str, line: str) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return self.line


@contextmanager
def refusals(*, as_json: bool) -> Iterator[None]:
    """Around what is done once the command line was understood: what is refused here is no bad usage.

    Raises:
        NotDone: whoever reports errors says its line.
    """
    try:
        try:
            yield
        except BadInput as refused:
            raise NotDone("refused", str(refused)) from None
    except NotDone as refused:
        if as_json:
            print_json({"refused": refused.reason, "message": refused.line})
        raise
