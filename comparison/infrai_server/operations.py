"""Every call the server takes, in one table; the discovery documents and the OpenAPI description are made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from comparison.infrai_server import returns
from comparison.infrai_server.contract import Contract
from comparison.infrai_server.models import Request, bounded
from comparison.infrai_server.problems import CODES

Json = Any
_GENERATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call."""

    id: str
    method: str
    path: str
    """What stands in braces is the last segment of the path."""
    returned: type[BaseModel]
    creates: bool = False
    """It makes a resource, so a strict service wants an idempotency key (X6)."""

    @property
    def prefix(self) -> str:
        """The path up to the resource's id."""
        return self.path.partition("{")[0]

    @property
    def targeted(self) -> bool:
        """Whether a resource's id stands in the path."""
        return "{" in self.path


def operations(contract: Contract) -> Mapping[str, Operation]:
    """All calls by id."""
    table = (
        Operation("queue.create", "POST", "/v1/queue/create", returns.Queue, creates=True),
        Operation("queue.publish", "POST", "/v1/queue/publish", returns.Published),
        Operation("queue.publish_batch", "POST", "/v1/queue/publish_batch", returns.PublishedBatch),
        Operation("queue.consume", "POST", "/v1/queue/consume", returns.consumed(contract)),
        Operation("queue.ack", "POST", "/v1/queue/ack", returns.Settled),
        Operation("queue.nack", "POST", "/v1/queue/nack", returns.Settled),
        Operation("queue.stats", "GET", "/v1/queue/stats/{queue}", returns.Stats),
        Operation("queue.dlq.redrive", "POST", "/v1/queue/dlq/redrive/{queue}", returns.Redriven),
        Operation("queue.push_subscribe", "POST", "/v1/queue/push_subscribe/{queue}", returns.Subscribed, creates=True),
        Operation("queue.delete", "DELETE", "/v1/queue/delete/{queue}", returns.Deleted),
        Operation("cron.create", "POST", "/v1/cron/create", returns.Job, creates=True),
        Operation("cron.get", "GET", "/v1/cron/get/{id}", returns.Job),
        Operation("cron.list", "GET", "/v1/cron/list", returns.Jobs),
        Operation("cron.pause", "POST", "/v1/cron/pause/{id}", returns.Job),
        Operation("cron.resume", "POST", "/v1/cron/resume/{id}", returns.Job),
        Operation("cron.trigger", "POST", "/v1/cron/trigger/{id}", returns.Run),
        Operation("cron.delete", "DELETE", "/v1/cron/delete/{id}", returns.JobDeleted),
        Operation("cron.runs.list", "GET", "/v1/cron/runs/list/{id}", returns.Runs),
    )
    return {operation.id: operation for operation in table}


class Documents:
    """What discovery says, made once for a contract."""

    def __init__(self, contract: Contract) -> None:
        self.operations = operations(contract)
        self.models: dict[str, type[Request]] = bounded(contract)

    def detail(self, name: str) -> Json:
        """One capability, unwrapped (X12, U34); None if there is none of this name."""
        operation = self.operations.get(name)
        if operation is None:
            return None
        return {
            **self._summary(operation),
            "params": self.models[name].model_json_schema(),
            "returns": operation.returned.model_json_schema(mode="serialization"),
            "errors": [
                {"code": code.name, "http": code.status, "retryable": code.retryable} for code in CODES.values()
            ],
            "examples": _examples(operation),
        }

    @cached_property
    def manifest(self) -> Json:
        """Every capability, unwrapped."""
        found = [self._summary(operation) for operation in self.operations.values()]
        return {"version": "v1", "generated_at": _GENERATED, "capabilities": found}

    @cached_property
    def openapi(self) -> Json:
        """The same as an OpenAPI 3.1 description, for tools that read one; Infrai is not known to publish one."""
        paths: dict[str, Json] = {}
        for operation in self.operations.values():
            paths.setdefault(operation.path, {})[operation.method.lower()] = self._described(operation)
        return {
            "openapi": "3.1.0",
            "info": {"title": "Infrai contract server", "version": "v1"},
            "paths": paths,
            "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
            "security": [{"key": []}],
        }

    def _described(self, operation: Operation) -> Json:
        answer = {
            "type": "object",
            "required": ["ok", "data", "error", "metadata"],
            "properties": {
                "ok": {"const": True},
                "data": _inlined(operation.returned.model_json_schema(mode="validation")),
                "error": {"type": "null"},
            },
        }
        failure = {
            "type": "object",
            "required": ["ok", "error"],
            "properties": {"ok": {"const": False}, "error": {"type": "object", "required": ["code", "hint"]}},
        }
        described: dict[str, Json] = {
            "operationId": operation.id,
            "responses": {
                "200": {"description": "done", "content": {"application/json": {"schema": answer}}},
                "default": {"description": "refused", "content": {"application/json": {"schema": failure}}},
            },
        }
        if operation.targeted:
            name = operation.path.partition("{")[2].rstrip("}")
            described["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}}]
        if operation.method == "POST":
            schema = _inlined(self.models[operation.id].model_json_schema())
            described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
        return described

    def _summary(self, operation: Operation) -> dict[str, Json]:
        return {
            "id": operation.id,
            "method": operation.method,
            "path": operation.path,
            "available": True,
            "regions": ["western"],
            "vendors": ["local"],
            "billing": {
                "is_billable": False,
                "free": True,
                "unit": "per_request",
                "price_usd": 0.0,
                "currency": "USD",
                "new_account_trial_uses": 0,
            },
        }


def _examples(operation: Operation) -> dict[str, str]:
    """One line in each of the four languages, against `$BASE`."""
    method, path = operation.method, operation.path
    sent = "" if method == "GET" else ", body: JSON.stringify({})"
    script = (
        f"await fetch(BASE + '{path}', {{method: '{method}', headers: {{Authorization: `Bearer ${{KEY}}`}}{sent}}})"
    )
    return {
        "curl": f'curl -X {method} "$BASE{path}" -H "Authorization: Bearer $INFRAI_API_KEY"',
        "python": f'session.request("{method}", BASE + "{path}", headers={{"Authorization": f"Bearer {{KEY}}"}})',
        "javascript": script,
        "typescript": script,
    }


def _inlined(schema: Json) -> Json:
    """A schema without `$defs`, whose references would point nowhere inside a larger document."""
    definitions = schema.get("$defs", {})

    def walk(value: Json) -> Json:
        if isinstance(value, dict):
            if "$ref" in value:
                return walk(definitions[value["$ref"].rpartition("/")[2]])
            return {name: walk(part) for name, part in value.items() if name != "$defs"}
        return [walk(part) for part in value] if isinstance(value, list) else value

    return walk(schema)
