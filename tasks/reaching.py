"""This process's ways to customers: the gateways of its settings, and the texts they send."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from domain.due_reminders import DueReminder, HoldNow
from domain.errors import BadInput
from domain.reminding import Channel, Message
from gateways.messaging import Gateway
from gateways.resend import Resend
from gateways.smtp import Security, Server, Smtp
from gateways.telnyx import Telnyx
from gateways.texts import Facts, Texts
from gateways.twilio import Account, Twilio
from settings import Settings, settings, variable


def gateways_of(chosen: Settings) -> dict[Channel, Gateway]:
    """The gateway of each channel that has one.

    Raises:
        BadInput: one of them cannot be made of these settings; it names the variable.
    """
    made = {Channel.EMAIL: _EMAIL[chosen.email_gateway](chosen), Channel.SMS: _SMS[chosen.sms_gateway](chosen)}
    return {channel: gateway for channel, gateway in made.items() if gateway is not None}


@contextmanager
def _as_set(**settings_of: str) -> Iterator[None]:
    """What a gateway finds wrong, under the name of the variable: `settings_of` says which of its fields is which.

    Raises:
        BadInput: it did.
    """
    try:
        yield
    except BadInput as problem:
        raise BadInput(variable(settings_of.get(problem.field, problem.field)), problem.cause) from None
    except OSError as fault:  # of TLS too; no gateway opens anything else when it is made
        cause = f"cannot be read ({fault.strerror}); name a file of certificates in PEM"
        raise BadInput(variable("provider_ca_file"), cause) from None


def _none(_: Settings) -> None:
    return None


def _smtp(chosen: Settings) -> Gateway:
    with _as_set():
        server = Server(
            host=chosen.smtp_host,
            port=chosen.smtp_port,
            security=Security(chosen.smtp_security),
            user=chosen.smtp_user,
            password=chosen.smtp_password.get_secret_value(),
        )
        return Smtp(server, chosen.email_from, deadline=chosen.reminder_deadline, ca_file=chosen.provider_ca_file)


def _resend(chosen: Settings) -> Gateway:
    with _as_set(url="resend_url", Authorization="resend_api_key"):
        return Resend(
            chosen.resend_api_key.get_secret_value(), chosen.email_from, deadline=chosen.reminder_deadline,
            url=chosen.resend_url, ca_file=chosen.provider_ca_file,
        )  # fmt: skip


def _twilio(chosen: Settings) -> Gateway:
    with _as_set(url="twilio_url"):
        account = Account(
            sid=chosen.twilio_account,
            secret=chosen.twilio_secret.get_secret_value(),
            key_sid=chosen.twilio_key or None,
        )
        return Twilio(
            account, chosen.sms_from, deadline=chosen.reminder_deadline, url=chosen.twilio_url,
            ca_file=chosen.provider_ca_file,
        )  # fmt: skip


def _telnyx(chosen: Settings) -> Gateway:
    with _as_set(url="telnyx_url", Authorization="telnyx_api_key"):
        return Telnyx(
            chosen.telnyx_api_key.get_secret_value(), chosen.sms_from, deadline=chosen.reminder_deadline,
            url=chosen.telnyx_url, ca_file=chosen.provider_ca_file,
        )  # fmt: skip


_Made = Callable[[Settings], Gateway | None]
_EMAIL: Mapping[str, _Made] = {"none": _none, "smtp": _smtp, "resend": _resend}
_SMS: Mapping[str, _Made] = {"none": _none, "twilio": _twilio, "telnyx": _telnyx}


@cache
def gateways() -> Mapping[Channel, Gateway]:
    """This process's gateways."""
    return gateways_of(settings())


@cache
def texts() -> Texts:
    """This process's texts, read once."""
    with _as_set():
        return Texts(settings().texts)


def ready() -> Mapping[Channel, Gateway]:
    """This process's gateways, once its texts are read too.

    Raises:
        BadInput: they cannot be made of these settings.
    """
    texts()
    return gateways()


def compose(due: DueReminder, hold: HoldNow, to: str) -> Message:
    """The message of a reminder, rendered now.

    Raises:
        TemplateFault: its template gives none.
    """
    facts = Facts(
        hold_id=due.hold_id,
        resource=hold.resource,
        customer=hold.customer,
        deadline=due.expires_at,
        zone=hold.timezone,
        lead=due.lead,
    )
    return Message(due.key, due.channel, to, texts().render(due.channel, hold.locale, facts))
