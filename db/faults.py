"""What a failed statement says of itself."""

from sqlalchemy.exc import DBAPIError, OperationalError


def sqlstate(fault: DBAPIError) -> str | None:
    """The five letters the server gave; None where it said nothing, as when it cannot be reached."""
    return getattr(fault.orig, "sqlstate", None)


def cause(fault: DBAPIError) -> str:
    """The first line of what the server said: later ones may hold a customer's text."""
    return str(fault.orig).strip().partition("\n")[0][:200]


def is_away(fault: Exception) -> bool:
    """Whether the database could not be asked, or took the connection back: the same statement may pass later."""
    if not isinstance(fault, DBAPIError):
        return True
    state = sqlstate(fault)
    silent = isinstance(fault, OperationalError) and state is None
    return fault.connection_invalidated or silent or (state is not None and state[:2] in {"08", "57"})


def lies_in_the_data(state: str | None) -> bool:
    """Whether a SQLSTATE is of the row's making (classes 22 and 23), so that splitting a chunk isolates it."""
    return state is not None and state[:2] in {"22", "23"}
