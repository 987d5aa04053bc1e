"""A place in a listing as one word, to go on from: `list` prints it, and `--after` takes it."""

import base64
import json
from datetime import UTC, datetime, timedelta

from db.replays import Position
from domain.errors import BadInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def written(position: Position) -> str:
    """The word for a position; the same one always, and good for as long as the schema is."""
    parts = [(position.created_at - _EPOCH) // _MICROSECOND, position.event_id, position.endpoint_id]
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def read(raw: str, option: str) -> Position:
    """The position that a word stands for.

    Raises:
        BadInput: no listing has printed this word.
    """
    try:
        parts = json.loads(base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_", validate=True))
        match parts:
            case [int(instant), str(event), str(endpoint)] if (
                f"{event}{endpoint}".isascii() and "\0" not in event + endpoint
            ):
                return Position(_EPOCH + instant * _MICROSECOND, event, endpoint)
    except (ValueError, OverflowError, RecursionError):
        pass
    raise BadInput(option, f"{raw[:40]!r} is no position; give one that `list` has printed")
