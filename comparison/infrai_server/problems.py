"""What a call is refused with: the published codes, and four invented ones where no code is published (U1)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One code of the catalogue."""

    name: str
    status: int
    retryable: bool = False
    invented: bool = False


_CODES = (
    Code("INSUFFICIENT_CREDIT", 402),
    Code("WALLET_CAP_EXCEEDED", 402),
    Code("PRO_REQUIRED", 402),
    Code("KYC_REQUIRED", 402),
    Code("TOPUP_2FA_REQUIRED", 402),
    Code("BYOK_TRIAL_EXPIRED", 402),
    Code("UNAUTHORIZED", 401),
    Code("SCOPE_INSUFFICIENT", 403),
    Code("KEY_REVOKED", 403),
    Code("MODULE_NOT_AVAILABLE_IN_REGION", 403),
    Code("IDEMPOTENCY_KEY_REQUIRED", 400),
    Code("IDEMPOTENCY_CONFLICT", 409),
    Code("RATE_LIMIT_USER", 429, retryable=True),
    Code("RATE_LIMIT_IP", 429, retryable=True),
    Code("VENDOR_QUOTA_EXCEEDED", 429, retryable=True),
    Code("VENDOR_DOWN", 503, retryable=True),
    Code("VENDOR_TIMEOUT", 503, retryable=True),
    Code("MAINTENANCE", 503, retryable=True),
    Code("UNKNOWN_ERROR", 500),
    Code("VALIDATION_ERROR", 400, invented=True),
    Code("NOT_FOUND", 404, invented=True),
    Code("METHOD_NOT_ALLOWED", 405, invented=True),
    Code("CONFLICT", 409, invented=True),
    Code("PAYLOAD_TOO_LARGE", 413, invented=True),
)
CODES: Mapping[str, Code] = {code.name: code for code in _CODES}


class Problem(Exception):
    """A call is refused; nothing was changed."""

    def __init__(self, code: str, hint: str) -> None:
        super().__init__(code, hint)
        self.code = CODES[code]
        self.hint = hint


def invalid(hint: str) -> Problem:
    """The request is not of the contract's form."""
    return Problem("VALIDATION_ERROR", hint)


def missing(hint: str) -> Problem:
    """What is named is not there."""
    return Problem("NOT_FOUND", hint)


def conflict(hint: str) -> Problem:
    """What is there is otherwise."""
    return Problem("CONFLICT", hint)
