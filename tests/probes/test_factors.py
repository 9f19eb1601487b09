"""A factor of several probes: one of those that have a name, at three steps, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.probes.factors import FactorRun, Held
from hooktrace.probes.weights import Cause

SLOTS: Any = ("bucket 0", "bucket 1")
SIZE = 4
KINDS: dict[float, Any] = {0.0: "other", -2.0: "other", 1.0: "average", -1.0: "unknown"}
"""A factor of 1 is the average's; 0, -1 and -2 stand for zeros, nothing known and much lost."""


def found(
    factors: list[float],
    steps: list[int] | None = None,
    slots: list[int] | None = None,
    **more: Any,
) -> list[tuple[str, list[int]]]:
    """Return the name and the steps it is told of, after each probe."""
    run, told = FactorRun(), []
    for place, factor in enumerate(factors):
        cause = Cause(KINDS.get(factor, "factor"), factor, **{"tight": 1e-6, "sure": True} | more)
        step = steps[place] if steps else place
        run.add(Held(SLOTS[slots[place] if slots else 0], step, 0, cause), SIZE)
        kind, held = run.named()
        told.append((kind, [one.step for one in held]))
    return told


NONE: tuple[str, list[int]] = ("", [])
TWO_BUCKETS: dict[str, Any] = {"steps": [0, 0, 1, 1, 2, 2], "slots": [0, 1, 0, 1, 0, 1]}


@pytest.mark.parametrize(("factor", "kind"), [(4.0, "not_averaged"), (0.25, "averaged_twice")])
def test_the_third_step_names_a_factor(factor: float, kind: str) -> None:
    """And is told of the first; later probes are told of themselves, and buckets of one step."""
    assert found([factor] * 4) == [NONE, NONE, (kind, [0]), (kind, [3])]
    assert found([factor] * 3, slots=[0, 1, 0])[2] == (kind, [0, 1])
    assert found([factor] * 4, steps=[1, 1, 1, 2], slots=[0, 1, 0, 1]) == [NONE] * 4


@pytest.mark.parametrize("between", [1.0, 0.0, 0.5, 4.0001, 0.25])
def test_a_run_ends_with_another_factor(between: float) -> None:
    """The average, no sum at all, and a factor that differs by more than it is known to."""
    assert found([4.0, 4.0, between, 4.0, 4.0]) == [NONE] * 5
    assert found([4.0, 4.0, -1.0, 4.0])[3] == ("not_averaged", [0])


def test_what_one_bucket_loses_does_not_hide_the_others() -> None:
    """8 bits of heavy tails, at each step; zeros are another matter, as of a hook that waits."""
    assert found([4.0, -2.0] * 3, **TWO_BUCKETS)[4] == ("not_averaged", [0])
    assert found([4.0, 0.0] * 3, **TWO_BUCKETS) == [NONE] * 6


def test_other_factors_have_no_name() -> None:
    """They may be clipping's, or meant."""
    assert found([0.4] * 9) == found([3.9] * 9) == [NONE] * 9


def test_one_over_the_world_size_is_not_divided_twice_where_ranks_may_be_missing() -> None:
    """Ranks with the same data: one rank's gradient over n looks like it."""
    assert found([0.25] * 3, sure=False) == [NONE] * 3
    assert found([4.0] * 3, sure=False)[2] == ("not_averaged", [0])
