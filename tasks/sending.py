"""From a taken delivery to the gateway's request: open its keys, send, in this process's own connections."""

from functools import cache, lru_cache

from db.deliveries import Taken
from db.endpoint_keys import SealedKey, place
from domain.endpoints import EndpointId
from domain.errors import HoldfastError
from domain.signing import Key
from domain.webhooks import Failed, FailureKind, Result
from gateways.exchange import uptime
from gateways.signing import parse_key
from gateways.vault import Vault
from gateways.webhook import Limits, Post, Sender
from settings import settings


@cache
def vault() -> Vault:
    """What opens endpoint secrets.

    Raises:
        BadInput: HOLDFAST_VAULT_KEYS holds none, or none of that form.
    """
    keys = settings().vault_keys.get_secret_value()
    return Vault([key for key in keys.split(",") if key.strip()])


@cache
def sender() -> Sender:
    """This process's sender."""
    chosen = settings()
    return Sender(Limits(deadline=chosen.webhook_deadline), dangerous=chosen.dangerous_webhook_targets)


def send(taken: Taken, taken_at: float | None = None) -> Result:
    """Make the one request of a taken delivery. A secret that cannot be opened is a fault of ours.

    `taken_at` is read from `uptime` before the delivery is taken; without it, its lease is thought to begin now.
    """
    began = uptime() if taken_at is None else taken_at
    spare = settings().webhook_lease - settings().webhook_deadline
    try:
        keys = [_opened(taken.endpoint_id, key) for key in taken.keys]
    except HoldfastError as problem:
        return Failed(FailureKind.OURS, str(problem), None, sent=False)
    return sender().send(
        Post(
            endpoint_id=taken.endpoint_id,
            url=taken.url,
            event_id=taken.event_id,
            timestamp=int(taken.at.timestamp()),
            body=taken.body,
            keys=keys,
            not_after=began + spare.total_seconds(),
        )
    )


@lru_cache(maxsize=1024)
def _opened(endpoint: EndpointId, key: SealedKey) -> Key:
    """Kept for the next request: opening costs as much as signing."""
    return parse_key(vault().open(key.sealed, place(endpoint, key.key_id)))
