"""Email by Resend: `POST /emails`, JSON, with an `Idempotency-Key` that it knows again for 24 hours.

A repeat with the same key and body gives the first answer and sends nothing. Another body is 409
`invalid_idempotent_request`, a repeat while the first is under way 409 `concurrent_idempotent_requests`: in both cases
something under this key may have been accepted, so they are unknown.
"""

import json
from datetime import timedelta
from pathlib import Path

from domain.contacts import check_mailbox
from domain.reminding import Channel, Message, Outcome
from gateways.api import Api, outcome
from gateways.messaging import KEY_WINDOW

URL = "https://api.resend.com"


class Resend:
    """Sends email through one Resend account."""

    name = "resend"
    channel = Channel.EMAIL
    key_window: timedelta | None = KEY_WINDOW

    def __init__(
        self, api_key: str, sender: str, *, deadline: timedelta, url: str = URL, ca_file: Path | None = None
    ) -> None:
        """`sender` is like `Holds <holds@example.com>`, of a domain that the account has verified.

        Raises:
            BadInput: one of them cannot be used.
        """
        self._sender = str(check_mailbox(sender))
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._api = Api(url, headers, deadline=deadline, ca_file=ca_file)

    def send(self, message: Message, *, not_after: float) -> Outcome:
        """Send once; see `gateways.api` for what is certain when."""
        text = message.text
        fields = {
            "from": self._sender, "to": [message.to], "subject": text.subject or "", "text": text.text,
            "headers": {"Auto-Submitted": "auto-generated"},
        }  # fmt: skip
        body = json.dumps(fields | ({"html": text.html} if text.html else {})).encode()
        answer = self._api.post("/emails", {"Idempotency-Key": message.key}, body, not_after=not_after)
        return outcome(answer, message_id=lambda said: said["id"], error_code=lambda said: said["name"])

    def close(self) -> None:
        """Close idle connections."""
        self._api.close()
