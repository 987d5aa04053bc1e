"""The gateways that settings ask for."""

from pathlib import Path
from typing import Any

import pytest

from domain.errors import BadInput
from domain.reminding import Channel
from settings import Settings, settings
from tasks import reaching
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


@pytest.mark.parametrize(
    ("by", "wrong", "line"),
    [
        ("resend", {"resend_url": "http://example.com"}, "HOLDFAST_RESEND_URL: must begin with https://"),
        ("resend", {"resend_api_key": "k\n"}, "HOLDFAST_RESEND_API_KEY: holds U+000A, which no header may"),
        ("telnyx", {"telnyx_url": "ftp://example.com"}, "HOLDFAST_TELNYX_URL: must begin with https://"),
        ("telnyx", {"telnyx_api_key": "k\u00e9"}, "HOLDFAST_TELNYX_API_KEY: holds a character outside of ASCII"),
        ("telnyx", {"sms_from": "a\nb"}, "HOLDFAST_SMS_FROM: holds U+000A, which no header may"),
        ("twilio", {"twilio_url": "nonsense"}, "HOLDFAST_TWILIO_URL: must begin with https://"),
        ("twilio", {"twilio_account": "../x"}, "HOLDFAST_TWILIO_ACCOUNT: is no SID"),
        ("twilio", {"twilio_key": "S K"}, "HOLDFAST_TWILIO_KEY: is no SID"),
        ("twilio", {"twilio_secret": "s\n"}, "HOLDFAST_TWILIO_SECRET: holds U+000A, which no header may"),
        ("smtp", {"smtp_user": "u", "smtp_password": "p", "smtp_security": "none"}, "HOLDFAST_SMTP_SECURITY: must be"),
        ("smtp", {"smtp_user": "u", "smtp_password": "p\u00e4"}, "HOLDFAST_SMTP_PASSWORD: holds a character outside"),
    ],
)  # fmt: skip
def test_what_no_gateway_can_be_made_of_is_told_by_the_name_of_its_variable(
    by: str, wrong: dict[str, Any], line: str
) -> None:
    setting = "email_gateway" if by in EMAIL_BY else "sms_gateway"
    given = {setting: by, **FROM, **(EMAIL_BY | SMS_BY)[by], **wrong}
    with pytest.raises(BadInput) as refused:
        gateways_of(Settings(**given))
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("by", ["smtp", "resend", "twilio", "telnyx"])
@pytest.mark.parametrize("made_of", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_told_by_the_name_of_their_variable(
    tmp_path: Path, by: str, made_of: str | None
) -> None:
    file = tmp_path / "roots.pem"
    if made_of is not None:
        file.write_text(made_of)
    setting = "email_gateway" if by in EMAIL_BY else "sms_gateway"
    given = {setting: by, **FROM, **(EMAIL_BY | SMS_BY)[by], "provider_ca_file": file}
    with pytest.raises(BadInput, match=r"^HOLDFAST_PROVIDER_CA_FILE: cannot be read \(.+\); name a file of certif"):
        gateways_of(Settings(**given))


def test_texts_that_cannot_be_used_are_told_by_the_name_of_their_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "settings", lambda: settings().model_copy(update={"texts": tmp_path / "nowhere"}))
    reaching.texts.cache_clear()
    with pytest.raises(BadInput, match=r"^HOLDFAST_TEXTS: .*nowhere is no folder"):
        reaching.ready()
