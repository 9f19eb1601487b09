"""A clock server for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ranks.servers import S, Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that is 7 s ahead."""
    made = Server(7 * S)
    yield made
    made.server.close()
