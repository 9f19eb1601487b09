"""Facts of steps that stand for all, and how well a run's usual step is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.report.build_facts import noise_ns
from hooktrace.analysis.run import critical_path_sums
from tests.analysis.report.jobs import MS, write_kept
from tests.analysis.runs import run_in
from tests.analysis.told import BY_NUMBER, SLOW_OFTEN


def test_paths_are_of_steps_that_stand_for_all(tmp_path: Path) -> None:
    """As many as were asked for, though most steps have no buckets, and most that have are slow."""
    write_kept(tmp_path, SLOW_OFTEN, BY_NUMBER)
    sums = critical_path_sums(run_in(tmp_path), SLOW_OFTEN.model, most=60)
    assert sums.steps == 60
    transfer = sum(ns for (kind, _, _), ns in sums.ns.items() if kind == "transfer")
    assert transfer / sums.steps == pytest.approx((3 * 4.2 + 42) / 4 * MS, rel=0.3)


def test_independent_steps_give_the_medians_own_interval() -> None:
    """1.96 x 1.2533 sigma / sqrt(n), the interval of a normal median."""
    steps = np.random.default_rng(1).normal(100e6, 5e6, 4000)
    assert noise_ns(steps) == pytest.approx(1.96 * 1.2533 * 5e6 / 4000**0.5, rel=0.3)


def test_of_few_steps_nothing_is_known() -> None:
    found = [noise_ns(np.full(n, of)) for n, of in ((15, 1e6), (40, np.nan), (40, 1e6))]
    assert found == [None, None, 0]
