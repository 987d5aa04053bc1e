"""Email by SMTP, with STARTTLS or TLS, login, and connections that are kept for the next message.

The stages, and what is certain when one of them fails:

- Connect, greeting, EHLO, STARTTLS, login, MAIL: nothing of the message was shown. `Deferred`, also for 5xx, since what
  is refused there is our account or our sender, which somebody will mend.
- RCPT, DATA: 4xx `Deferred`, 5xx `Rejected`. A connection that breaks: `Deferred`.
- The text, up to its final dot: a server that has not seen the dot has accepted nothing (RFC 5321, 4.1.1.4).
  `Deferred`.
- From the dot's first byte on: 2xx `Accepted`, 4xx `Deferred`, 5xx `Rejected`; anything else, and silence: `Unknown`.
- MAIL on a connection that rested, and finds it closed (or 421): the server let go of it, which is its right. The same
  message goes over another one at once; this is no attempt of its own, since nothing was shown.

SMTP knows no key. The `Message-ID` follows from the effect key, so that a second copy, which only an operator can
order, is shown by many mail programs as the one message it is.
"""

import re
import smtplib
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from time import monotonic

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from domain.contacts import Mailbox, check_mailbox, credential, one_line
from domain.errors import BadInput
from domain.reminding import Accepted, Channel, Deferred, Message, Outcome, Rejected, Unknown
from gateways.exchange import UNDER_WAY, Stage, tls_context, uptime
from gateways.mail import composed, message_id
from gateways.messaging import STOOD_STILL, under_way, why
from gateways.pinned import connected
from gateways.resolver import NameUnknown, Resolver, ResolverSilent

_BUDGET = 64 * 1024
"""Bytes of replies in one exchange, handshake included."""
_RESTS = 30.0
"""Seconds a connection may rest: servers close after a minute or more; what closed in between costs a trip."""
_LIVES = 300.0
"""Seconds. Then the name is looked up anew, so that mail follows it."""
_KEPT = 32
_READY, _GO_ON, _CLOSING = 220, 354, 421
_ENHANCED = re.compile(r"[245]\.\d{1,3}\.\d{1,3}", re.ASCII)
_TROUBLE = (OSError, HTTPException, ValueError, NameUnknown, ResolverSilent)


class Security(StrEnum):
    """How a connection is kept from being read."""

    STARTTLS = "starttls"
    """In the clear, then TLS before anything is said; never without it."""
    TLS = "tls"
    """TLS from the first byte, port 465."""
    NONE = "none"
    """For a relay on this machine or this network; no password is sent beyond this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The mail server that takes our messages.

    Raises:
        BadInput: a password would be readable on its way, or cannot be sent.
    """

    host: str
    port: int = 587
    security: Security = Security.STARTTLS
    user: str = ""
    """Empty: there is no login."""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.user and self.security is Security.NONE and not _is_loopback(self.host):
            raise BadInput("smtp_security", "must be starttls or tls where there is a login")
        credential("smtp_user", self.user)
        credential("smtp_password", self.password)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Refused(Exception):
    """The server said no before it saw anything of the message."""

    def __init__(self, stage: str, code: int, said: bytes) -> None:
        super().__init__(stage, code, said)
        self.stage, self.code, self.said = stage, code, said


