"""How well a run's usual step is known."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.report.build_facts import noise_ns


def test_independent_steps_give_the_medians_own_interval() -> None:
    """1.96 x 1.2533 sigma / sqrt(n), the interval of a normal median."""
    steps = np.random.default_rng(1).normal(100e6, 5e6, 4000)
    assert noise_ns(steps) == pytest.approx(1.96 * 1.2533 * 5e6 / 4000**0.5, rel=0.3)


def test_of_few_steps_nothing_is_known() -> None:
    found = [noise_ns(np.full(n, of)) for n, of in ((15, 1e6), (40, np.nan), (40, 1e6))]
    assert found == [None, None, 0]
