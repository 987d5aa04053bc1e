"""The Celery app of a worker that is killed once, by SIGKILL, at the step that HOLDFAST_TEST_CRASH_AT names.

Everything else is the production code. HOLDFAST_TEST_CRASHED is a file: the crash comes only while it does not exist.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from db import expiry as db_expiry
from db import facts
from tasks import expiry, lane
from tasks.app import app

__all__ = ["app"]

_STEP = os.environ["HOLDFAST_TEST_CRASH_AT"]
_CRASHED = Path(os.environ["HOLDFAST_TEST_CRASHED"])


def _die_once() -> None:
    try:
        _CRASHED.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _before(function: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*arguments: Any, **options: Any) -> Any:
        _die_once()
        return function(*arguments, **options)

    return dying


def _after(function: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*arguments: Any, **options: Any) -> Any:
        answer = function(*arguments, **options)
        _die_once()
        return answer

    return dying


match _STEP:
    case "after the claim, before the publish":
        lane.ExpiryLane.publish = _before(lane.ExpiryLane.publish)  # type: ignore[method-assign]
    case "after the publish":
        lane.ExpiryLane.publish = _after(lane.ExpiryLane.publish)  # type: ignore[method-assign]
    case "inside the transaction":
        db_expiry.record = _after(facts.record)  # type: ignore[attr-defined]
    case "after the commit, before the ack":
        expiry.apply = _after(expiry.apply)
    case _:
        raise ValueError(_STEP)
