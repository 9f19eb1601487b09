"""A factor of several probes: one and the same, or clipping's."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.probes.factors import FactorRun, Held
from hooktrace.probes.weights import Cause

SLOTS: Any = ("bucket 0", "bucket 1")
SIZE = 4


def found(
    factors: list[float],
    *,
    norms: list[float] | None = None,
    steps: list[int] | None = None,
    slots: list[int] | None = None,
    sure: bool = True,
    tight: float = 1e-6,
    wide: float = 1e-5,
) -> list[tuple[str, list[int]]]:
    """Return the name and the steps it is told of, after each probe.

    A factor of 1 is the average's; 0, -1 and -2 stand for zeros, nothing known and much lost.
    """
    run, told = FactorRun(), []
    for place, factor in enumerate(factors):
        kind = {0.0: "other", -2.0: "other", 1.0: "average", -1.0: "unknown"}.get(factor, "factor")
        ranks = tuple(range(SIZE))
        cause = Cause(kind, factor, tight, wide, ranks, sure)  # type: ignore[arg-type]
        step = steps[place] if steps else place
        slot = SLOTS[slots[place]] if slots else SLOTS[0]
        run.add(Held(slot, step, 0, cause, norms[place] if norms else 1 + 0.1 * place), SIZE)
        kind, held = run.named(SIZE)
        told.append((kind, [one.step for one in held]))
    return told


NONE: tuple[str, list[int]] = ("", [])


def test_the_third_step_names_a_factor() -> None:
    """And is told of the first; later probes are told of themselves."""
    assert found([0.4] * 4) == [NONE, NONE, ("wrong_scale", [0]), ("wrong_scale", [3])]
    assert found([4.0] * 3)[2] == ("not_averaged", [0])
    assert found([0.25] * 3)[2] == ("averaged_twice", [0])
    assert found([0.4] * 3, slots=[0, 1, 0])[2] == ("wrong_scale", [0, 1])


@pytest.mark.parametrize("between", [1.0, 0.0, 0.5, 0.4001])
def test_a_run_ends_with_another_factor(between: float) -> None:
    """The average, no sum at all, and a factor that differs by more than it is known to."""
    assert found([0.4, 0.4, between, 0.4, 0.4]) == [NONE] * 5
    assert found([0.4, 0.4, -1.0, 0.4])[3] == ("wrong_scale", [0])


def test_what_one_bucket_loses_does_not_hide_the_others() -> None:
    """8 bits of heavy tails, at each step; zeros are another matter, as of a hook that waits."""
    lossy = {"steps": [0, 0, 1, 1, 2, 2], "slots": [0, 1, 0, 1, 0, 1]}
    assert found([4.0, -2.0] * 3, **lossy)[4] == ("not_averaged", [0])  # type: ignore[arg-type]
    assert found([4.0, 0.0] * 3, **lossy) == [NONE] * 6  # type: ignore[arg-type]


def test_buckets_of_one_step_are_one_witness() -> None:
    """A norm over all of them clips them alike."""
    assert found([0.4] * 4, steps=[1, 1, 1, 2], slots=[0, 1, 0, 1]) == [NONE] * 4


def test_a_factor_of_gradients_that_stay_as_they_are_may_be_clipping() -> None:
    """Unless it is the world size, or one over it, which clipping meets by chance only."""
    assert found([0.4] * 9, norms=[2.0] * 9) == [NONE] * 9
    assert found([0.4] * 4, norms=[2.0, 2.0, 2.0, 2.1])[3] == ("wrong_scale", [0])
    assert found([4.0] * 3, norms=[2.0] * 3)[2] == ("not_averaged", [0])


def test_one_over_the_world_size_is_not_divided_twice_where_ranks_may_be_missing() -> None:
    """Ranks with the same data: one rank's gradient over n looks like it."""
    assert found([0.25] * 3, sure=False)[2] == ("wrong_scale", [0])


def test_a_factor_near_to_1_takes_more_steps_the_less_it_is_known() -> None:
    """Adasum's is nearly the same from step to step."""
    kinds = [kind for kind, _ in found([1.03] * 30, tight=5e-4)]
    assert kinds == [""] * 11 + ["wrong_scale"] * 19
    kinds = [kind for kind, _ in found([1.5] * 6, tight=1e-3)]
    assert kinds == [""] * 4 + ["wrong_scale"] * 2


def test_a_sum_that_is_not_known_well_is_called_nothing_else() -> None:
    """Only what rules n out is another factor."""
    assert found([3.97] * 3, wide=0.1)[2] == NONE
    assert found([3.97] * 3, wide=0.01)[2] == NONE
    assert found([3.9] * 3, wide=0.05)[2] == ("wrong_scale", [0])


def test_norms_that_are_not_finite_show_nothing() -> None:
    """Half a step of NaN is no proof of anything."""
    assert found([0.4] * 3, norms=[1.0, float("inf"), float("nan")]) == [NONE] * 3
