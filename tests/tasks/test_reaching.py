"""The gateways that settings ask for."""

from typing import Any

import pytest

from domain.reminding import Channel
from settings import Settings
from tasks.reaching import gateways_of

FROM: dict[str, Any] = {"email_from": "Holds <holds@example.com>", "sms_from": "+15005550006"}
EMAIL_BY: dict[str, dict[str, Any]] = {
    "smtp": {"smtp_host": "mail.example.com"},
    "resend": {"resend_api_key": "key"},
}
SMS_BY: dict[str, dict[str, Any]] = {
    "twilio": {"twilio_account": "AC00000000000000000000000000000000", "twilio_secret": "secret"},
    "telnyx": {"telnyx_api_key": "key"},
}


def test_without_settings_no_channel_has_a_gateway() -> None:
    assert gateways_of(Settings()) == {}


@pytest.mark.parametrize("name", EMAIL_BY)
def test_the_gateway_for_email_is_the_one_that_was_chosen(name: str) -> None:
    made = gateways_of(Settings(**{"email_gateway": name, **FROM, **EMAIL_BY[name]}))
    assert {channel: gateway.name for channel, gateway in made.items()} == {Channel.EMAIL: name}
    made[Channel.EMAIL].close()


@pytest.mark.parametrize("name", SMS_BY)
def test_the_gateway_for_sms_is_the_one_that_was_chosen(name: str) -> None:
    made = gateways_of(Settings(**{"sms_gateway": name, **FROM, **SMS_BY[name]}))
    assert {channel: gateway.name for channel, gateway in made.items()} == {Channel.SMS: name}
    made[Channel.SMS].close()