class _Connection(smtplib.SMTP):
    """A connection whose every wait ends at the deadline of the exchange under way."""

    def __init__(self, server: Server, resolver: Resolver, tls: ssl.SSLContext) -> None:
        """Connect, secure, sign in.

        Raises:
            _Refused: the server said no.
            OSError, HTTPException, ValueError, NameUnknown, ResolverSilent: it said nothing of use.
        """
        name = socket.gethostname()
        super().__init__(local_hostname=name if "." in name else "[127.0.0.1]")
        self._host = server.host  # what STARTTLS verifies the certificate against
        self.opened = self.used = monotonic()
        try:
            self._open(server, resolver, tls)
        except BaseException:
            self.close()
            raise

    def _open(self, server: Server, resolver: Resolver, tls: ssl.SSLContext) -> None:
        exchange = UNDER_WAY.get()
        exchange.stage = Stage.LOOKUP
        self.sock = connected(resolver.addresses(server.host, server.port, exchange.left()), exchange)
        if server.security is Security.TLS:
            exchange.stage = Stage.TLS
            self.sock = tls.wrap_socket(self.sock, server_hostname=server.host)
        _expect(_READY, "the greeting", *self.getreply())
        self._greet()
        if server.security is Security.STARTTLS:
            self._secure(tls)
        if server.user:
            self._sign_in(server)

    def _greet(self) -> None:
        _expect(250, "EHLO", *self.ehlo())

    def _secure(self, tls: ssl.SSLContext) -> None:
        if not self.has_extn("starttls"):
            raise _Refused("STARTTLS, which it does not offer", 0, b"")
        _expect(_READY, "STARTTLS", *self.starttls(context=tls))
        self._greet()

    def _sign_in(self, server: Server) -> None:
        try:
            self.login(server.user, server.password)
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error
            raise _Refused("the login", error.smtp_code, said if isinstance(said, bytes) else b"") from None
        except smtplib.SMTPNotSupportedError:
            raise _Refused("a login, which it does not offer", 0, b"") from None

    def may_rest(self) -> bool:
        """Whether this connection may carry one more message."""
        now = monotonic()
        return now - self.opened < _LIVES and now - self.used < _RESTS

    def let_go(self) -> None:
        """Take leave without waiting for an answer."""
        try:
            self.send(b"QUIT\r\n")
        except _TROUBLE:
            pass
        finally:
            self.close()


def _expect(code: int, stage: str, came: int, said: bytes) -> None:
    if came != code:
        raise _Refused(stage, came, said)


class Smtp:
    """Sends email through one mail server."""

    name = "smtp"
    channel = Channel.EMAIL
    key_window: timedelta | None = None

    def __init__(self, server: Server, sender: str, *, deadline: timedelta, ca_file: Path | None = None) -> None:
        """`sender` is like `Holds <holds@example.com>`; `ca_file` replaces the public certificate roots.

        Raises:
            BadInput: the sender cannot be used.
        """
        self._server = server
        self._sender = check_mailbox(sender)
        self._deadline = deadline
        self._resolver = Resolver(anywhere=True)
        self._tls = tls_context(str(ca_file or DEFAULT_CA_BUNDLE_PATH))
        self._resting: deque[_Connection] = deque(maxlen=_KEPT)

    def send(self, message: Message, *, not_after: float) -> Outcome:
        """Send once, over a connection that rests or a new one; see the head of this module."""
        try:
            mail = composed(message, self._sender)
        except (BadInput, ValueError, UnicodeError) as error:
            return Rejected(f"no email can be made of it: {type(error).__name__}")
        with under_way(self._deadline, _BUDGET):
            if uptime() > not_after:
                return Deferred(f"nothing was sent: {STOOD_STILL}")
            while (rested := self._rested()) is not None:
                if (outcome := self._hand_over(rested, message, mail, rested=True)) is not None:
                    return outcome
            return self._over_a_new_one(message, mail)

    def close(self) -> None:
        """Take leave of the server."""
        with under_way(timedelta(seconds=1), _BUDGET):
            while self._resting:
                self._resting.pop().let_go()

    def _rested(self) -> _Connection | None:
        """The connection used last, if it may carry another message; those that may not are let go."""
        while True:
            try:
                connection = self._resting.pop()
            except IndexError:
                return None
            if connection.may_rest():
                return connection
            connection.let_go()

    def _over_a_new_one(self, message: Message, mail: bytes) -> Outcome:
        try:
            connection = _Connection(self._server, self._resolver, self._tls)
        except _Refused as no:
            return Deferred(_no(no.stage, no.code, no.said))
        except _TROUBLE as error:
            return Deferred(f"nothing was sent: {why(error, UNDER_WAY.get().stage)}")
        outcome = self._hand_over(connection, message, mail, rested=False)
        return outcome or Deferred("the connection was closed before anything was sent")

    def _hand_over(self, connection: _Connection, message: Message, mail: bytes, *, rested: bool) -> Outcome | None:
        """One message over this connection; None where it was gone before anything was shown."""
        try:
            refused = self._announce(connection, message.to)
        except _Refused as gone:
            connection.let_go()
            return None if rested and gone.code == _CLOSING else Deferred(_no(gone.stage, gone.code, gone.said))
        except _TROUBLE as error:
            connection.close()
            silent = rested and not isinstance(error.__context__, TimeoutError)
            return None if silent else Deferred(f"not accepted: {why(error, 'before the message')}")
        outcome = refused or _deliver(connection, message.key, mail, self._sender)
        if isinstance(outcome, Accepted):
            connection.used = monotonic()
            self._resting.append(connection)
        else:
            connection.let_go()
        return outcome

    def _announce(self, connection: _Connection, to: str) -> Deferred | Rejected | None:
        """MAIL, then RCPT and DATA. None: go on.

        Raises:
            _Refused: at MAIL, where nothing of this message was shown yet.
            OSError, HTTPException, ValueError: the connection broke at MAIL.
        """
        commands = (f"MAIL FROM:<{self._sender.address}>", f"RCPT TO:<{one_line('to', to)}>", "DATA")
        replies = _replies(connection, commands)
        _expect(250, "the sender", *next(replies))
        try:
            code, said = next(replies)
            if code not in {250, 251}:
                return _refusal("the recipient", code, said)
            code, said = next(replies)
        except _TROUBLE as error:
            return Deferred(f"not accepted: {why(error, 'before the message')}")
        return None if code == _GO_ON else _refusal("the message", code, said)


