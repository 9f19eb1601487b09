"""All that a calibration is made of comes back from the files of a run of which one knows it."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration

from .calibrated_run import MODEL
from .truth import Truth


def test_truth_comes_back(truth: Truth, calibrated: Timeline) -> None:
    """Gradients net of hooks, what is around them, the machine, and the run's own steps."""
    found = read_calibration(calibrated, MODEL)
    known = truth.compute()
    assert [p.name for p in found.compute.parameters] == [p.name for p in known.parameters]
    np.testing.assert_allclose(found.compute.ready_ns, known.ready_ns, atol=10)
    assert found.compute.end_ns == pytest.approx(known.end_ns, abs=10)
    assert found.compute.rest_ns == pytest.approx(known.rest_ns, abs=10)
    assert found.compute.jitter == pytest.approx(0, abs=1e-6)
    assert found.machine.cores == truth.machine.cores
    assert found.machine.call_ns == pytest.approx(truth.machine.call_ns, abs=5)
    assert [list(rows) for rows in found.buckets] == truth.buckets
    assert (found.hook, found.ranks, found.backend) == ("allreduce", 2, "gloo")
    assert found.step_ns == pytest.approx(truth.step_ns("allreduce", truth.buckets), abs=10)
