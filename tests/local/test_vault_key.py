"""The local stack's vault key: made once, private, and found by every command that uses the stack's own database."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.local.vault_key import VaultKeyUnusable, own_vault_key
from gateways.vault import Vault
from settings import InvalidSetting, settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vault.key"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings of a local stack in this folder."""
    for variable in ("HOLDFAST_DATABASE_URL", "HOLDFAST_VAULT_KEYS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def found_keys() -> str:
    settings.cache_clear()
    return settings().vault_keys.get_secret_value()


def test_a_key_is_32_random_bytes_that_only_its_owner_reads(file: Path) -> None:
    key = own_vault_key(file)
    assert len(base64.b64decode(key, validate=True)) == 32
    assert own_vault_key(file.with_name("another.key")) != key
    assert file.stat().st_mode & 0o777 == 0o600
    assert Vault([key]).open(Vault([key]).seal("whsec_x", "ep/1"), "ep/1") == "whsec_x"


def test_the_second_start_finds_the_key_of_the_first(file: Path) -> None:
    assert own_vault_key(file) == own_vault_key(file)


def test_a_key_half_written_by_a_killed_start_is_made_anew(file: Path) -> None:
    file.with_suffix(".unfinished").write_text("AAAA")
    assert len(base64.b64decode(own_vault_key(file), validate=True)) == 32
    assert [left.name for left in file.parent.iterdir()] == ["vault.key"]


@pytest.mark.parametrize("content", ["", "AAAA\n", "é"])
def test_a_file_that_holds_no_key_is_one_line_and_stays_as_it_is(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(VaultKeyUnusable) as refusal:
        own_vault_key(file)
    assert str(refusal.value) == (
        f"{file} holds no vault key; put the key back, or remove the file and rotate every endpoint's keys"
    )
    assert file.read_text() == content


def test_a_command_of_the_local_stack_finds_its_key(home: Path) -> None:
    assert found_keys() == ""
    assert own_vault_key(settings().vault_file) == found_keys() != ""
    assert settings().vault_file == home / "vault.key"


def test_keys_that_are_given_come_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_vault_key(home / "vault.key")
    monkeypatch.setenv("HOLDFAST_VAULT_KEYS", "given")
    assert found_keys() == "given"


def test_another_database_than_the_stacks_own_never_gets_the_stacks_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_vault_key(home / "vault.key")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://somewhere/else")
    assert found_keys() == ""


def test_a_key_that_cannot_be_read_is_one_line(home: Path) -> None:
    (home / "vault.key").mkdir()
    with pytest.raises(InvalidSetting) as refusal:
        found_keys()
    assert str(refusal.value) == (
        f"{home}/vault.key cannot be read (Is a directory); run this as the user who runs `holdfast up`"
    )
