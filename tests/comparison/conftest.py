"""A contract server for each test, in both ways of answering a consume."""

from collections.abc import Iterator

import pytest

from tests.comparison.talking import Talk, talking


@pytest.fixture(params=["items", "messages"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    with talking(consume_key=request.param) as talk:
        yield talk
