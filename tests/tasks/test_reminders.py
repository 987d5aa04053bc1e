"""What a drain does with due reminders: real gateways, against stand-ins that speak the providers' formats."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import BoundedSemaphore, Event, Thread
from typing import NoReturn

import pytest

from cli.stand_ins.faults import Fault, Then
from cli.stand_ins.providers import ACCOUNT, API_KEY, TOKEN
from cli.stand_ins.running import StandIns
from db import reconcile, reminder_desk
from db.engine import Database
from domain.due_reminders import DueReminder, HoldNow
from domain.errors import BadInput
from domain.reminding import Accepted, Channel, Message, Outcome
from gateways.exchange import uptime
from gateways.messaging import Gateway
from gateways.resend import Resend
from gateways.smtp import Security, Server, Smtp
from gateways.telnyx import Telnyx
from gateways.texts import TemplateFault
from gateways.twilio import Account, Twilio
from settings import ROOT
from tasks import reaching, reminders
from tasks.reminding import Drain, Drained
from tests.reminded import ALWAYS, BOTH, EMAIL, LEASE, SMS, Reminded, keys

SOON = timedelta(seconds=2)


@pytest.fixture
def desk(database: Database) -> Reminded:
    return Reminded(database)


class Outside(StandIns):
    """The stand-ins, and gateways that reach them."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[Gateway] = []

    def _kept(self, gateway: Gateway) -> Gateway:
        self._made.append(gateway)
        return gateway

    def close(self) -> None:
        for gateway in self._made:
            gateway.close()

    def smtp(self) -> Gateway:
        server = Server(host="127.0.0.1", port=self.mail_port, security=Security.NONE, user="", password="")
        return self._kept(Smtp(server, "Holds <holds@example.com>", deadline=SOON))

    def resend(self) -> Gateway:
        return self._kept(Resend(API_KEY, "holds@example.com", deadline=SOON, url=self.url))

    def twilio(self) -> Gateway:
        account = Account(sid=ACCOUNT, secret=TOKEN, key_sid=None)
        return self._kept(Twilio(account, "+15005550006", deadline=SOON, url=self.url))

    def telnyx(self) -> Gateway:
        return self._kept(Telnyx(API_KEY, "+15005550006", deadline=SOON, url=self.url))


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as at:
        yield at
        at.close()


def drain(desk: Reminded, *gateways: Gateway, **options: object) -> Drain:
    made = {gateway.channel: gateway for gateway in gateways}
    given = {"db": desk.database, "gateways": made, "compose": reaching.compose, "rules": ALWAYS, "worker": "w",
             "lease": LEASE, "deadline": SOON} | options  # fmt: skip
    return Drain(**given)  # type: ignore[arg-type]


def due(desk: Reminded, *names: str) -> None:
    for name in names:
        desk.reminded(name, who=BOTH)
        desk.make_due(name)


def test_each_due_reminder_becomes_one_message_with_its_text(desk: Reminded, outside: Outside) -> None:
    due(desk, "h", "g")
    run = drain(desk, outside.smtp(), outside.twilio())
    assert (run(EMAIL), run(SMS), run(EMAIL), run(SMS)) == (Drained(2), Drained(2), Drained(), Drained())
    assert sorted(str(mail.parsed["To"]) for mail in outside.mail.mails) == ["ada@example.com"] * 2
    assert sorted(message.fields["To"] for message in outside.providers.messages) == ["+4915112345678"] * 2
    assert desk.states("h") + desk.states("g") == ["sent"] * 4
    with desk.database.transaction() as tx:
        assert reconcile.violations(tx) == []


