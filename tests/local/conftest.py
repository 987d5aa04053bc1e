"""A state folder of a test's own, and `holdfast up` in it."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.local import families
from tests.local.processes import Up


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder for a stack; whoever is left in it afterwards is ended."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "state"
        yield home
        families.end(families.living(home / "pids"), grace=5)


@pytest.fixture
def start_up(state: Path) -> Iterator[Callable[..., Up]]:
    """Starts `holdfast up`; it is stopped afterwards."""
    started: list[Up] = []

    def start(**environment: str) -> Up:
        started.append(Up(state, environment=environment))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)
