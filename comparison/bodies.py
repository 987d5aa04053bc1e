"""A reference as it travels: the bytes that are published."""

import json

from domain.references import Reference


def as_body(reference: Reference) -> bytes:
    """The four fields, and nothing else."""
    return json.dumps(reference.as_data(), separators=(",", ":")).encode()