def test_the_job_run_by_many_at_once_makes_one_message_each(desk: Reminded, outside: Outside) -> None:
    names = [f"h{n}" for n in range(12)]
    due(desk, *names)
    run = drain(desk, outside.smtp())
    threads = [Thread(target=run, args=(EMAIL,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outside.mail.mails) == 12
    assert desk.count("reminders", "state = 'sent'") == 12


def test_silence_after_the_message_is_unknown_and_one_resend_makes_one_more(desk: Reminded, outside: Outside) -> None:
    due(desk, "h")
    outside.providers.faults.add(Fault(Then.DROP, effect=True))
    run = drain(desk, outside.twilio())
    assert run(SMS) == Drained(1)
    assert desk.states() == ["scheduled", "unknown"]
    assert run(SMS) == Drained()
    with desk.database.transaction() as tx:
        reminder_desk.resend(tx, keys(desk.read(), [SMS])[0], "ada")
    assert (run(SMS), run(SMS)) == (Drained(1), Drained())
    assert len(outside.providers.messages) == 2
    assert desk.states() == ["scheduled", "sent"]


@pytest.mark.parametrize("make", [Outside.resend, Outside.telnyx])
def test_where_the_provider_takes_a_key_a_dropped_answer_costs_the_customer_no_second_message(
    desk: Reminded, outside: Outside, make: Callable[[Outside], Gateway]
) -> None:
    gateway = make(outside)
    due(desk, "h")
    outside.providers.faults.add(Fault(Then.DROP, effect=True))
    run = drain(desk, gateway)
    assert run(gateway.channel) == Drained(1)
    desk.make_due()
    assert run(gateway.channel) == Drained(1)
    assert len(outside.providers.messages) == 1
    assert desk.count("reminders", "state = 'sent' AND attempts = 2") == 1


@pytest.mark.parametrize(
    ("fault", "state", "outcome"),
    [
        (Fault(Then.ANSWER, status=429, retry_after=3), "scheduled", "deferred"),
        (Fault(Then.ANSWER, status=401), "scheduled", "deferred"),
        (Fault(Then.ANSWER, status=400), "failed", "rejected"),
        (Fault(Then.ANSWER, status=500), "unknown", "unknown"),
        (Fault(Then.NONSENSE), "unknown", "unknown"),
        (Fault(Then.SILENCE), "unknown", "unknown"),
    ],
    ids=["429", "401", "400", "500", "nonsense", "silence"],
)
def test_whatever_a_provider_answers_the_customer_gets_no_second_message(
    desk: Reminded, outside: Outside, fault: Fault, state: str, outcome: str
) -> None:
    due(desk, "h")
    outside.providers.faults.add(fault)
    run = drain(desk, outside.twilio())
    run(SMS)
    assert (desk.states()[1], run(SMS)) == (state, Drained())
    assert desk.attempts() == [(1, "twilio", outcome)]
    assert len(outside.providers.messages) == 0


def test_a_text_that_cannot_be_made_is_a_dead_letter_and_holds_up_nobody(desk: Reminded, outside: Outside) -> None:
    due(desk, "bad", "good")

    def compose(reminder: DueReminder, hold: HoldNow, to: str) -> Message:
        if reminder.hold_id == "bad":
            raise TemplateFault("email.en.txt.j2", 3, "'x' is undefined")
        return reaching.compose(reminder, hold, to)

    assert drain(desk, outside.smtp(), compose=compose)(EMAIL) == Drained(1)
    assert [row.error for row in desk.sql("SELECT error FROM dead_letters")] == [
        "email.en.txt.j2, line 3: 'x' is undefined"
    ]
    assert desk.states("bad")[0] == "failed"
    assert desk.states("good")[0] == "sent"


class Naming:
    """A provider that accepts, and names the message in a way that no table takes."""

    name, channel, key_window = "naming", EMAIL, None

    def send(self, message: Message, *, not_after: float) -> Outcome:
        return Accepted("id\x00")

    def close(self) -> None:
        """Nothing is open."""


def test_what_was_accepted_is_sent_also_if_the_providers_name_for_it_cannot_be_written(desk: Reminded) -> None:
    due(desk, "h")
    assert drain(desk, Naming())(EMAIL) == Drained(1)
    assert desk.rows("state", "provider_id")[0] == ("sent", None)
    assert desk.attempts() == [(1, "naming", "accepted")]


def test_a_drain_gives_its_thread_back_when_its_time_is_over(desk: Reminded, outside: Outside) -> None:
    due(desk, "h", "g")
    assert drain(desk, outside.smtp(), budget=timedelta(0))(EMAIL) == Drained(0, again=True)
    assert outside.mail.mails == []


def test_a_worker_that_stood_still_since_its_take_sends_nothing(desk: Reminded, outside: Outside) -> None:
    desk.reminded()
    desk.make_due()
    long_ago = drain(desk, outside.smtp(), clock=lambda: uptime() - LEASE.total_seconds())
    assert long_ago(EMAIL) == Drained(1)
    assert outside.mail.mails == []
    told = [tuple(row) for row in desk.sql("SELECT outcome, reason FROM reminder_attempts")]
    assert told == [("deferred", "nothing was sent: this worker stood still since it took the reminder")]
    assert desk.states() == ["scheduled"]


class Hanging:
    """A provider that hangs until it is let go."""

    name, channel, key_window = "hanging", SMS, None

    def __init__(self) -> None:
        self.called, self.let_go = Event(), Event()

    def send(self, message: Message, *, not_after: float) -> Outcome:
        self.called.set()
        self.let_go.wait(20)
        return Accepted("x")

    def close(self) -> None:
        """Nothing is open."""


def test_a_channel_has_its_threads_only_so_the_other_one_goes_on(
    desk: Reminded, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(desk, "h", "g")
    hanging = Hanging()
    monkeypatch.setitem(reminders.ROOM, Channel.SMS, BoundedSemaphore(1))
    monkeypatch.setattr(reminders, "database", lambda: desk.database)
    monkeypatch.setattr(reminders, "worker_name", lambda: "w")
    monkeypatch.setattr(reaching, "ready", lambda: {SMS: hanging, EMAIL: outside.smtp()})
    monkeypatch.setattr("settings.Settings.quiet_rules", ALWAYS)
    stuck = Thread(target=reminders.drain.run, args=("sms",))
    stuck.start()
    assert hanging.called.wait(10)
    assert reminders.drain.run("sms") == 0
    assert reminders.drain.run("email") == 2
    assert desk.count("reminders", "channel = 'sms' AND state = 'claimed'") == 1
    hanging.let_go.set()
    stuck.join(10)
    assert desk.count("reminders", "state = 'sent'") == 4


def test_a_worker_that_cannot_make_a_gateway_leaves_reminders_where_they_are(
    desk: Reminded, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(desk, "h")
    before = desk.everything()

    def broken() -> NoReturn:
        raise BadInput("url", "is no https")

    monkeypatch.setattr(reaching, "gateways", broken)
    monkeypatch.setattr(reminders, "database", lambda: desk.database)
    assert reminders.drain.run("email") == 0
    assert desk.everything() == before


def test_a_message_that_names_no_channel_is_refused(desk: Reminded) -> None:
    assert reminders.drain.run("pigeon") == 0


def test_a_worker_killed_after_the_provider_accepted_leaves_it_unknown_and_a_resend_makes_one_more(
    desk: Reminded, outside: Outside
) -> None:
    due(desk, "h")
    url = desk.database.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.tasks.reminder", url, outside.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "accepted"
        process.kill()
    assert desk.states() == ["scheduled", "claimed"]
    run = drain(desk, outside.twilio())
    assert run(SMS) == Drained()
    desk.end_leases()
    assert run(SMS) == Drained()
    assert desk.states() == ["scheduled", "unknown"]
    assert desk.attempts() == [(1, "twilio", None)]
    assert len(outside.providers.messages) == 1
    with desk.database.transaction() as tx:
        reminder_desk.resend(tx, keys(desk.read(), [SMS])[0], "ada")
    assert (run(SMS), run(SMS)) == (Drained(1), Drained())
    assert len(outside.providers.messages) == 2
    assert desk.states() == ["scheduled", "sent"]
