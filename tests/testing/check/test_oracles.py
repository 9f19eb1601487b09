"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace.testing.check.oracles import OF_LARGE, Flaw, verdict

from . import near_misses  # noqa: F401 - makes more of them, as held_out does
from .invented import RIGHT, WRONG, Hook, Rank, Rounds, mean, times
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


SAID = {
    "maximum": ("wrong_gradients", "where float32 of every element explains 1e-05"),
    "unequal": ("wrong_gradients", "weigh 1.2 (rank 0 alone), 0.8 (rank 1 alone), 1 (all ranks"),
    "noisy": ("wrong_gradients", "the same gradients give results that differ by 0.01"),
    "drops_last": ("wrong_gradients", "an end of some parameters never comes in 27 steps"),
    "late": ("wrong_gradients", "nothing of a step's own gradients is in its result"),
    "feedback_twice": ("wrong_gradients", "the result has 2 times what earlier steps left out"),
    "int8_feedback_subtracted": ("wrong_gradients", "the result has -1 times what earlier steps"),
    "int8_zero_point_off": ("wrong_gradients", "levels of the quantiser are added to all"),
    "int8_times_1_03": ("wrong_scale", "weigh 1.03 (rank 0 alone), 1.03 (rank 1 alone)"),
    "int8_noisy": ("wrong_gradients", "and not by one level of a quantiser"),
    "top_summed": ("not_averaged", "weigh 2 (rank 0 alone), 2 (rank 1 alone), 2 (all ranks alike)"),
    "top_overwritten": ("wrong_gradients", "0.5 (all ranks alike) times what they should"),
    "top_without_last_rank": ("ranks_missing", "rank 1 alone: the result is zero in all of 27"),
    "ring_unequal": ("wrong_gradients", "weigh 1.1 (rank 0 alone), 0.9 (rank 1 alone), 1 (all"),
    "divided twice": ("averaged_twice", "the sum of all ranks is divided twice"),
    "minus": ("wrong_sign", "the result has the opposite sign"),
}
"""What kind of mistake a hook is, and a part of what is said of it."""


@pytest.mark.parametrize("name", SAID)
def test_a_mistake_is_named(name: str) -> None:
    """By what it leaves in the results."""
    made = {"divided twice": times(mean, 0.5), "minus": times(mean, -1.0)}
    found = failed(made.get(name) or WRONG[name], 2)
    assert found is not None
    assert found.kind == SAID[name][0]
    assert SAID[name][1] in found.what


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
