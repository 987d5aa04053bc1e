"""An endpoint made with its key, or read and changed under one lock, so that two at once do not undo each other."""

from collections.abc import Callable
from datetime import timedelta

from db import endpoint_keys, endpoints
from db.endpoint_keys import SealedKey
from db.engine import Tx
from domain.endpoints import Endpoint, EndpointId, Terms


def make(tx: Tx, endpoint: EndpointId, terms: Terms, key: SealedKey) -> Endpoint:
    """A new endpoint with its first key, so that there is none that cannot sign. Raises BadInput as `endpoints.add`."""
    made = endpoints.add(tx, endpoint, terms)
    endpoint_keys.rotate(tx, endpoint, key, grace=timedelta(0))
    return made


def change(tx: Tx, endpoint: EndpointId, made: Callable[[Terms], Terms]) -> Endpoint:
    """Give an endpoint the terms that `made` makes of its present ones. Two at once: the second sees the first's.

    Raises:
        BadInput: as `endpoints.locked`, or what `made` raises; nothing is changed.
    """
    return endpoints.edit(tx, endpoint, made(endpoints.locked(tx, endpoint).terms))
