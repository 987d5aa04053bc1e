"""The HTTP side: a thin ASGI application. What a call means is in `service.py`; here are keys, bodies and envelopes."""

import hmac
import json
import logging
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import unquote

from pydantic import ValidationError

from comparison.infrai_server import envelope
from comparison.infrai_server.control import Control
from comparison.infrai_server.envelope import Answer
from comparison.infrai_server.idempotency import Answers, fingerprint
from comparison.infrai_server.models import Request
from comparison.infrai_server.operations import Documents, Operation
from comparison.infrai_server.problems import Problem, invalid, missing
from comparison.infrai_server.service import Service
from domain.errors import BadInput

log = logging.getLogger("holdfast.infrai_server")

_LARGEST_BODY = 1024 * 1024
_LONGEST_KEY = 255
_DISCOVERY = "/v1/discovery"

Json = Any
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Key:
    """A project's key."""

    text: str = field(repr=False)
    scopes: frozenset[str] | None = None
    """Modules it may use (`queue`, `cron`); None is all."""
    revoked: bool = False


class _Call(NamedTuple):
    """One call, as far as its head tells."""

    operation: Operation
    target: str
    key: Key
    path: str


class App:
    """Takes one call at a time; two that wait (for a body, for an earlier answer) do not keep each other."""

    def __init__(self, service: Service, keys: list[Key]) -> None:
        self._service = service
        self.keys = keys
        """The first one is the operator's: it may use the control calls."""
        self.documents = Documents(service.contract)
        self._control = Control(service)
        self._answers = Answers(service.contract.key_window)
        self._plain = {one.path: one for one in self.documents.operations.values() if not one.targeted}
        self._targeted = [one for one in self.documents.operations.values() if one.targeted]
        self._largest_batch = service.contract.largest_batch * (service.contract.largest_payload * 6 + 8192)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except Problem as problem:
            answer = envelope.failure(problem)
        except Exception:
            log.exception("a defect of the contract server")
            answer = envelope.failure(Problem("UNKNOWN_ERROR", "this is a defect of the contract server"))
        if scope["path"].startswith("/v1/") and self._service.faults.after(scope["path"]) and await _dropped(send):
            return
        headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path, method = scope["path"], scope["method"]
        headers = dict(scope["headers"])
        if path.startswith("/control/"):
            self._operator(headers)
            return self._control.answer(method, path, await _body(receive, _LARGEST_BODY))
        fault = self._service.faults.instead(path)
        if fault is not None:
            await _body(receive, self._largest_batch)
            return envelope.faulty(fault)
        if path == _DISCOVERY or path.startswith(f"{_DISCOVERY}/") or path == "/openapi.json":
            return self._discovery(method, path)
        call = self._call(method, scope, headers)
        whole = await _body(receive, self._limit(call.operation))
        return await self._carried_out(call, _json(whole) if whole.strip() else {}, headers.get(b"idempotency-key"))

    async def _carried_out(self, call: _Call, body: Json, header: bytes | None) -> Answer:
        """The answer of a call, or that of an earlier one with its key."""
        begun = perf_counter()
        request = self._validated(call.operation, body)
        key = self._idempotency_key(call.operation, request, header)
        if call.operation.method == "GET" or (key is None and not self._service.contract.derived_keys):
            await self._stall(call.path)
            return self._done(call, request, begun)
        mark = _fingerprint(body)
        scope = (call.key.text, call.path, key or mark.hex())
        if (earlier := await self._answers.earlier(scope, mark, self._service.clock.now())) is not None:
            return Answer(200, earlier)
        try:
            await self._stall(call.path)
            answer = self._done(call, request, begun)
        except BaseException:
            self._answers.failed(scope)
            raise
        self._answers.succeeded(scope, answer.body)
        return answer

    def _done(self, call: _Call, request: Request, begun: float) -> Answer:
        data = self._service.carry_out(call.operation.id, call.target, request)
        return Answer(200, envelope.success(data, (perf_counter() - begun) * 1000))

    async def _stall(self, path: str) -> None:
        fault = self._service.faults.during(path)
        if fault is not None:
            await sleep(fault.seconds)

    def _call(self, method: str, scope: Scope, headers: Mapping[bytes, bytes]) -> _Call:
        """Who asks for what (U35: 404 for no such path, 405 for another method).

        Raises:
            Problem: UNAUTHORIZED, KEY_REVOKED, SCOPE_INSUFFICIENT, NOT_FOUND or METHOD_NOT_ALLOWED.
        """
        key, path = self._key(headers), scope["path"]
        raw = scope.get("raw_path", path.encode()).decode("latin-1").partition("?")[0]
        operation, target = self._plain.get(path), ""
        if operation is None:
            operation = next((one for one in self._targeted if raw.startswith(one.prefix)), None)
            target = "" if operation is None else unquote(raw.removeprefix(operation.prefix))
            if operation is None or not target or "/" in raw.removeprefix(operation.prefix):
                raise missing(f"there is no call {path[:100]}")
        if operation.method != method:
            raise Problem("METHOD_NOT_ALLOWED", f"{operation.id} is called with {operation.method}")
        if key.scopes is not None and operation.id.partition(".")[0] not in key.scopes:
            raise Problem("SCOPE_INSUFFICIENT", f"this key may not call {operation.id}")
        return _Call(operation, target, key, path)

    def _key(self, headers: Mapping[bytes, bytes]) -> Key:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        for key in self.keys:
            if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), key.text.encode()):
                if key.revoked:
                    raise Problem("KEY_REVOKED", "this key was revoked")
                return key
        raise Problem("UNAUTHORIZED", "send the project's key as `Authorization: Bearer …`")

    def _operator(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key(headers) is not self.keys[0]:
            raise Problem("SCOPE_INSUFFICIENT", "control is for the server's own key")

    def _limit(self, operation: Operation) -> int:
        """Bytes of a body; one byte of a payload may be written in six."""
        if operation.id == "queue.publish_batch":
            return self._largest_batch
        return self._service.contract.largest_payload * 6 + _LARGEST_BODY

    def _validated(self, operation: Operation, body: Json) -> Request:
        if not isinstance(body, dict):
            raise invalid("body: must be a JSON object")
        try:
            return self.documents.models[operation.id].model_validate(body)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])[:100]
            raise invalid(f"{where}: {first['msg']}") from None

    def _idempotency_key(self, operation: Operation, request: Request, header: bytes | None) -> str | None:
        """The header's, else the body's (X7); required where the contract says so (X6)."""
        key = request.idempotency_key
        if header is not None:
            text = header.decode("latin-1").strip()
            if not 1 <= len(text) <= _LONGEST_KEY:
                raise invalid(f"Idempotency-Key: has {len(text)} signs; it must have 1 to {_LONGEST_KEY}")
            if key is not None and key != text:
                log.warning("two idempotency keys, in header and body: the header's counts")
            key = text
        if key is None and operation.creates and self._service.contract.keys_required:
            raise Problem("IDEMPOTENCY_KEY_REQUIRED", f"{operation.id} creates something; send an Idempotency-Key")
        return key

    def _discovery(self, method: str, path: str) -> Answer:
        if method != "GET":
            raise Problem("METHOD_NOT_ALLOWED", "discovery is read with GET")
        if path == "/openapi.json":
            return envelope.document(self.documents.openapi)
        name = path.removeprefix(_DISCOVERY).strip("/")
        found = self.documents.detail(name) if name else self.documents.manifest
        if found is None:
            raise missing(f"there is no capability {name[:60]}")
        return envelope.document(found)


async def _body(receive: Receive, limit: int) -> bytes:
    """All of a body.

    Raises:
        Problem: PAYLOAD_TOO_LARGE; the rest of it is left unread.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        if len(body) > limit:
            break
        message = await receive()
        body += message.get("body", b"")
    if len(body) > limit:
        raise Problem("PAYLOAD_TOO_LARGE", f"the body has more than {limit} bytes")
    return body


def _json(body: bytes) -> Json:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise invalid("body: is no JSON in UTF-8") from None


def _no_number(name: str) -> None:
    raise ValueError(name)


def _fingerprint(body: Json) -> bytes:
    try:
        return fingerprint(body)
    except BadInput as refused:
        raise invalid(str(refused)) from None


async def _dropped(send: Send) -> bool:
    """Break the connection. ASGI has no word for it, so uvicorn's own transport is taken from behind `send`."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None:
        return False
    transport.abort()
    await sleep(0.01)  # until the server has heard of it; it would answer 500 else
    return True
