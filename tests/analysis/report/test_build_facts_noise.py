"""How well a run's usual step is known."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.report.build_facts import noise_ns


def test_independent_steps_give_the_medians_own_interval() -> None:
    """1.96 x 1.2533 sigma / sqrt(n), the interval of a normal median."""
    steps = np.random.default_rng(1).normal(100e6, 5e6, 4000)[None]
    assert noise_ns(steps) == pytest.approx(1.96 * 1.2533 * 5e6 / 4000**0.5, rel=0.3)


def test_steps_that_follow_each_other_tell_less() -> None:
    """The same number of steps in runs of 20 alike are a twentieth as many."""
    random = np.random.default_rng(2)
    alone = noise_ns(random.normal(100e6, 5e6, 2000)[None])
    alike = noise_ns(np.repeat(random.normal(100e6, 5e6, 100), 20)[None])
    assert alone is not None
    assert alike is not None
    assert alike > 2 * alone


def test_of_few_steps_nothing_is_known() -> None:
    assert noise_ns(np.full((2, 15), 1e6)) is None
    assert noise_ns(np.full((2, 40), 1e6)) == 0
    assert noise_ns(np.full((2, 40), np.nan)) is None
