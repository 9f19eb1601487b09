"""Intervals of series whose steps depend on each other: how often they are wrong, counted."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.run.bootstrap import (
    MEDIAN,
    Floats,
    Series,
    block_length,
    interval,
    politis_white,
)


def autoregressive(random: np.random.Generator, phi: float, steps: int) -> Floats:
    """Return an AR(1) series of standard deviation 1 about 0."""
    noise = random.standard_normal(steps + 100)
    found = np.zeros(steps + 100)
    for i in range(1, len(found)):
        found[i] = phi * found[i - 1] + noise[i]
    return found[100:] * np.sqrt(1 - phi**2)


def share_called_different(phi: float, apart: float, pairs: int, steps: int = 100) -> float:
    """Return how often two series of mean 100, 3 % noise, ``apart`` from each other differ."""
    random = np.random.default_rng(7)
    called = 0
    for i in range(pairs):
        a, b = (100 + 3 * autoregressive(random, phi, steps) for _ in range(2))
        both = enumerate((a, b + apart), 2 * i)
        low, high = interval(*(Series(x, x, MEDIAN).resampled(seed) for seed, x in both))
        called += not low <= 0 <= high
    return called / pairs


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.6, 0.8])
def test_equal_runs_are_called_different_in_5_percent(phi: float) -> None:
    """Of 150 pairs, up to 8 %: a sample of about 5 %."""
    assert share_called_different(phi, 0.0, 150) <= 0.08


def test_a_difference_of_5_percent_is_found() -> None:
    assert share_called_different(0.6, 5.0, 40) == 1.0


def test_blocks_are_longer_where_steps_depend() -> None:
    """Of noise as long as n^(1/3); about the best length of AR(1), 1.5 (2 p / (1 - p^2))^2 n."""
    random = np.random.default_rng(3)
    assert block_length(random.standard_normal(1000)) == 10
    found = [politis_white(autoregressive(random, 0.8, 2000)) for _ in range(20)]
    best = (1.5 * (2 * 0.8 / (1 - 0.64)) ** 2 * 2000) ** (1 / 3)
    assert np.median(found) == pytest.approx(best, rel=0.35)
    assert block_length(np.full(64, 3.7e8)) == 4
