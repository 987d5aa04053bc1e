"""Endpoint secrets at rest."""

import base64

import pytest

from domain.errors import BadInput
from gateways.vault import SecretUnreadable, Vault

OLD = base64.b64encode(bytes(range(32))).decode()
NEW = base64.b64encode(bytes(range(32, 64))).decode()
SECRET = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
PLACE = "ep_1/k1"


def test_a_sealed_secret_opens_again_and_shows_nothing() -> None:
    vault = Vault([OLD])
    sealed = vault.seal(SECRET, PLACE)
    assert vault.open(sealed, PLACE) == SECRET
    assert SECRET.encode() not in sealed
    assert vault.seal(SECRET, PLACE) != sealed


def test_keys_change_without_a_day_when_nothing_can_be_read() -> None:
    sealed = Vault([OLD]).seal(SECRET, PLACE)
    both = Vault([NEW, OLD])
    assert both.open(sealed, PLACE) == SECRET
    assert not both.is_current(sealed)
    anew = both.seal(both.open(sealed, PLACE), PLACE)
    assert both.is_current(anew)
    assert Vault([NEW]).open(anew, PLACE) == SECRET


def test_a_key_that_is_not_at_hand_is_named() -> None:
    sealed = Vault([OLD]).seal(SECRET, PLACE)
    with pytest.raises(SecretUnreadable) as refused:
        Vault([NEW]).open(sealed, PLACE)
    assert str(refused.value) == (
        f"{PLACE}: sealed with key {sealed[1:5].hex()}, which is not at hand "
        f"(there is {Vault([NEW]).seal(SECRET, PLACE)[1:5].hex()}); add that key behind the first one"
    )


def test_a_secret_moved_to_another_endpoint_does_not_open() -> None:
    vault = Vault([OLD])
    with pytest.raises(SecretUnreadable, match=r"^ep_2/k1: the sealed secret was changed or belongs elsewhere; "):
        vault.open(vault.seal(SECRET, PLACE), "ep_2/k1")


@pytest.mark.parametrize("position", [5, 16, 17, -1])
def test_a_changed_byte_is_noticed(position: int) -> None:
    vault = Vault([OLD])
    sealed = bytearray(vault.seal(SECRET, PLACE))
    sealed[position] ^= 1
    with pytest.raises(SecretUnreadable, match="was changed"):
        vault.open(bytes(sealed), PLACE)


@pytest.mark.parametrize(
    "sealed", [b"", b"\x01", SECRET.encode(), b"\x02" + bytes(60)], ids=["empty", "cut", "plain", "future"]
)
def test_what_is_no_sealed_secret_is_refused(sealed: bytes) -> None:
    with pytest.raises(SecretUnreadable) as refused:
        Vault([OLD]).open(sealed, PLACE)
    assert str(refused.value) == f"{PLACE}: what is stored is no sealed secret; rotate the endpoint's keys"


@pytest.mark.parametrize("key", ["", "short", base64.b64encode(bytes(31)).decode(), OLD[:-1], "é" * 44])
def test_a_key_of_another_form_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(BadInput) as refused:
        Vault([OLD, key])
    assert str(refused.value) == "vault keys: each must be base64 of 32 bytes; make one with: openssl rand -base64 32"


def test_a_vault_without_a_key_is_refused() -> None:
    with pytest.raises(BadInput, match="there is none"):
        Vault([])


def test_a_vault_shows_names_of_keys_and_no_key() -> None:
    shown = repr(Vault([OLD, NEW]))
    assert OLD not in shown
    assert bytes(range(32)).hex() not in shown
    assert shown.startswith("Vault(keys=['")
