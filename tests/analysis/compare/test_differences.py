"""When two sides differ, when they are not shown to, and when nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.compare.bootstrap import MEDIAN, Floats
from hooktrace.analysis.compare.comparison import Difference
from hooktrace.analysis.compare.differences import (
    MOST_RUNS,
    Table,
    differences,
    paired,
    runs_needed,
)


def noise(seed: int, mean: float = 100.0, steps: int = 100) -> Floats:
    return np.random.default_rng(seed).normal(mean, 2.0, steps)


def difference(a: list[Floats], b: list[Floats]) -> Difference:
    (found,) = differences([Table.of(x) for x in a], [Table.of(x) for x in b], MEDIAN)
    return found


def test_constants_are_compared_exactly() -> None:
    """As bytes are."""
    same = difference([np.full(5, 3.0)], [np.full(9, 3.0)])
    half = difference([np.full(5, 4.0)], [np.full(9, 2.0)])
    assert (same.verdict, same.difference) == ("same", 0.0)
    assert (half.verdict, half.low, half.high, half.share) == ("differs", -2.0, -2.0, -0.5)


def test_few_steps_are_unknown() -> None:
    """With the reason, and with the medians."""
    found = difference([noise(0, steps=39)], [noise(1, 150)])
    assert found.verdict == "unknown"
    assert found.why == "39 steps are too few to tell how they vary; 40 are needed"
    assert found.difference == pytest.approx(50, abs=2)
    assert difference([noise(0)], [np.zeros(0)]).why == "one of the runs has no such number"


def test_a_difference_has_an_interval() -> None:
    """In its unit and as a share of the first."""
    found = difference([noise(0)], [noise(1, 110)])
    assert found.differs
    assert (found.low or 0) < 10 < (found.high or 0) < 12
    assert found.share == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("steps", [(4300, 5200), (5200, 4300), (400, 20_000)])
def test_long_runs_of_unequal_length_are_compared(steps: tuple[int, int]) -> None:
    """Fewer resamples are drawn of long runs, and as many of either."""
    found = difference([noise(0, steps=steps[0])], [noise(1, 110, steps[1])])
    assert found.differs
    assert found.difference == pytest.approx(10, abs=0.5)


def test_a_run_that_drifts_by_more_shows_nothing() -> None:
    """Half a run at another speed: the machine did something else, and may do so again."""
    step = np.concatenate([noise(0), noise(2, 130)])
    found = difference([step], [noise(1, 105, 200)])
    assert not found.differs
    assert found.drift_a == pytest.approx(30, abs=2)
    halves = noise(0, 100, 400) + np.repeat([-0.8, 0.8], 200)
    shown = difference([halves], [noise(1, 101, 400)])
    assert shown.drifts
    assert (shown.low or 0) > 0
    assert shown.why == "the halves of one run differ by more than the runs do"


def test_runs_are_the_units_of_several() -> None:
    """Welch's t over the medians of runs: here 100, 102 and 110, 112, 4.303 of 2 degrees."""
    sides = [[np.full(50, x) for x in side] for side in ((100.0, 102.0), (110.0, 112.0))]
    found = difference(*sides)
    assert (found.a, found.b, found.difference) == (101, 111, 10)
    wide = 4.303 * np.sqrt(1 + 1)
    assert found.low == pytest.approx(10 - wide)
    assert found.high == pytest.approx(10 + wide)
    assert found.share_low == pytest.approx((10 - wide) / 101)
    assert found.differs


def test_noise_between_runs_is_in_the_interval() -> None:
    """Each run's steps are quiet, and the runs are far from each other."""
    sides = [[noise(i, mean) for i, mean in enumerate(side)] for side in ((90, 110), (95, 120))]
    assert difference(*sides).verdict == "not shown"
    assert difference(sides[0][:1], sides[1][:1]).verdict == "differs"


def test_one_run_beside_several_has_their_spread() -> None:
    """1.41 sqrt(1 / 2 + 1), t of 1 degree."""
    found = difference([np.full(50, 100.0), np.full(50, 102.0)], [np.full(50, 111.0)])
    assert found.high == pytest.approx(10 + 12.706 * np.sqrt(2) * np.sqrt(1.5))


def test_how_many_runs_tell_a_difference() -> None:
    """By the spread of those that there are: here standard deviations of 2."""
    assert runs_needed(2, 2) == 17  # (2.04 + 0.84) 2 sqrt(2 / 17) < 2
    assert runs_needed(-10, 2) == 3
    assert runs_needed(1, 2) == MOST_RUNS + 1
    assert runs_needed(0, 2) is None
    a, b = ([np.full(50, x) for x in (m - 2, m, m + 2)] for m in (100.0, 102.0))
    assert difference(a, b).runs_needed == 17


@pytest.mark.slow
def test_as_many_runs_as_are_said_tell_it_in_four_of_five_tries() -> None:
    """Counted, for runs whose medians are normal."""
    random, told = np.random.default_rng(5), 0
    runs = runs_needed(1.5, 1.0)
    for _ in range(400):
        sides = [[np.full(2, x) for x in random.normal(m, 1, runs)] for m in (0, 1.5)]
        told += difference(*sides).differs
    assert told / 400 == pytest.approx(0.8, abs=0.08)


def test_one_run_a_side_says_the_least_number() -> None:
    """By its steps, and by how far its own halves are apart."""
    assert difference([noise(0)], [noise(1, 110)]).runs_needed == 2
    drifts = np.concatenate([noise(0), noise(2, 130)])
    assert difference([drifts], [noise(1, 105, 200)]).runs_needed == 31  # 15 for 10 apart


def test_nothing_known_of_a_side_is_unknown() -> None:
    """Also of several runs."""
    found = difference([noise(0), noise(1)], [np.zeros(0)])
    assert (found.verdict, found.b) == ("unknown", None)


def test_paired_steps_need_no_equal_level() -> None:
    """A loss falls all the time, and yet its difference step by step is the same."""
    falling = np.linspace(10, 1, 100)
    found = paired(falling, falling + noise(0, 5) / 1000)
    assert found.differs
    assert found.difference == pytest.approx(0.005, rel=0.2)
    assert paired(falling, falling).verdict == "same"
    assert paired(falling, falling + noise(1, 0) / 10).verdict == "not shown"
