"""SMS by Twilio: `POST /2010-04-01/Accounts/{sid}/Messages.json`, a form, Basic authentication, and no key.

A repeat is a second SMS, so what is unknown stays so until an operator decides.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

from domain.contacts import credential, one_line
from domain.errors import BadInput
from domain.reminding import Channel, Message, Outcome
from gateways.api import Api, outcome

URL = "https://api.twilio.com"
_SID = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whose messages they are, and who signs in.

    Raises:
        BadInput: a SID is none, or the secret cannot be one.
    """

    sid: str
    """The account's, `AC…`; it stands in the URL."""
    secret: str = field(repr=False)
    """The account's token, or the API key's secret."""
    key_sid: str | None = None
    """An API key's, `SK…`; without one the account signs in itself."""

    def __post_init__(self) -> None:
        for name, sid in (("twilio_account", self.sid), ("twilio_key", self.key_sid or self.sid)):
            if _SID.fullmatch(sid) is None:
                raise BadInput(name, "is no SID; copy it from Twilio's console")
        credential("twilio_secret", self.secret)

    @property
    def authorization(self) -> str:
        """The header's value."""
        return "Basic " + b64encode(f"{self.key_sid or self.sid}:{self.secret}".encode()).decode()


class Twilio:
    """Sends SMS through one Twilio account."""

    name = "twilio"
    channel = Channel.SMS
    key_window: timedelta | None = None

    def __init__(
        self, account: Account, sender: str, *, deadline: timedelta, url: str = URL, ca_file: Path | None = None
    ) -> None:
        """`sender` is a number in E.164, an alphanumeric sender, or a messaging service's SID (`MG…`).

        Raises:
            BadInput: one of them cannot be used.
        """
        one_line("sms_from", sender)
        self._sender = {"MessagingServiceSid" if sender.startswith("MG") else "From": sender}
        self._path = f"/2010-04-01/Accounts/{account.sid}/Messages.json"
        headers = {"Authorization": account.authorization, "Content-Type": "application/x-www-form-urlencoded"}
        self._api = Api(url, headers, deadline=deadline, ca_file=ca_file)

    def send(self, message: Message, *, not_after: float) -> Outcome:
        """Send once; see `gateways.api` for what is certain when."""
        body = urlencode(self._sender | {"To": message.to, "Body": message.text.text}).encode()
        answer = self._api.post(self._path, {}, body, not_after=not_after)
        return outcome(answer, message_id=lambda said: said["sid"], error_code=lambda said: said["code"])

    def close(self) -> None:
        """Close idle connections."""
        self._api.close()
