"""A flood of hostile answers leaves the worker as it was."""

import contextlib
import gc
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice

import psutil
import pytest

from bench import loopback
from domain.webhooks import Answered, Failed, FailureKind
from gateways.webhook import Limits, Sender
from tests.gateways.posts import post


@pytest.fixture
def hostile() -> Iterator[str]:
    """A receiver in a process of its own, so that only the sender's memory is measured."""
    with subprocess.Popen(
        [sys.executable, loopback.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate("")


def test_two_thousand_hostile_answers_stay_within_twenty_megabytes(hostile: str) -> None:
    me = psutil.Process()
    with contextlib.closing(Sender(Limits(), dangerous=True)) as sender:
        for name in loopback.HOSTILE:
            sender.send(post(f"{hostile}/{name}", endpoint="warm"))
        gc.collect()
        idle = peak = me.memory_info().rss
        for number, name in enumerate(islice(cycle(loopback.HOSTILE), 2000)):
            came = sender.send(post(f"{hostile}/{name}", endpoint=f"ep_{number % 300}"))
            assert isinstance(came, Answered) or came.kind in {FailureKind.PROTOCOL, FailureKind.RESET}, (name, came)
            peak = max(peak, me.memory_info().rss)
        assert not isinstance(came, Failed) or came.sent
    assert peak - idle < 20 * 2**20
