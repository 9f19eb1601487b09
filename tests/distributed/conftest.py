"""The launched groups that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.distributed.harness import Ranks


@pytest.fixture(scope="session")
def groups() -> Iterator[dict[int, Ranks]]:
    """Scenarios on 2 and on 4 gloo ranks, which are launched for the first of them."""
    with ExitStack() as stack:
        made = {count: Ranks(count) for count in (2, 4)}
        for ranks in made.values():
            stack.callback(ranks.close)
        yield made
