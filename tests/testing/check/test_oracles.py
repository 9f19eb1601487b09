"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace.testing.check.oracles import CHOSEN_ASKED, OF_LARGE, Flaw, verdict

from .invented import RIGHT, WRONG, Hook, Rank, Rounds, mean, times
from .simulate import simulated

pytestmark = [pytest.mark.slow, pytest.mark.long]

MISSED = {
    "int8_zero_point_off_by_one",
    "int8_of_a_fixed_range_with_feedback",
    "int8_drops_at_random",  # gives each element two values, as chance that rounds does
}
"""What they do to a gradient is less than what 8 bits may lose."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def failed(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook; that it sends more than it need only warns."""
    found = verdict(simulated(hook, size), CHOSEN_ASKED)
    return None if found is not None and found.kind == "no_compression" else found


def failed_when_large(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook when gradients get large."""
    return verdict(simulated(hook, size, ("each",), (("ordinary", 8), ("large", 4))), OF_LARGE)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_hook_is_right(name: str, size: int) -> None:
    """Whatever it sends."""
    assert failed(RIGHT[name], size) is None


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_hook_is_right_when_gradients_are_large(name: str) -> None:
    """Also one that clips."""
    assert failed_when_large(RIGHT[name], 2) is None


KINDS = {
    "ranks_missing": {
        *("of_one_rank", "without_one_rank", "int8_first_scale"),
        *("top_of_one_rank", "top_without_last_rank", "ring_without_one_rank"),
    },
    "not_averaged": {
        *("summed", "int8_summed", "top_summed", "low_rank_summed", "low_rank_feedback_summed"),
    },
    "averaged_twice": {"averaged_twice"},
    "wrong_scale": {
        *("nine_tenths", "loss_scale", "decays", "qsgd_times_1_04", "float8_times_1_04"),
        *("int8_times_1_03", "int8_times_0_96", "int8_by_chance_times_1_04"),
        *("int8_of_a_level_too_many", "top_times_1_1", "low_rank_times_1_1", "ring_times_1_1"),
        *("random_scaled_twice", "random_and_scaled_times_1_05"),
    },
}
"""The kinds that name a mistake, and whose mistake that is; the others' results are just wrong."""


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_wrong_in_its_way(name: str, size: int) -> None:
    """Whatever it sends; those whose loss hides in what 8 bits may lose are missed."""
    found = failed(WRONG[name], size)
    if name in MISSED:
        assert found is None
        return
    assert found is not None
    kinds = [kind for kind, names in KINDS.items() if name in names]
    assert found.kind == (kinds[0] if kinds else "wrong_gradients"), found


SAID = {
    "maximum": "where float32 of every element explains 1e-05",
    "unequal": "weigh 1.2 (rank 0 alone), 0.8 (rank 1 alone), 1 (all ranks",
    "late": "nothing of a step's own gradients is in its result",
    "feedback_twice": "the result has 2 times what earlier steps left out",
    "adds_a_little": "all gradients are zeros, and the result is not",
    "int8_noisy": "and not by one level of a quantiser",
    "top_without_last_element": "an end of some parameters, or a whole one, never comes",
    "top_overwritten": "0.5 (all ranks alike) times what they should",
    "top_without_last_rank": "rank 1 alone: the result is zero in all of 27",
}
"""A part of what is said of a mistake: one for each oracle."""


@pytest.mark.parametrize("name", SAID)
def test_a_mistake_is_told_with_its_number(name: str) -> None:
    """By what it leaves in the results."""
    found = failed(WRONG[name], 2)
    assert found is not None
    assert SAID[name] in found.what


def test_a_sign_is_named() -> None:
    """The other factors are those of hooks above."""
    found = failed(times(mean, -1.0), 2)
    assert found is not None
    assert found.kind == "wrong_sign"


@pytest.mark.parametrize("size", [2, 4])
def test_a_range_that_is_too_small_shows_in_large_gradients(size: int) -> None:
    """It is right for gradients of up to 1."""

    def wraps(me: Rank, g: torch.Tensor) -> Rounds:
        return (yield from mean(me, (g * 127).to(torch.int32).to(torch.int8) / 127))

    found = failed_when_large(wraps, size)
    assert found is not None
    assert "look at casts to integers" in found.what
