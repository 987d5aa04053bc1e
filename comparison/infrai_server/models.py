"""What each call takes: the models that validate requests, and from which the discovery documents are made."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, create_model
from pydantic.fields import FieldInfo

from comparison.infrai_server.contract import LIMITS, Contract

Json = Any
Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
"""U13."""
Text = Annotated[StrictStr, Field(min_length=1, max_length=2048)]
Whole = StrictInt
Headers = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")],
    Annotated[StrictStr, Field(pattern=r"^[ -~]*$", max_length=1024)],
]
JsonObject = dict[str, Any]


class Request(BaseModel):
    """A call's body. Unknown fields are refused: a misspelt one would otherwise change nothing, unseen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    idempotency_key: Annotated[StrictStr, Field(min_length=1, max_length=255)] | None = None


class CreateQueue(Request):
    """queue.create."""

    name: Name
    type: Literal["standard", "fifo"] = "standard"
    dead_letter_queue: Name | None = None
    max_retries: Annotated[Whole, Field(ge=0, le=1000)] | None = None
    message_retention_days: Annotated[Whole, Field(ge=1)] | None = None
    visibility_timeout_default: Annotated[Whole, Field(ge=1)] | None = None
    enable_priority: StrictBool = False


class MessageFields(BaseModel):
    """What is published, alone or in a batch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    payload: JsonObject
    delay_seconds: Annotated[Whole, Field(ge=0)] = 0
    priority: Annotated[Whole, Field(ge=0)] = 0
    message_group_id: Annotated[StrictStr, Field(min_length=1, max_length=128)] | None = None
    deduplication_id: Annotated[StrictStr, Field(min_length=1, max_length=128)] | None = None
    headers: Headers | None = None


class Publish(MessageFields, Request):
    """queue.publish."""

    queue: Name


class PublishBatch(Request):
    """queue.publish_batch (U5)."""

    queue: Name
    messages: Annotated[list[MessageFields], Field(min_length=1)]


class Consume(Request):
    """queue.consume."""

    queue: Name
    max_messages: Annotated[Whole, Field(ge=1)] = 1
    visibility_timeout: Annotated[Whole, Field(ge=1)] | None = None


class Ack(Request):
    """queue.ack."""

    queue: Name
    message_id: Text


class Nack(Ack):
    """queue.nack (U9)."""

    delay_seconds: Annotated[Whole, Field(ge=0)] = 0


class OfQueue(Request):
    """A call whose queue stands in the path, and may be repeated in the body."""

    queue: Name | None = None


class PushSubscribe(OfQueue):
    """queue.push_subscribe."""

    url: Text
    secret: Text | None = None
    visibility_timeout: Annotated[Whole, Field(ge=1)] = 60
    max_retries: Annotated[Whole, Field(ge=0, le=1000)] = 5
    dead_letter_queue: Name | None = None


class CreateCron(Request):
    """cron.create, in each of the three spellings that public material shows (X2)."""

    name: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = None
    cron_expr: Text | None = None
    schedule: Text | None = None
    run_at: Text | None = None
    task: Text | None = None
    url: Text | None = None
    task_type: Literal["http_url"] | None = None
    task_url: Text | None = None
    timezone: Text = "UTC"
    timeout_seconds: Annotated[Whole, Field(ge=1)] = 300
    retry: Annotated[Whole, Field(ge=1, le=100)] | None = None
    retries: Annotated[Whole, Field(ge=1, le=100)] | None = None
    overlap_policy: Literal["skip", "allow", "queue"] = "skip"
    max_runs: Annotated[Whole, Field(ge=1)] | None = None
    payload: Json = None
    headers: Headers | None = None
    secret: Text | None = None
    on_failure_webhook: Text | None = None


MODELS: Mapping[str, type[Request]] = {
    "queue.create": CreateQueue,
    "queue.publish": Publish,
    "queue.publish_batch": PublishBatch,
    "queue.consume": Consume,
    "queue.ack": Ack,
    "queue.nack": Nack,
    "queue.stats": Request,
    "queue.dlq.redrive": OfQueue,
    "queue.push_subscribe": PushSubscribe,
    "queue.delete": OfQueue,
    "cron.create": CreateCron,
    "cron.get": Request,
    "cron.list": Request,
    "cron.pause": Request,
    "cron.resume": Request,
    "cron.trigger": Request,
    "cron.delete": Request,
    "cron.runs.list": Request,
}

Model = TypeVar("Model", bound=BaseModel)
_ALSO = {
    "longest_delay": [("queue.publish_batch", "delay_seconds"), ("queue.nack", "delay_seconds")],
    "highest_priority": [("queue.publish_batch", "priority")],
    "lease_longest": [("queue.create", "visibility_timeout_default"), ("queue.push_subscribe", "visibility_timeout")],
}
"""Other fields a limit holds for, besides the one that a live document states it for."""
_WORDS = {"maximum": "le", "maxItems": "max_length"}


def bounded(contract: Contract) -> dict[str, type[Request]]:
    """The models with the contract's limits in them."""
    found = {name: _limited(model, _limits_of(contract, name)) for name, model in MODELS.items()}
    element = _limited(MessageFields, _limits_of(contract, "queue.publish_batch"))
    batch = found["queue.publish_batch"]
    messages: Any = Annotated[_list_of(element), *batch.model_fields["messages"].metadata]
    found["queue.publish_batch"] = create_model("PublishBatch", __base__=batch, messages=(messages, ...))
    return found


def _list_of(element: Any) -> Any:
    return list[element]


def _limits_of(contract: Contract, capability: str) -> dict[str, dict[str, int]]:
    """By field: what pydantic is told of it."""
    limits: dict[str, dict[str, int]] = {}
    for row, (owner, field, keyword) in LIMITS.items():
        for where, name in [(owner, field), *_ALSO.get(row, [])]:
            if where == capability:
                limits.setdefault(name, {})[_WORDS.get(keyword, keyword)] = getattr(contract, row)
    return limits


def _limited(model: type[Model], limits: Mapping[str, Mapping[str, int]]) -> type[Model]:
    changed: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in limits:
            words = dict(limits[name])
            default = words.pop("default", field.default)
            changed[name] = (_narrowed(field, words), ... if field.is_required() else default)
    return create_model(model.__name__, __base__=model, **changed) if changed else model


def _narrowed(field: FieldInfo, words: Mapping[str, Any]) -> Any:
    inner: Any = field.annotation
    if field.metadata:
        inner = Annotated[inner, *field.metadata]
    if type(None) in get_args(field.annotation):
        [some] = [part for part in get_args(field.annotation) if part is not type(None)]
        return Annotated[some, Field(**words)] | None
    return Annotated[inner, Field(**words)] if words else inner
