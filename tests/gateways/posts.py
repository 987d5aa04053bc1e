"""Attempts as the tests here make them."""

from domain.signing import HmacKey
from gateways.exchange import uptime
from gateways.webhook import Post

KEY = HmacKey(bytes(range(32)))
NOW = 1_796_000_000
"""The instant of every attempt here, in Unix seconds."""


def post(url: str, *, endpoint: str = "ep_1", body: bytes = b'{"type":"reservation.expired"}', **more: object) -> Post:
    """An attempt; what is not said is of no importance to the test."""
    fields = {
        "event_id": "reservation-expired:h_1:1", "timestamp": NOW, "keys": [KEY], "not_after": uptime() + 60,
    } | more  # fmt: skip
    return Post(endpoint_id=endpoint, url=url, body=body, **fields)  # type: ignore[arg-type]  # a test's shorthand
