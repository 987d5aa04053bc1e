"""Reminders through a real stack: workers die, the broker forgets; nobody is told twice, unless a person says so."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from cli.demo_reminders import sent_to
from cli.stand_ins.mail import MailServer
from cli.stand_ins.providers import Providers
from cli.stand_ins.running import StandIns
from db import holds, reminder_desk
from db.reminder_desk import Decided
from domain.contacts import Contacts
from domain.identity import HoldId
from domain.terms import For
from tests.helpers import carrier, terms
from tests.system.conftest import System, system

pytestmark = pytest.mark.system

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=2)
"""A reminder is due this long after its hold was placed."""
EACH = 60


@contextmanager
def reminding(outside: StandIns) -> Iterator[System]:
    """A stack that sends to these stand-ins, at any hour."""
    settings: dict[str, Any] = sent_to(outside) | {
        "quiet_hours": "off", "reminder_deadline": timedelta(seconds=2), "reminder_lease": timedelta(seconds=3),
        "reminder_tick": timedelta(milliseconds=250),
    }  # fmt: skip
    with system(**settings) as started:
        yield started


def place(running: System, prefix: str) -> list[str]:
    """So many holds, each with an address and a number, whose reminders are due in a moment."""
    names = [f"{prefix}-{number:03}" for number in range(EACH)]
    with running.database.transaction() as tx:
        for number, name in enumerate(names):
            who = Contacts(
                email=f"{name}@example.com", phone=f"+49151{10_000_000 + number}", timezone="UTC", leads=(HOUR - SOON,)
            )
            holds.place(tx, HoldId(name), terms(For(HOUR), timezone="UTC", contacts=who), carrier())
    return names


def states(running: System, channel: str) -> Counter[str]:
    rows = running.desk.sql("SELECT state FROM reminders WHERE channel = :channel", channel=channel)
    return Counter(row[0] for row in rows)


def mail_ids(outside: StandIns) -> Counter[str]:
    return Counter(str(mail.parsed["Message-ID"]) for mail in outside.mail.mails)


def test_workers_killed_while_they_send_and_a_broker_that_forgets_tell_nobody_twice() -> None:
    with StandIns(MailServer(delay=0.2), Providers(delay=0.2)) as outside, reminding(outside) as running:
        names = place(running, "h")
        for name in names[: EACH // 4]:
            running.desk.confirm(name, 1)
        told = EACH - EACH // 4
        for kill in range(1, 4):
            running.until(
                lambda kill=kill: outside.mail.taken + outside.providers.taken >= kill * 20,  # type: ignore[misc]
                "some more are sent",
            )
            with redis.Redis(unix_socket_path=str(running.stack.valkey.socket)) as client:  # type: ignore[union-attr]
                client.flushall()
            running.stack.kill("worker-reminders")
        running.until(
            lambda: not {"scheduled", "claimed"} & (states(running, "email").keys() | states(running, "sms").keys()),
            "every reminder has an end",
        )
        mails = mail_ids(outside)
        assert set(mails.values()) == {1}, "an email went out twice"
        assert {mail.to for mail in outside.mail.mails} <= {f"{name}@example.com" for name in names[EACH // 4 :]}
        emails = states(running, "email")
        assert (emails["cancelled"], emails["sent"] + emails["unknown"]) == (EACH - told, told)
        assert emails["sent"] <= len(mails) <= told
        assert emails["unknown"] > 0, "no worker died while it sent"
        assert states(running, "sms") == {"sent": told, "cancelled": EACH - told}
        assert len({message.key for message in outside.providers.messages}) == outside.providers.taken == told
        assert len(outside.providers.requests) > told, "no worker died while it asked the provider"
        running.assert_reconciled()

        resend_each(running, outside, mails)


def resend_each(running: System, outside: StandIns, mails: Counter[str]) -> None:
    """Each that nobody knows of is sent once more, by name; where it had come, its mailbox sees the same id again."""
    unknown = [row[0] for row in running.desk.sql("SELECT key FROM reminders WHERE state = 'unknown'")]
    before = sum(mails.values())
    with running.database.transaction() as tx:
        answers = {reminder_desk.resend(tx, key, "operator") for key in unknown + unknown}
    assert Decided.DONE in answers
    running.until(lambda: states(running, "email")["sent"] == EACH - EACH // 4, "all are sent")
    assert sum(mail_ids(outside).values()) == before + len(unknown)
    running.assert_reconciled()
