"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace.testing.check.verdict import verdict

from . import near_misses  # noqa: F401 - makes more of them, as held_out does
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


SAID = {
    "weight_decay": "while gradients are zeros, all results are the same one",
    "momentum": "gradients of zeros give a result that is not zero, and the step before is in it",
    "int8_late": "has the average of the step before it",
    "top_feedback_of_another_bucket": "of the result; add what was left out once",
    "top_without_last_element": "some elements never arrive in 28 steps, at the end of a parameter",
    "int8_times_1_03": "the ranks' gradients weigh 1.03, 1.03 times what they should",
    "int8_noisy": "the same gradients give results that differ by",
    "int8_of_a_fixed_range_with_feedback": "a quantiser's range must reach the largest",
    "sign_as_bytes": "different values; spread a quantiser's levels over the values",
    "top_overwritten": "the same elements arrive in each step, and in them 1 of 2 ranks' values",
    "random_overwritten": "no element is of several ranks in 24 steps",
    "low_rank_unequal": "the ranks' gradients weigh 1.1, 0.9 times what they should",
    "top_noisy": "the same gradients give the same elements, with values that differ by",
    "clips_everything": "larger ones smaller still, as of clipping by a norm that all gradients",
}
"""Parts of what is said of a mistake: nothing that it has not done."""


@pytest.mark.parametrize("name", SAID)
def test_a_mistake_is_called_by_its_own_name(name: str) -> None:
    """Or by none."""
    found = verdict(simulated(WRONG[name], 2))
    assert found is not None
    assert SAID[name] in f"{found.what}; {found.remedy}"
    assert found.only_warns == (name == "clips_everything")
