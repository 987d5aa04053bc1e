"""SMS by Telnyx: `POST /v2/messages`, JSON, with an `Idempotency-Key` (letters, digits, `-_:`, as our keys are).

Telnyx replays successful answers for 24 hours, to a request that is the same byte for byte; another body under the key
is 422 while the first is known. Refusals are not replayed.
"""

import json
from datetime import timedelta
from pathlib import Path

from domain.contacts import one_line
from domain.reminding import Channel, Message, Outcome
from gateways.api import Api, outcome
from gateways.messaging import KEY_WINDOW

URL = "https://api.telnyx.com"


class Telnyx:
    """Sends SMS through one Telnyx account."""

    name = "telnyx"
    channel = Channel.SMS
    key_window: timedelta | None = KEY_WINDOW

    def __init__(
        self, api_key: str, sender: str, *, deadline: timedelta, url: str = URL, ca_file: Path | None = None
    ) -> None:
        """`sender` is one of the account's numbers in E.164, or an alphanumeric sender.

        Raises:
            BadInput: one of them cannot be used.
        """
        self._sender = one_line("sms_from", sender)
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._api = Api(url, headers, deadline=deadline, ca_file=ca_file)

    def send(self, message: Message, *, not_after: float) -> Outcome:
        """Send once; see `gateways.api` for what is certain when."""
        body = json.dumps({"from": self._sender, "to": message.to, "text": message.text.text}).encode()
        answer = self._api.post("/v2/messages", {"Idempotency-Key": message.key}, body, not_after=not_after)
        return outcome(
            answer, message_id=lambda said: said["data"]["id"], error_code=lambda said: said["errors"][0]["code"]
        )

    def close(self) -> None:
        """Close idle connections."""
        self._api.close()
