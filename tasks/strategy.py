"""What a worker does with a message before any task runs: one that cannot be read must not end the worker.

Celery's own strategy lets every error but two through to the consumer's loop, which ends the process; the message goes
back to its queue, and ends the next one too.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.strategy import default

_FAR = timedelta(seconds=60)
"""Our own retries wait a few seconds. Whatever is to wait longer waits in a table."""


def guarded(task: Any, app: Any, consumer: Any, **options: Any) -> Callable[..., Any]:
    """Celery's strategy, but a message it stumbles over is refused for good and logged, and a far wait is not kept.

    A message that asks to wait is run at once, since its row says when: held back, a thousand of them would fill the
    worker and stop its lane.
    """
    handle = default(task, app, consumer, **options)

    def strategy(message: Any, body: Any, *callbacks: Any, **more: Any) -> Any:
        try:
            _tame(message.headers, app.now())
            return handle(message, body, *callbacks, **more)
        except InvalidTaskError:
            raise
        except Exception as fault:  # noqa: BLE001 - whatever it is, it must not reach the loop
            raise InvalidTaskError(f"{type(fault).__name__} while reading the message") from None

    return strategy


def _tame(headers: dict[str, Any], now: datetime) -> None:
    """Leave a message no say in how long it waits or runs, and no header that fails where nothing can be refused.

    Raises:
        InvalidTaskError: its id or its count of retries is none.
    """
    if not isinstance(headers.get("id"), str) or type(headers.get("retries") or 0) is not int:
        raise InvalidTaskError("the message has no usable id or count of retries")
    headers["timelimit"] = [None, None]
    eta = headers.get("eta")
    if eta is not None and datetime.fromisoformat(eta) - now > _FAR:
        headers["eta"] = None
