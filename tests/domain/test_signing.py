"""What is signed, and by which bytes."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadInput
from domain.signing import HmacKey, sign, signed_content, signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_known_answer_of_the_specification() -> None:
    signed = sign([HmacKey.parse(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def independent(secret: bytes, content: bytes) -> str:
    """HMAC-SHA256 as RFC 2104 spells it, from the bare digest."""
    key = secret.ljust(64, b"\x00")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + content).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest()
    return "v1," + base64.b64encode(outer).decode()


@pytest.mark.parametrize("secret_size", [24, 32, 63, 64])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_a_body_of_any_size_is_signed_as_an_independent_hmac_does(size: int, secret_size: int) -> None:
    body, secret = bytes(range(size)), bytes(range(secret_size))
    assert sign([HmacKey(secret)], "ev", 7, body) == independent(secret, b"ev.7." + body)


@given(secret=st.binary(min_size=24, max_size=64), body=st.binary(max_size=300), at=st.integers(0, 2**40))
def test_every_body_is_signed_as_pythons_own_hmac_does(secret: bytes, body: bytes, at: int) -> None:
    expected = hmac.new(secret, b"a:b-c_1.%d." % at + body, "sha256").digest()
    assert sign([HmacKey(secret)], "a:b-c_1", at, body) == "v1," + base64.b64encode(expected).decode()


def test_every_live_key_signs_in_its_order() -> None:
    first, second = HmacKey(bytes(24)), HmacKey(bytes(25))
    assert sign([second, first], "e", 1, b"") == f"{second.signature(b'e.1.')} {first.signature(b'e.1.')}"


def test_the_three_headers_say_what_was_signed() -> None:
    key = HmacKey(bytes(24))
    assert signed_headers([key], "reservation-expired:h_1:2", 1_796_000_000, b"{}") == {
        "webhook-id": "reservation-expired:h_1:2",
        "webhook-timestamp": "1796000000",
        "webhook-signature": key.signature(b"reservation-expired:h_1:2.1796000000.{}"),
    }


def test_nothing_goes_out_unsigned() -> None:
    with pytest.raises(BadInput, match=r"^keys: there is no live key to sign with; rotate the endpoint's keys$"):
        sign([], "e", 1, b"")


@pytest.mark.parametrize("event_id", ["", "a.b", "a b", "a\r\nb", "ä", "a" * 201, "a\x00"])
def test_an_id_that_no_header_takes_or_that_holds_a_dot_is_refused(event_id: str) -> None:
    with pytest.raises(BadInput) as refused:
        signed_content(event_id, 1, b"")
    assert str(refused.value) == (
        f"event_id: {event_id[:70]!r} is no event id; use 1 to 200 of A-Z a-z 0-9 _ : -"
    )  # fmt: skip


def test_an_instant_before_1970_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^timestamp: lies before 1970$"):
        signed_content("e", -1, b"")


@pytest.mark.parametrize("size", [24, 64])
def test_a_secret_of_a_right_length_is_read_and_written(size: int) -> None:
    text = "whsec_" + base64.b64encode(bytes(range(size))).decode()
    assert HmacKey.parse(text) == HmacKey(bytes(range(size)))
    assert HmacKey.parse(text).reveal() == text


@pytest.mark.parametrize("size", [0, 1, 23, 65, 1000])
def test_a_secret_of_a_wrong_length_is_refused(size: int) -> None:
    with pytest.raises(BadInput) as refused:
        HmacKey.parse("whsec_" + base64.b64encode(bytes(size)).decode())
    assert str(refused.value) == f"secret: holds {size} bytes; it must be 24 to 64"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SECRET.removeprefix("whsec_"), "secret: must begin with whsec_"),
        (SECRET.upper(), "secret: must begin with whsec_"),
        ("", "secret: must begin with whsec_"),
        ("whsec_%%%%", "secret: is no base64 after whsec_"),
        (SECRET + "=", "secret: is no base64 after whsec_"),
        (SECRET + "\n", "secret: is no base64 after whsec_"),
        ("whsec_ü", "secret: is no base64 after whsec_"),
    ],
)
def test_a_secret_of_another_form_is_refused_and_not_repeated(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        HmacKey.parse(text)
    assert str(refused.value) == said


def test_generated_secrets_are_long_and_differ() -> None:
    one, other = HmacKey.generate(), HmacKey.generate()
    assert len(one.secret) == len(other.secret) == 32
    assert one != other


def test_a_key_shows_nothing_of_itself_but_a_name() -> None:
    key = HmacKey.parse(SECRET)
    assert repr(key) == "HmacKey()"
    assert len(key.key_id) == 12
    assert key.key_id != HmacKey(bytes(24)).key_id
    assert key.key_id not in key.secret.hex()
