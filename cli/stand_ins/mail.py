"""A real SMTP server (aiosmtpd) whose mailboxes are a list."""

import asyncio
import ssl
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from cli.stand_ins.faults import Fault, Faults, Then


@dataclass(frozen=True, slots=True)
class Mail:
    """One email that was taken."""

    to: str
    raw: bytes

    @property
    def parsed(self) -> EmailMessage:
        """As a mail program reads it."""
        return message_from_bytes(self.raw, policy=default)


class MailServer:
    """What the server does with what it hears."""

    def __init__(
        self, *, delay: float = 0.0, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None
    ) -> None:
        """It answers each message after `delay` seconds; with `tls` it wants STARTTLS, with `login` this one."""
        self.faults = Faults()
        self.recipients = Faults()
        """Those that come at RCPT; `answer` only."""
        self.mails: list[Mail] = []
        self.taken = 0
        """Mails so far; kept where `mails` is not."""
        self.keeps = True
        self.connections = 0
        self._delay = delay
        self._tls = tls
        self._login = login

    def protocol(self, loop: asyncio.AbstractEventLoop) -> SMTP:
        """The server's side of one connection."""
        self.connections += 1
        return SMTP(
            self, hostname="stand-in.example", loop=loop, tls_context=self._tls, require_starttls=self._tls is not None,
            authenticator=self._authenticate if self._login else None, auth_required=self._login is not None,
            auth_require_tls=self._tls is not None, ident="stand-in",
        )  # fmt: skip

    def _authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, given: Any
    ) -> AuthResult:
        user, password = self._login or ("", "")
        right = isinstance(given, LoginPassword) and given == LoginPassword(user.encode(), password.encode())
        return AuthResult(success=right, handled=right)

    async def handle_EHLO(  # noqa: N802 - the library's name and order
        self, _server: SMTP, session: Session, _envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        """Take commands that come together, as most servers do; the library can, and does not say so."""
        session.host_name = hostname
        return [*responses[:-1], "250-PIPELINING", responses[-1]]

    async def handle_RCPT(  # noqa: N802 - as above
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Take the recipient, unless told otherwise."""
        fault = self.recipients.next()
        if fault is not None:
            return _said(fault.status)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        """Take the message, or fail as told."""
        if self._delay:
            await asyncio.sleep(self._delay)
        fault = self.faults.next()
        if fault is None or fault.effect:
            self._take(envelope)
        if fault is None:
            return "250 2.0.0 OK: queued as 4STANDIN"
        return await _failing(server, fault)

    def _take(self, envelope: Envelope) -> None:
        self.taken += 1
        if self.keeps:
            content = envelope.content
            raw = content if isinstance(content, bytes) else str(content).encode()
            self.mails.extend(Mail(to, raw) for to in envelope.rcpt_tos)


async def _failing(server: SMTP, fault: Fault) -> str:
    match fault.then:
        case Then.ANSWER:
            return _said(fault.status)
        case Then.NONSENSE:
            return "what? who is there"
        case Then.DROP:
            if isinstance(server.transport, asyncio.Transport):
                server.transport.abort()
        case Then.SILENCE:
            await asyncio.Event().wait()
    return "250 nobody hears this"


def _said(code: int) -> str:
    """With words as servers say them: they repeat the address, and must end up in no log."""
    return f"{code} {code // 100}.1.1 <anna@example.com> is not welcome here"
