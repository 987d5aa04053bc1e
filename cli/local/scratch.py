"""A stack for one command alone: a folder of its own, and none of the user's servers."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domain.errors import HoldfastError
from settings import Settings, settings


class RunFailed(HoldfastError):
    """A command's own stack or what it ran there failed; the text names where its logs are."""


def own_settings(home: Path, **also: Any) -> Settings:
    """What this machine's settings say, but for a command's own servers, its own key, loopback, and what it adds."""
    ours = {"home": home, "database_url": None, "broker_url": None, "dangerous_webhook_targets": True, **also}
    given = settings().model_dump(exclude={*ours, "vault_keys"})
    return Settings(**{**given, **ours})


@contextmanager
def own_home(command: str) -> Iterator[Path]:
    """A folder for this run alone, gone afterwards; where the run failed it is kept and named.

    Raises:
        RunFailed: with the cause, and the folder of the logs.
    """
    home = Path(tempfile.mkdtemp(prefix=f"holdfast-{command}-"))
    home.chmod(0o755)
    try:
        yield home
    except HoldfastError as failure:
        raise RunFailed(f"{failure}; the logs are in {home / 'logs'}") from failure
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home, ignore_errors=True)
