"""An endpoint's keys: any number live at once, each sealed, each with its end. All live keys sign."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import select, text

from db import endpoints
from db.engine import Tx
from db.tables import endpoint_keys
from domain.endpoints import LONGEST_GRACE, EndpointId
from domain.errors import BadInput

LIVE = "(k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()))"
"""SQL: the key `k` still signs."""

_ADD = text("""
INSERT INTO endpoint_keys (endpoint_id, key_id, scheme, sealed, created_at)
VALUES (:endpoint, :key_id, :scheme, :sealed, clock_timestamp())
ON CONFLICT DO NOTHING
""")

_OTHERS_END_SOON = text("""
UPDATE endpoint_keys SET expires_at = least(expires_at, clock_timestamp() + CAST(:grace AS interval))
WHERE endpoint_id = :endpoint AND key_id <> :key_id AND scheme = :scheme AND revoked_at IS NULL
""")

_REVOKE = text("""
UPDATE endpoint_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE endpoint_id = :endpoint AND key_id = :key_id
""")

_NEXT_LIVE = text(f"""
SELECT endpoint_id, key_id, scheme, sealed FROM endpoint_keys AS k
WHERE {LIVE} AND (endpoint_id, key_id) > (:endpoint, :key_id) ORDER BY endpoint_id, key_id LIMIT :limit
""")  # noqa: S608 - a constant of this file

_SEAL_ANEW_IF_UNCHANGED = text("""
UPDATE endpoint_keys SET sealed = :anew WHERE endpoint_id = :endpoint AND key_id = :key_id AND sealed = :sealed
""")

_PRUNE = text(f"""
DELETE FROM endpoint_keys AS k
WHERE NOT {LIVE} AND coalesce(k.revoked_at, k.expires_at) < now() - CAST(:kept AS interval)
""")  # noqa: S608 - a constant of this file


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A key whose secret only its holder of the deployment's key can read."""

    key_id: str
    scheme: str
    """`v1` or `v1a`."""
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyLife:
    """When a key was made and when it ends; nothing of its secret."""

    key_id: str
    scheme: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def place(endpoint: EndpointId, key_id: str) -> str:
    """What a sealed secret is bound to: it opens nowhere else."""
    return f"{endpoint}/{key_id}"


def rotate(tx: Tx, endpoint: EndpointId, key: SealedKey, *, grace: timedelta) -> None:
    """Let a new key sign, and its predecessors of the same scheme for `grace` longer; the first key has none.

    Two at once: both keys sign, and the later one ends the other after its grace. Dies before commit: nothing.

    Raises:
        BadInput: `grace` is not from 0 to 7 days, the endpoint has this key, is deleted or is not there.
    """
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise BadInput("grace", "must lie between 0 and 7 days")
    endpoints.locked(tx, endpoint)
    values = {"endpoint": endpoint, "key_id": key.key_id, "scheme": key.scheme, "sealed": key.sealed, "grace": grace}
    if tx.execute(_ADD, values).rowcount == 0:
        raise BadInput("secret", "is a key of this endpoint already; make a new one")
    tx.execute(_OTHERS_END_SOON, values)


def revoke(tx: Tx, endpoint: EndpointId, key_id: str) -> None:
    """End a key at once. A request already signed may still go out.

    Raises:
        BadInput: the endpoint has no such key, or no other key signs for good: soon nothing could be signed; or it is
            deleted or not there.
    """
    endpoints.locked(tx, endpoint)
    if key_id not in {life.key_id for life in lives(tx, endpoint)}:
        raise BadInput("key", f"{key_id[:40]!r} is no key of this endpoint; see `holdfast endpoints show`")
    lasting = {life.key_id for life in lives(tx, endpoint) if life.expires_at is None and life.revoked_at is None}
    if not lasting - {key_id}:
        raise BadInput("key", f"{key_id!r} is the only key that signs for good; rotate first, then revoke it")
    tx.execute(_REVOKE, {"endpoint": endpoint, "key_id": key_id})


def live(tx: Tx, endpoint: EndpointId) -> list[SealedKey]:
    """The keys that sign now, newest first."""
    query = text(f"""SELECT key_id, scheme, sealed FROM endpoint_keys AS k
                     WHERE endpoint_id = :id AND {LIVE} ORDER BY created_at DESC, key_id""")  # noqa: S608 - a constant
    return [SealedKey(*row) for row in tx.execute(query, {"id": endpoint})]


def lives(tx: Tx, endpoint: EndpointId) -> list[KeyLife]:
    """Every key that is not pruned yet, newest first."""
    k = endpoint_keys.c
    query = select(k.key_id, k.scheme, k.created_at, k.expires_at, k.revoked_at).where(k.endpoint_id == endpoint)
    return [KeyLife(*row) for row in tx.execute(query.order_by(k.created_at.desc(), k.key_id))]


def next_live(tx: Tx, after: tuple[str, str], *, limit: int) -> list[tuple[EndpointId, SealedKey]]:
    """The next keys that sign, of all endpoints, by endpoint and key id; `("", "")` is before the first."""
    rows = tx.execute(_NEXT_LIVE, {"endpoint": after[0], "key_id": after[1], "limit": limit})
    return [(EndpointId(row.endpoint_id), SealedKey(row.key_id, row.scheme, row.sealed)) for row in rows]


def seal_anew(tx: Tx, endpoint: EndpointId, key: SealedKey, anew: bytes) -> bool:
    """Store the same secret under another seal; False where somebody else has done so, or the key is gone.

    Two at once: the old seal in the `WHERE` lets one through. Dies before commit: the old seal still opens.
    """
    asked = {"endpoint": endpoint, "key_id": key.key_id, "sealed": key.sealed, "anew": anew}
    return tx.execute(_SEAL_ANEW_IF_UNCHANGED, asked).rowcount == 1


def prune(tx: Tx, *, kept: timedelta = timedelta(0)) -> int:
    """Delete keys that ended longer ago than `kept`; how many."""
    return tx.execute(_PRUNE, {"kept": kept}).rowcount
