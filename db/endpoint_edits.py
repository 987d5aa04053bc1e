"""An endpoint read and changed under one lock, so that two changes at once do not undo each other."""

from collections.abc import Callable

from sqlalchemy import text

from db import endpoints
from db.engine import Tx
from domain.endpoints import Endpoint, EndpointId, State, Terms
from domain.errors import BadInput


def locked(tx: Tx, endpoint: EndpointId) -> Endpoint:
    """An endpoint as it stands until this transaction ends.

    Raises:
        BadInput: there is no such endpoint, or it is deleted.
    """
    tx.execute(text("SELECT FROM endpoints WHERE id = :id FOR UPDATE"), {"id": endpoint})
    found = endpoints.get(tx, endpoint)
    if found is None:
        raise BadInput("endpoint", f"there is no endpoint {endpoint!r}; see `holdfast endpoints list`")
    if found.state is State.DELETED:
        raise BadInput("endpoint", f"{endpoint!r} is deleted for ever; add another")
    return found


def change(tx: Tx, endpoint: EndpointId, made: Callable[[Terms], Terms]) -> Endpoint:
    """Give an endpoint the terms that `made` makes of its present ones. Two at once: the second sees the first's.

    Raises:
        BadInput: as `locked`, or what `made` raises; nothing is changed.
    """
    return endpoints.edit(tx, endpoint, made(locked(tx, endpoint).terms))
