"""What hooks cost, from trials of which one knows it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.analysis.whatif.costs import costs_of, fit_piece
from hooktrace.analysis.whatif.own_run import own_run, parameters_in

from .calibrated_run import MODEL
from .truth import Truth, parameters


def test_the_best_without_negative_coefficients() -> None:
    """Exact times give their coefficients back; a slope that would be negative is none."""
    features = np.array([[1.0, 1e6], [1.0, 4e6], [1.0, 9e6]])
    found = fit_piece(features, features @ np.array([2e4, 0.25]))
    np.testing.assert_allclose(found.coefficients, [2e4, 0.25], rtol=1e-9)
    falling = fit_piece(features, np.array([9e5, 8e5, 7e5]))
    assert falling.coefficients[1] == 0
    assert falling.coefficients[0] == pytest.approx(8e5, rel=0.03)


def test_what_was_tried_at_one_size_grows_with_it() -> None:
    """A whole bucket may take too long to be tried, and is no quicker than its quarter."""
    found = fit_piece(np.array([[1.0, 4e6], [1.0, 4e6]]), np.array([1e6, 1e6]))
    np.testing.assert_allclose(found.coefficients, [0, 0.25])


def test_other_buckets_cost_what_they_would(truth: Truth, calibrated: Timeline) -> None:
    """Of each hook, of a bucket larger than any that was tried."""
    found = read_calibration(calibrated, MODEL).costs
    assert set(found) == {one.label for one in truth.costs}
    large = parameters(12)
    for known in truth.costs:
        rounds, after = found[known.label].bucket_work(large)
        true_rounds, true_after = known.bucket_work(large)
        assert [(r.collective, r.wire_bytes) for r in rounds] == [
            (r.collective, r.wire_bytes) for r in true_rounds
        ]
        times = [one.before_ns for one in rounds]
        assert times == pytest.approx([one.before_ns for one in true_rounds], rel=0.02)
        assert after == pytest.approx(true_after, rel=0.02)
        assert found[known.label].spread < 0.01


def test_what_was_gathered_grows_with_the_ranks(truth: Truth, calibrated: Timeline) -> None:
    """The work after an all-gather is that on all ranks' payloads; that after a sum is one."""
    found = read_calibration(calibrated, MODEL).costs
    for label, times in (("quantize-per-channel", 4), ("fp16", 1)):
        of_two, of_eight = (found[label].bucket_work(parameters(2), ranks=n)[1] for n in (2, 8))
        assert of_eight == pytest.approx(times * of_two)


def test_error_of_the_whole_model(calibrated: Timeline) -> None:
    """Parts weigh by their norms where these are known; without any error there is none."""
    own = own_run(calibrated, MODEL)
    parts = {(1, b.bucket): parameters_in(b) for b in own.layout.buckets}
    fp16 = [t for t in calibrated.tracks[0].records.trials if t.hook == "fp16"]
    weighed = [
        replace(t, relative_l2=0.3 if t.bucket == 0 else 0.1, reference_l2=0.0 if t.bucket else 2.0)
        for t in fp16
    ]
    assert costs_of(weighed, parts, 2)["fp16"].error == pytest.approx(0.3)
    unknown = [replace(t, relative_l2=None) for t in fp16]
    assert costs_of(unknown, parts, 2)["fp16"].error is None
