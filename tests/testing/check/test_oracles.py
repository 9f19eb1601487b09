"""Invented hooks, right and wrong, on two and on four simulated ranks: none is misjudged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from hooktrace.records import Transfer
from hooktrace.testing.check.gradients import CHOSEN, MANY, Phases, Who, lengths_of_shapes
from hooktrace.testing.check.oracles import OF_LOSSY, ORACLES, Flaw, verdict
from hooktrace.testing.check.runs import Run

from .invented import RIGHT, WRONG, Bucket, Hook, before, mean, times

pytestmark = [pytest.mark.slow, pytest.mark.long]

LENGTHS = lengths_of_shapes(MANY)
BUCKETS = [sum(pair) for pair in zip(LENGTHS[::2], LENGTHS[1::2], strict=True)]
MISSED = {
    "int8_zero_point_off_by_one",
    "int8_of_a_fixed_range_with_feedback",
    "int8_drops_at_random",  # gives each element two values, as chance that rounds does
    "top_noisy",
}
"""What they do to a gradient is less than what 8 bits, or a sparse hook, may lose: 4 of 125."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def simulated(
    hook: Hook, size: int, asked: Sequence[Who] | None = None, phases: Phases = CHOSEN
) -> list[Run]:
    """Return the runs of a hook on so many ranks, through the scenario of chosen gradients."""
    return [_run_of(hook, who, size, phases) for who in asked or (0, size - 1, "alike")]


def _run_of(hook: Hook, who: Who, size: int, phases: Phases) -> Run:
    buckets = [Bucket(size, number) for number in range(8)]

    def call(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[Transfer]]:
        parts = zip(buckets, rows.split(BUCKETS, 1), strict=True)
        result = torch.cat([hook(bucket, given) for bucket, given in parts])
        sent = [transfer for bucket in buckets for transfer in bucket.sent]
        for bucket in buckets:
            bucket.step += 1
            bucket.sent.clear()
        return result, rows, sent

    run = Run(call, who, MANY, LENGTHS, size, float(size))
    run.play(*phases)
    return run


def failed(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook; that it sends more than it need only warns."""
    found = verdict(simulated(hook, size), ORACLES)
    return None if found is not None and found.kind == "no_compression" else found


def failed_when_large(hook: Hook, size: int) -> Flaw | None:
    """Return what fails a hook when gradients get large."""
    return verdict(simulated(hook, size, ("each",), (("ordinary", 8), ("large", 4))), OF_LOSSY)


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

SAID = {
    "maximum": "where float32 of every element explains 1e-05",
    "unequal": "weigh 1.2 (rank 0 alone), 0.8 (rank 1 alone), 1 (all ranks",
    "late": "nothing of a step's own gradients is in its result",
    "feedback_twice": "the result has 2 times what earlier steps left out",
    "adds_a_little": "all gradients are zeros, and the result is not",
    "top_without_last_element": "an end of some parameters, or a whole one, never comes",
    "top_overwritten": "0.5 (all ranks alike) times what they should",
    "top_without_last_rank": "rank 1 alone: the result is zero in all of 27",
}
"""A part of what is said of a mistake on two ranks: one for each oracle."""


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_hook_is_wrong_in_its_way(name: str, size: int) -> None:
    """Whatever it sends; those whose loss hides in what the bytes may lose are missed."""
    found = failed(WRONG[name], size)
    if name in MISSED:
        assert found is None
        return
    assert found is not None
    kinds = [kind for kind, names in KINDS.items() if name in names]
    assert found.kind == (kinds[0] if kinds else "wrong_gradients"), found
    assert size != 2 or SAID.get(name, "") in found.what


@pytest.mark.parametrize("size", [2, 4])
def test_a_sign_and_a_range_that_is_too_small(size: int) -> None:
    """The range is right for gradients of up to 1."""
    found = failed(times(mean, -1.0), size)
    assert found is not None
    assert found.kind == "wrong_sign"
    wraps = before(mean, lambda b, g: (g * 127).to(torch.int32).to(torch.int8) / 127)
    found = failed_when_large(wraps, size)
    assert found is not None
    assert "look at casts to integers" in found.what
