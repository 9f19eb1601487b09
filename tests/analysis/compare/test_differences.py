"""When two sides differ, when they are not shown to, and when nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.compare.comparison import Difference
from hooktrace.analysis.compare.differences import Table, differences
from hooktrace.analysis.run.bootstrap import MEDIAN, Floats


def noise(seed: int, mean: float = 100.0, steps: int = 100) -> Floats:
    return np.random.default_rng(seed).normal(mean, 2.0, steps)


def difference(a: Floats, b: Floats) -> Difference:
    (found,) = differences(Table.of(a), Table.of(b), MEDIAN)
    return found


def test_few_steps_are_unknown() -> None:
    found = difference(noise(0, steps=39), noise(1, 150))
    assert found.verdict == "unknown"
    assert found.why == "39 steps are too few to tell how they vary; 40 are needed"
    assert found.difference == pytest.approx(50, abs=2)
    assert difference(noise(0), np.zeros(0)).why == "one of the runs has no such number"


def test_a_difference_has_an_interval() -> None:
    found = difference(noise(0), noise(1, 110))
    assert found.differs
    assert (found.low or 0) < 10 < (found.high or 0) < 12
    assert found.share == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("steps", [(4300, 5200), (5200, 4300), (400, 20_000)])
def test_long_runs_of_unequal_length_are_compared(steps: tuple[int, int]) -> None:
    """Fewer resamples are drawn of long runs, and as many of either."""
    found = difference(noise(0, steps=steps[0]), noise(1, 110, steps[1]))
    assert found.differs
    assert found.difference == pytest.approx(10, abs=0.5)


def test_a_run_that_drifts_by_more_shows_nothing() -> None:
    """Half a run at another speed: the machine did something else, and may do so again."""
    step = np.concatenate([noise(0), noise(2, 130)])
    found = difference(step, noise(1, 105, 200))
    assert not found.differs
    halves = noise(0, 100, 400) + np.repeat([-0.8, 0.8], 200)
    shown = difference(halves, noise(1, 101, 400))
    assert shown.drifts
    assert (shown.low or 0) > 0
    assert shown.why == "the halves of one run differ by more than the runs do"
