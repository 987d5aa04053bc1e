"""`endpoints reseal`: endpoint secrets under the first vault key, so that an older one can be dropped."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.context import PATIENT, database
from cli.endpoint_secrets import vault
from cli.output import Json, print_json, say
from db import endpoint_keys
from db.endpoint_keys import SealedKey
from db.engine import Database, Tx
from domain.endpoints import EndpointId
from domain.errors import HoldfastError

if TYPE_CHECKING:
    from gateways.vault import Vault

BATCH = 500
"""Keys in one transaction."""
_SHOWN = 20
"""Secrets that cannot be opened, told one a line."""


@dataclass(slots=True)
class Resealed:
    """What became of the secrets that were looked at."""

    resealed: int = 0
    current: int = 0
    """Sealed with the first key already, or by somebody else meanwhile."""
    unreadable: list[str] = field(default_factory=list)
    """For each that no vault key at hand opens, its endpoint and key id, the cause and the cure."""


def reseal(as_json: Json = False) -> int:
    """Seal each secret that still signs with the first vault key.

    Twice, or two at once, is safe. Exit 1 if any cannot be opened.
    """
    box = vault()
    with database(PATIENT) as db:
        told = seal_all(db, box)
    if as_json:
        print_json({"resealed": told.resealed, "current": told.current, "unreadable": told.unreadable})
    else:
        lost = len(told.unreadable)
        print(f"{told.resealed:,} secrets sealed anew, {told.current:,} were already, {lost:,} cannot be opened")
    for line in told.unreadable[:_SHOWN]:
        say(line)
    if len(told.unreadable) > _SHOWN:
        say(f"and {len(told.unreadable) - _SHOWN:,} more cannot be opened; see --json")
    return 1 if told.unreadable else 0


def seal_all(db: Database, box: "Vault", *, batch: int = BATCH) -> Resealed:
    """Each secret that still signs is opened, and sealed anew where the first key did not seal it.

    A transaction a batch, in the order of the keys' ids, so that two at once do not lock each other out; a pass that
    dies is made good by the next. A key that somebody adds meanwhile, sealed with an older vault key, needs another.
    """
    told = Resealed()
    after = ("", "")
    while True:
        with db.transaction() as tx:
            found = endpoint_keys.next_live(tx, after, limit=batch)
            for endpoint, key in found:
                _seal(tx, box, told, endpoint, key)
        if len(found) < batch:
            return told
        after = (found[-1][0], found[-1][1].key_id)


def _seal(tx: Tx, box: "Vault", told: Resealed, endpoint: EndpointId, key: SealedKey) -> None:
    place = endpoint_keys.place(endpoint, key.key_id)
    try:
        secret = box.open(key.sealed, place)
    except HoldfastError as problem:
        told.unreadable.append(str(problem))
        return
    anew = not box.is_current(key.sealed) and endpoint_keys.seal_anew(tx, endpoint, key, box.seal(secret, place))
    told.resealed += anew
    told.current += not anew
