"""How a sweep bounds itself: what it may claim, and what it does with a hold that fails alone."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPolicy:
    """The bounds of claiming: how long a claim lasts, how many may be out, when a hold is set aside."""

    lease: timedelta
    grace: timedelta
    window: int
    batch: int
    claims_before_set_aside: int
    set_aside_limit: int
