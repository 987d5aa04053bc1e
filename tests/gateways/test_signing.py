"""Keys of both schemes: read, made, refused, and never shown."""

import base64

import pytest

from domain.errors import BadInput
from domain.signing import HmacKey, Key, sign
from gateways.signing import Ed25519Key, parse_key

SECRET = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def written(both: bytes) -> str:
    return "whsk_" + base64.b64encode(both).decode()


def test_the_known_answer_of_v1a() -> None:
    key = Ed25519Key.parse(SECRET)
    assert sign([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}') == (
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
    )
    assert key.public == PUBLIC
    assert key.reveal() == SECRET


def test_both_schemes_stand_in_one_header() -> None:
    keys: list[Key] = [HmacKey(bytes(24)), Ed25519Key.parse(SECRET)]
    signatures = sign(keys, "e", 1, b"{}").split(" ")
    assert [signature.partition(",")[0] for signature in signatures] == ["v1", "v1a"]


def test_a_generated_pair_is_read_back() -> None:
    pair = Ed25519Key.generate()
    assert parse_key(pair.reveal()).key_id == pair.key_id
    assert pair.key_id != Ed25519Key.generate().key_id


def test_a_key_is_read_by_its_prefix() -> None:
    assert isinstance(parse_key(SECRET), Ed25519Key)
    assert parse_key(HmacKey(bytes(24)).reveal()) == HmacKey(bytes(24))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PUBLIC, "secret: is a public key, which signs nothing; give the one that begins with whsk_"),
        (written(bytes(32)), "secret: holds 32 bytes; it must be 64: private key, then public key"),
        (written(bytes(64)), "secret: holds a public key that does not belong to its private key"),
        ("whsk_%", "secret: is no base64 after whsk_"),
        (SECRET.rstrip("="), "secret: is no base64 after whsk_"),
        ("hwsec_AAAA", "secret: must begin with whsec_"),
        ("", "secret: must begin with whsec_"),
    ],
    ids=["public", "half", "two keys", "no base64", "unpadded", "other prefix", "empty"],
)  # fmt: skip
def test_what_is_no_key_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_key(text)
    assert str(refused.value) == said


def test_a_key_shows_nothing_of_itself() -> None:
    assert repr(Ed25519Key.parse(SECRET)) == "Ed25519Key()"
