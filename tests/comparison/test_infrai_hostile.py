"""Requests that no client would make: the server answers every one of them, as it says, and never with a 5xx."""

import logging
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from comparison.infrai_server.contract import Contract
from comparison.infrai_server.operations import Documents
from tests.comparison.talking import Talk, talking

DOCUMENTS = Documents(Contract())

schema = schemathesis.openapi.from_dict(DOCUMENTS.openapi)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Talk]:
    """One server for many requests, with queues that some of them hit."""
    with talking() as talk:
        talk.queue("dead")
        talk.queue("q", dead_letter_queue="dead")
        yield talk


def test_the_description_has_every_call() -> None:
    described = {f"{method.upper()} {path}" for path, one in DOCUMENTS.openapi["paths"].items() for method in one}
    assert described == {f"{operation.method} {operation.path}" for operation in DOCUMENTS.operations.values()}


def hit(case: Any, talk: Talk) -> None:
    """Let every other request mean something that is there; what is made up alone is mostly nowhere."""
    for fields in (case.path_parameters, case.body):
        if isinstance(fields, dict):
            if isinstance(fields.get("queue"), str) and len(fields["queue"]) % 2 == 0:
                fields["queue"] = "q"
            if isinstance(fields.get("id"), str) and len(fields["id"]) % 2 == 0:
                cron = {"cron_expr": "* * * * *", "task": "https://example.com/"}
                fields["id"] = talk("/v1/cron/create", cron).data["job_id"]


@schema.parametrize()
@hypothesis.settings(
    max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_nothing_that_can_be_sent_breaks_the_server(
    case: Any, hostile: Talk, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    hit(case, hostile)
    headers = {"Authorization": f"Bearer {hostile.server.key}"}
    case.call_and_validate(
        base_url=hostile.server.url, headers=headers, session=hostile.session,
        checks=[not_a_server_error, response_schema_conformance],
    )  # fmt: skip
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
