"""The local stack's own vault key: made once, kept beside its database, readable by its owner alone."""

import base64
import os
import secrets
from pathlib import Path

from domain.errors import BadInput, HoldfastError
from gateways.vault import Vault

_BYTES = 32


class VaultKeyUnusable(HoldfastError):
    """What stands in the key's file opens nothing."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.file = file

    def __str__(self) -> str:
        return f"{self.file} holds no vault key; put the key back, or remove the file and rotate every endpoint's keys"


def own_vault_key(file: Path) -> str:
    """The key in this file, which is made if it is not there: in full or not at all, and on disk before it is used.

    For a caller who owns the folder's lock, so that nobody else makes one meanwhile.

    Raises:
        VaultKeyUnusable: what stands there is no key. It is left as it is: endpoint secrets may still depend on it.
    """
    if not file.exists():
        _make(file)
    key = file.read_text(encoding="ascii", errors="replace").strip()
    try:
        Vault([key])
    except BadInput:
        raise VaultKeyUnusable(file) from None
    return key


def _make(file: Path) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="ascii") as writing:
        writing.write(base64.b64encode(secrets.token_bytes(_BYTES)).decode("ascii") + "\n")
        writing.flush()
        os.fsync(writing.fileno())
    unfinished.rename(file)
