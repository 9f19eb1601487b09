"""Gradients without hooks, and what is around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.analysis.whatif.compute_samples import jitter_of

from .calibrated_run import MODEL, written
from .truth import Truth


@pytest.mark.parametrize("hook", ["fp16", "quantize-per-channel", "powersgd"])
def test_gradients_are_net_of_any_hook(hook: str, tmp_path: Path) -> None:
    """What the hook takes on the training thread is in no gradient's time, nor in the rest."""
    truth = Truth(hook=hook, noise=0.0, steps=30)
    found = read_calibration(written(truth, tmp_path), MODEL)
    known = truth.compute()
    np.testing.assert_allclose(found.compute.ready_ns, known.ready_ns, atol=20)
    assert found.compute.end_ns == pytest.approx(known.end_ns, abs=20)
    assert found.compute.rest_ns == pytest.approx(known.rest_ns, abs=20)


@pytest.mark.parametrize("buckets_of", [0, 6])
def test_calibrated_steps_may_be_slower(buckets_of: int, tmp_path: Path) -> None:
    """What settled steps take is what counts, of one bucket too."""
    truth = Truth(noise=0.0, steps=30, buckets_of=buckets_of, slower=1.5)
    found = read_calibration(written(truth, tmp_path), MODEL).compute
    known = truth.compute()
    np.testing.assert_allclose(found.ready_ns, known.ready_ns, rtol=0.02)
    assert found.rest_ns == pytest.approx(known.rest_ns, rel=0.02)


def test_jitter_is_what_ranks_differ_by() -> None:
    """Steps in which all are slow are no jitter; unknown ones are left out."""
    slow = np.array([[1.0, 9.0, np.nan], [1.0, 9.0, 5.0]])
    assert jitter_of(slow, 10.0) == 0
    random = np.random.default_rng(0)
    apart = random.normal(100, 3, (2, 4000)) + random.normal(0, 30, 4000)
    assert jitter_of(apart, 100.0) == pytest.approx(0.03, rel=0.1)
