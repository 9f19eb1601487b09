"""The launched groups that all tests of this folder share, by number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.harness import Ranks


@pytest.fixture(scope="session")
def two() -> Iterator[Ranks]:
    """Scenarios on 2 gloo ranks."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Scenarios on 4 gloo ranks."""
    ranks = Ranks(4)
    yield ranks
    ranks.close()
