"""The run's own hook costs what its stages took."""

from __future__ import annotations

import pytest

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.analysis.whatif.own_costs import as_in_steps, own_costs
from hooktrace.analysis.whatif.own_run import own_run

from .calibrated_run import MODEL
from .truth import Truth, parameters


def test_its_stages_and_not_its_trials(truth: Truth, calibrated: Timeline) -> None:
    """Trials that took twice as long change nothing; without any, stages alone tell."""
    tried = read_calibration(calibrated, MODEL).costs["allreduce"]
    known = truth.own.bucket_work(parameters(5))[0][0].before_ns
    own = own_run(calibrated, MODEL)
    for trials in (tried, tried.scaled(2.0, 2.0), None):
        rounds, after = own_costs(own, trials).bucket_work(parameters(5))
        assert [one.wire_bytes for one in rounds] == [sum(p.nbytes for p in parameters(5))]
        assert rounds[0].before_ns == pytest.approx(known, rel=0.02)
        assert after == pytest.approx(0, abs=100)


def test_other_hooks_take_what_their_trials_say(calibrated: Timeline) -> None:
    """However far the own hook's trials are off."""
    own, known = own_run(calibrated, MODEL), read_calibration(calibrated, MODEL).costs
    found = as_in_steps({**known, "allreduce": known["allreduce"].scaled(0.5, 0.5)}, own)
    assert found["fp16"] is known["fp16"]
    rounds, _ = found["allreduce"].bucket_work(parameters(5))
    before, _ = known["allreduce"].bucket_work(parameters(5))
    assert rounds[0].before_ns == pytest.approx(before[0].before_ns, rel=0.02)
