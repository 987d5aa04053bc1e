"""Reading what a queue delivered: a message may come from anybody, and hold anything."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from db import dead_letters
from db.engine import Database
from domain.errors import BadInput
from domain.paths import Carrier, Path
from domain.references import MalformedReference, Reference, parse_reference

log = structlog.get_logger(__name__)

MOST_REFERENCES = 10_000
"""References in one message, at most: a transaction stays bounded whatever the chunk is set to."""
_MOST_LETTERS = 10
"""Dead letters of one message, at most: one that is bad throughout gets a single one."""
_LARGEST_RUN = 2**63 - 1
_LONGEST_RAW = 2000


class MalformedMessage(BadInput):
    """A message that is none of ours; it is never retried."""


@dataclass(frozen=True, slots=True)
class ExpireHolds:
    """What the expiry task is asked: by which run and path, and about which references, still unread."""

    run: int | None
    path: Path
    refs: Sequence[object]


def read_message(unnamed: Sequence[object], fields: Mapping[str, object]) -> ExpireHolds:
    """The message's fields, if they are `run`, `path` and `refs` of the right types.

    Raises:
        MalformedMessage: names the field.
    """
    if unnamed:
        raise MalformedMessage("message", "has arguments without a name")
    for name in ("run", "path", "refs"):
        if name not in fields:
            raise MalformedMessage(name, "is missing")
    for name in fields.keys() - {"run", "path", "refs"}:
        raise MalformedMessage(ascii(name[:70]), "is no field of a message")
    run, path, refs = fields["run"], fields["path"], fields["refs"]
    if run is not None and (type(run) is not int or not 1 <= run <= _LARGEST_RUN):
        raise MalformedMessage("run", "must be null or the number of a sweep run")
    if not isinstance(path, str) or path not in set(Path):
        raise MalformedMessage("path", f"must be one of {', '.join(Path)}")
    if not isinstance(refs, list) or len(refs) > MOST_REFERENCES:
        raise MalformedMessage("refs", f"must be a list of at most {MOST_REFERENCES} references")
    return ExpireHolds(run, Path(path), refs)


def read_references(db: Database, refs: Sequence[object], by: Carrier) -> list[Reference]:
    """The references of a message; what cannot be read becomes a dead letter, once."""
    good: list[Reference] = []
    bad: list[tuple[int, object, MalformedReference]] = []
    for number, raw in enumerate(refs):
        try:
            good.append(parse_reference(raw))
        except MalformedReference as problem:
            bad.append((number, raw, problem))
    if len(bad) > _MOST_LETTERS:
        bury(
            db, by, refs, MalformedMessage("refs", f"{len(bad)} of {len(refs)} cannot be read; the first: {bad[0][2]}")
        )
        return good
    for number, raw, cause in bad:
        bury(db, by, raw, cause, part=f":{number}")
    return good


def bury(db: Database, by: Carrier, raw: object, problem: BadInput, *, part: str = "") -> None:
    """Keep what cannot be read as a dead letter, in a form the database takes whatever stands in it."""
    text = {"raw": json.dumps(raw, default=repr)[:_LONGEST_RAW]}
    with db.transaction() as tx:
        dead_letters.bury(tx, f"malformed:{by.message_id}{part}", "malformed", text, str(problem))
    log.warning("message.malformed", field=problem.field, cause=problem.cause)
