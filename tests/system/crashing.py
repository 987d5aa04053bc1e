"""The Celery app of workers that are killed by SIGKILL once at each of four steps; all else is the production code.

HOLDFAST_TEST_CRASHES is a folder: a step that stands there as a file has had its crash.
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
from tests.system.steps import STEPS

__all__ = ["app"]

_CRASHES = Path(os.environ["HOLDFAST_TEST_CRASHES"])


def _die_once(step: str) -> None:
    """End this process and the worker it belongs to, unless that was done."""
    try:
        (_CRASHES / step).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _dying(function: Callable[..., Any], *, before: str | None = None, after: str) -> Callable[..., Any]:
    def dying(*arguments: Any, **options: Any) -> Any:
        if before is not None:
            _die_once(before)
        answer = function(*arguments, **options)
        _die_once(after)
        return answer

    return dying


lane.ExpiryLane.publish = _dying(lane.ExpiryLane.publish, before=STEPS[0], after=STEPS[1])  # type: ignore[method-assign]
db_expiry.record = _dying(facts.record, after=STEPS[2])  # type: ignore[attr-defined]
expiry.apply = _dying(expiry.apply, after=STEPS[3])
