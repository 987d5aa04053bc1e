"""Calls that are no part of the contract: they move the clock, order faults, and tell what was seen."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from comparison.infrai_server import envelope
from comparison.infrai_server.envelope import Answer
from comparison.infrai_server.faults import Fault
from comparison.infrai_server.problems import Problem, invalid, missing
from comparison.infrai_server.service import Service

Json = Any


class Advance(BaseModel):
    """Let time pass at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]


class Control:
    """`POST /control/advance`, `POST /control/faults`, `DELETE /control/faults`, `GET /control/state`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Carry out one of them.

        Raises:
            Problem: there is no such call, or it does not take this body.
        """
        match method, path:
            case "POST", "/control/advance":
                self._service.clock.advance(_read(Advance, body).seconds)
            case "POST", "/control/faults":
                self._service.faults.add(_read(Fault, body))
            case "DELETE", "/control/faults":
                self._service.faults.clear()
            case "GET", "/control/state":
                pass
            case _, "/control/advance" | "/control/faults" | "/control/state":
                raise Problem("METHOD_NOT_ALLOWED", "see docs/infrai.md")
            case _:
                raise missing("there is no such control")
        return Answer(200, envelope.success(self._state(), 0.0))

    def _state(self) -> Json:
        service = self._service
        return {
            "now": service.clock.now(),
            "contract": service.contract.model_dump(),
            "spellings": dict(service.spellings),
        }


def _read(kind: Any, body: bytes) -> Any:
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise invalid("body: is no JSON") from None
