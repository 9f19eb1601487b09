"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace.testing.check.oracles import OF_LARGE, Flaw, verdict

from . import near_misses  # noqa: F401 - makes more of them, as held_out does
from .invented import RIGHT, WRONG, Hook, Rank, Rounds, mean
from .simulate import simulated

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def failed(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook; that it sends more than it need only warns."""
    found = verdict(simulated(hook, size))
    return None if found is not None and found.kind == "no_compression" else found


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_hook_is_right(name: str, size: int) -> None:
    """Whatever it sends."""
    assert failed(RIGHT[name], size) is None


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_wrong(name: str, size: int) -> None:
    """Whatever it sends."""
    assert failed(WRONG[name], size) is not None


def failed_when_large(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook when gradients get large."""
    return verdict(simulated(hook, size, ("each",), (("ordinary", 8), ("large", 4))), OF_LARGE)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_hook_keeps_the_signs_of_large_gradients(name: str, size: int) -> None:
    """Also one that clips."""
    assert failed_when_large(RIGHT[name], size) is None


@pytest.mark.parametrize("size", [2, 4])
def test_a_range_that_is_too_small_shows_in_large_gradients(size: int) -> None:
    """It is right for gradients of up to 1."""

    def wraps(me: Rank, g: torch.Tensor) -> Rounds:
        return (yield from mean(me, (g * 127).to(torch.int32).to(torch.int8) / 127))

    found = failed_when_large(wraps, size)
    assert found is not None
    assert "larger elements come with the opposite sign" in found.what