def _replies(connection: _Connection, commands: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """What each is answered: all are sent at once where the server offers that (RFC 2920), else one after the other.

    A refusal in between leaves the connection in no known state, so it is closed: a server that waits for the text
    sees no dot, and has accepted nothing.
    """
    if connection.has_extn("pipelining"):
        connection.send("".join(f"{command}\r\n" for command in commands))
        for _ in commands:
            yield connection.getreply()
    else:
        for command in commands:
            yield connection.docmd(command)


def _deliver(connection: _Connection, key: str, mail: bytes, sender: Mailbox) -> Outcome:
    """The text, and then the dot from which on the server may have it."""
    try:
        connection.send(mail)
    except _TROUBLE as error:
        return Deferred(f"not accepted: {why(error, 'before the end of the message')}")
    try:
        connection.send(b".\r\n")
        code, said = connection.getreply()
    except _TROUBLE as error:
        return Unknown(f"no answer: {why(error, 'after the end of the message')}")
    if 200 <= code < 300:  # noqa: PLR2004 - the class of replies
        return Accepted(message_id(key, sender))
    if 400 <= code < 600:  # noqa: PLR2004 - as above
        return _refusal("the message", code, said)
    return Unknown("the answer to the message is no SMTP")


def _refusal(what: str, code: int, said: bytes) -> Deferred | Rejected:
    """Only a 5xx is for ever."""
    return (Rejected if 500 <= code < 600 else Deferred)(_no(what, code, said))  # noqa: PLR2004 - the class of replies


def _no(what: str, code: int, said: bytes) -> str:
    """What was refused and by which codes, and none of the server's words: they repeat the customer's address."""
    enhanced = _ENHANCED.match(said.decode("latin-1"))
    codes = " ".join(part for part in (str(code) if code > 0 else "", enhanced.group() if enhanced else "") if part)
    return f"the server refuses {what}" + (f": {codes}" if codes else "")
