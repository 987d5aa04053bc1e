"""What is wrong with an input, said in one line that names the cause and the cure."""


class HoldfastError(Exception):
    """Whatever Holdfast says of itself to a person: its text is one line and holds no secret."""


class BadInput(HoldfastError, ValueError):
    """A value cannot be used as given."""

    def __init__(self, field: str, cause: str) -> None:
        super().__init__(field, cause)
        self.field = field
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.field}: {self.cause}"
