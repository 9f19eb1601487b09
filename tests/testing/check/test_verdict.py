"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace.testing.check.verdict import verdict

from .invented import RIGHT, WRONG
from .simulate import simulated

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_hook_is_right(name: str, size: int) -> None:
    """Whatever it sends."""
    assert verdict(simulated(RIGHT[name], size)) is None


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_wrong(name: str, size: int) -> None:
    """Whatever it sends."""
    assert verdict(simulated(WRONG[name], size)) is not None
