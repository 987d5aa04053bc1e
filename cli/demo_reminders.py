"""The demo's reminders: who is reminded, on a real mail server and a provider that lose answers, and what is shown."""

from datetime import timedelta
from email.message import EmailMessage

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.demo_webhooks import NotAsPromised, Until
from cli.stand_ins.faults import Fault, Then
from cli.stand_ins.providers import API_KEY
from cli.stand_ins.running import StandIns
from db import holds, reminder_desk
from db.engine import Database
from db.reminder_desk import Decided, Reminder, Selection
from domain.contacts import Contacts
from domain.holds import Done, Hold
from domain.identity import HoldId
from domain.instants import in_zone
from domain.paths import Carrier
from domain.quiet_hours import QuietHours
from domain.reminding import Channel
from domain.terms import For, Terms

_HOUR = timedelta(hours=1)
_SOON = timedelta(seconds=2)
"""A reminder is due this long after its hold was placed."""
_ZONES = ("Europe/Berlin", "America/New_York", "America/Los_Angeles", "Asia/Tokyo", "Pacific/Auckland", "Asia/Kolkata")
"""At any instant it is day in one of these, and night in another."""
_HOURS = QuietHours()

ADA, BEN, CLEO, DAN, EVE = (HoldId(f"reminded-{name}") for name in ("ada", "ben", "cleo", "dan", "eve"))


def sent_to(outside: StandIns) -> dict[str, object]:
    """The settings that make workers send to these stand-ins, whatever this machine's own say."""
    return {
        "email_gateway": "smtp", "email_from": "Holdfast <holds@example.com>", "smtp_host": "127.0.0.1",
        "smtp_port": outside.mail_port, "smtp_security": "none", "smtp_user": "", "smtp_password": "",
        "sms_gateway": "telnyx", "sms_from": "+15005550006", "telnyx_api_key": API_KEY, "telnyx_url": outside.url,
        "quiet_hours": "21:00-08:00", "quiet_sms": "downgrade", "quiet_email": "send", "texts": None,
        "provider_ca_file": None,
    }  # fmt: skip


class Reminders:
    """The steps about reminders, for a demo that tells them in its order."""

    def __init__(self, db: Database, outside: StandIns, console: Console) -> None:
        self._db, self._outside, self._console = db, outside, console

    def begin(self) -> None:
        """Place holds whose customers are to be reminded in a moment; one of them is faster and confirms."""
        day, night = self._zone(quiet=False), self._zone(quiet=True)
        self._outside.providers.faults.add(Fault(Then.DROP, effect=True))
        self._place(ADA, email="ada@example.com", timezone=day, locale="en")
        self._place(BEN, email="ben@example.com", phone="+4915112345678", timezone=night)
        self._place(CLEO, email="cleo@example.com", timezone=day)
        self._place(DAN, phone="+4915187654321", timezone=day)
        with self._db.transaction() as tx:
            holds.confirm(tx, CLEO, 1)

    def tell(self, until: Until) -> None:
        """Wait for what came of them, and show it."""
        until(lambda: {self._state(ADA, "email"), self._state(BEN, "email")} == {"sent"}, "the first two emails")
        self._tell_ada()
        self._tell_ben()
        self._expect(CLEO, "email", "cancelled")
        self._console.print("    cleo confirmed before it was due: nothing was sent")
        self._doubt(until)
        self._tell_dan(until)

    def _tell_ada(self) -> None:
        mail = self._mail("ada@example.com")
        body = mail.get_body(("plain",))
        text = "" if body is None else str(body.get_content()).strip()
        self._console.print("    ada got an email by SMTP:")
        self._console.print(Padding(Text(f"{mail['Subject']}\n\n{text}", style="cyan"), (0, 0, 0, 6)))

    def _tell_ben(self) -> None:
        sms = self._expect(BEN, "sms", "suppressed")
        with self._db.transaction() as tx:
            hold = holds.get(tx, BEN)
        assert hold is not None
        local = in_zone(hold.read_at, hold.timezone)
        self._mail("ben@example.com")
        self._console.print(f"    for ben it is {local:%H:%M %Z}: no SMS, one email ({sms.reason})")

    def _doubt(self, until: Until) -> None:
        """The mail server takes the message and hangs up: SMTP knows no key, so a person decides."""
        self._outside.mail.faults.add(Fault(Then.DROP, effect=True))
        self._place(EVE, email="eve@example.com", timezone=self._zone(quiet=False))
        until(lambda: self._state(EVE, "email") == "unknown", "the reminder that nobody knows of")
        found = self._expect(EVE, "email", "unknown")
        self._console.print("    eve's mail server hung up after the message: unknown, not sent again")
        self._mail("eve@example.com")
        with self._db.transaction() as tx:
            if reminder_desk.leave(tx, found.key, "demo") is not Decided.DONE:
                raise NotAsPromised(f"{found.key} could not be settled")
        self._console.print("      its mailbox shows it came; settled by hand, by `demo`")

    def _tell_dan(self, until: Until) -> None:
        """The provider loses its answer, and knows the key when it is asked again."""
        until(lambda: self._state(DAN, "sms") == "sent", "the SMS that was asked for again")
        found = self._expect(DAN, "sms", "sent")
        came = len(self._outside.providers.messages)
        if came != 1:
            raise NotAsPromised(f"the provider took {came} SMS where one was due")
        self._console.print(f"    dan's provider lost its answer; asked {found.attempts} times with one key: one SMS")

    def _place(
        self, hold: HoldId, *, timezone: str, email: str | None = None, phone: str | None = None,
        locale: str | None = None,
    ) -> Hold:  # fmt: skip
        contacts = Contacts(email=email, phone=phone, locale=locale, leads=(_HOUR - _SOON,), timezone=timezone)
        terms = Terms(
            resource="spot-7", customer=hold.partition("-")[2], lasting=For(_HOUR), timezone=timezone, contacts=contacts
        )
        with self._db.transaction() as tx:
            answer = holds.place(
                tx, hold, terms, Carrier(message_id=f"demo:{hold}", path=None, run=None, worker="demo")
            )
        if not isinstance(answer, Done):
            raise NotAsPromised(f"{hold} could not be placed: {answer.reason}")
        return answer.hold

    def _zone(self, *, quiet: bool) -> str:
        """A zone where it is night, or day, for as long as the demo takes."""
        with self._db.transaction() as tx:
            now = holds.clock(tx)
        for zone in _ZONES:
            at = {_HOURS.until(now + wait, zone) is not None for wait in (timedelta(0), timedelta(minutes=2))}
            if at == {quiet}:
                return zone
        raise NotAsPromised("it is neither day nor night anywhere")

    def _one(self, hold: HoldId, channel: str) -> Reminder:
        with self._db.transaction() as tx:
            found = reminder_desk.listing(tx, Selection(hold=hold, channel=channel), limit=2)
        if len(found) != 1:
            raise NotAsPromised(f"{hold} has {len(found)} reminders by {channel}")
        return found[0]

    def _state(self, hold: HoldId, channel: str) -> str:
        return self._one(hold, Channel(channel).value).state

    def _expect(self, hold: HoldId, channel: str, state: str) -> Reminder:
        found = self._one(hold, channel)
        if found.state != state:
            raise NotAsPromised(f"{found.key} is {found.state}, not {state}: {found.reason}")
        return found

    def _mail(self, address: str) -> EmailMessage:
        """The one email that came for this address."""
        mails = [mail.parsed for mail in self._outside.mail.mails if mail.to == address]
        if len(mails) != 1:
            raise NotAsPromised(f"{len(mails)} emails came where one was due")
        return mails[0]
