"""What a call to Infrai may come to besides its result: errors with a code, a hint and a request id as attributes."""

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from domain.errors import HoldfastError

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Told:
    """What a failure said of itself. The code is a label: what to do follows from the class of the error."""

    status: int | None = None
    """None: there was no answer."""
    code: str = "UNKNOWN_ERROR"
    hint: str = ""
    """One line for an operator."""
    request_id: str = ""
    """For the provider's support; may be empty."""


class InfraiError(HoldfastError):
    """A call failed; nothing but a repeat with the same key may follow without a decision."""

    cure = "see the hint, and the provider's status page"

    def __init__(self, capability: str, told: Told) -> None:
        super().__init__(capability, told)
        self.capability = capability
        self.told = told

    @property
    def code(self) -> str:
        """The label of the failure."""
        return self.told.code

    @property
    def hint(self) -> str:
        """The provider's own line."""
        return self.told.hint

    @property
    def request_id(self) -> str:
        """What the provider's support asks for."""
        return self.told.request_id

    def __str__(self) -> str:
        status = f"{self.told.status} " if self.told.status else ""
        hint = f", {one_line(self.told.hint)}" if self.told.hint else ""
        request = f" (request {one_line(self.told.request_id)})" if self.told.request_id else ""
        return f"{self.capability}: {status}{one_line(self.told.code)}{hint}{request}; {self.cure}"


class WaitAsked(InfraiError):
    """The service is busy or away and the wait is longer than a call may sleep: keep the instant, come back then."""

    cure = "try again later"

    def __init__(self, capability: str, told: Told, after: timedelta) -> None:
        super().__init__(capability, told)
        self.args = (capability, told, after)
        self.after = after
        """How long to stay away, from now."""

    def __str__(self) -> str:
        return f"{super().__str__()}: in {self.after.total_seconds():g} s"


class Unreachable(InfraiError):
    """No answer came, at any attempt. Whether the call took effect is not known; the same key makes a repeat safe."""

    cure = "see that the address is right and can be reached, then try again"


class KeyRefused(InfraiError):
    """The key is missing, wrong, revoked, or may not make this call."""

    cure = "set INFRAI_API_KEY to a key that is valid and has this scope"


class CreditRefused(InfraiError):
    """The account cannot pay for the call, or its plan lacks it."""

    cure = "see the account's balance and plan"


class NotThere(InfraiError):
    """The queue, message or job does not exist (any more), or the call does not."""

    cure = "create it first, or see `holdfast bridge check`"


class Conflicting(InfraiError):
    """It exists with other settings, or the idempotency key was used with other parameters before."""

    cure = "the first one stands; decide whether it is the one that is wanted"


class Refused(InfraiError):
    """The request itself is refused, and would be again."""

    cure = "a repeat would be refused too"


class Broken(InfraiError):
    """The service failed in a way that does not ask for a repeat."""


class Unreadable(InfraiError):
    """An answer came that is not of the contract; `field` names what cannot be read."""

    cure = "the contract may have changed; see `holdfast bridge check`"

    def __init__(self, capability: str, told: Told, field: str) -> None:
        super().__init__(capability, told)
        self.args = (capability, told, field)
        self.field = field


class ContractChanged(InfraiError):
    """Discovery tells of another call than this client makes; nothing was sent."""

    cure = "this client must be brought up to date first"


def refusal(capability: str, told: Told) -> InfraiError:
    """The error for a status that does not ask for a repeat."""
    kinds: dict[int, type[InfraiError]] = {
        HTTPStatus.UNAUTHORIZED: KeyRefused,
        HTTPStatus.FORBIDDEN: KeyRefused,
        HTTPStatus.PAYMENT_REQUIRED: CreditRefused,
        HTTPStatus.NOT_FOUND: NotThere,
        HTTPStatus.METHOD_NOT_ALLOWED: NotThere,
        HTTPStatus.CONFLICT: Conflicting,
    }
    status = told.status or 0
    client = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return kinds.get(status, Refused if client else Broken)(capability, told)


def one_line(text: str) -> str:
    """One printable line of at most 200 characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST])
