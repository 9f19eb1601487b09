"""Predictions beside the truth that a run was made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.analysis.whatif.fit_network import fit_network
from hooktrace.analysis.whatif.network import parse_network
from hooktrace.analysis.whatif.predict import predict, replay
from hooktrace.analysis.whatif.step_work import buckets_for
from hooktrace.records.errors import UsageError

from .calibrated_run import MODEL, written
from .truth import Truth

CHOICES = [
    Choice(hook, cap)
    for hook in ("allreduce", "fp16", "quantize-per-channel", "powersgd")
    for cap in (None, 1.0, 5.0)
]


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "quantize-per-channel", "powersgd"])
def test_a_run_replays_as_it_was(hook: str, tmp_path: Path) -> None:
    """Its own step time within 2 %, which is in the interval."""
    timeline = written(Truth(hook=hook, noise=0.02, steps=40), tmp_path)
    calibration, fit = read_calibration(timeline, MODEL), fit_network(timeline, MODEL)
    found = replay(calibration, fit)
    assert found.step_ms == pytest.approx(calibration.step_ns / 1e6, rel=0.02)
    assert found.low_ms <= calibration.step_ns / 1e6 <= found.high_ms


def test_other_runs(truth: Truth, calibrated: Timeline) -> None:
    """Every hook at every cap, from one run of one hook: as if it had been made."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    for found in predict(calibration, fit, CHOICES):
        assert found.choice.hook is not None
        buckets = [list(rows) for rows in buckets_for(calibration, found.choice)]
        known = truth.step_ns(found.choice.hook, buckets) / 1e6
        assert found.step_ms == pytest.approx(known, rel=0.005)
        assert found.low_ms <= known <= found.high_ms
        assert found.lossy == (found.choice.hook != "allreduce")


def test_a_machine_that_computes_faster_and_slower_widens_steps_and_no_gain(
    calibrated: Timeline,
) -> None:
    """Parts of the run tell by how much; what is changed runs on the same machine."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    rests = np.repeat([1.0, 1.4, 0.8, 1.0], 10) * calibration.compute.rest_ns
    steady, drifting = (
        predict(one, fit, [Choice(), Choice("fp16")])
        for one in (calibration, replace(calibration, rests_ns=rests))
    )
    computing_ms = (calibration.compute.end_ns + calibration.compute.rest_ns) / 1e6
    for before, after in zip(steady, drifting, strict=True):
        assert after.step_ms == before.step_ms
        assert after.high_ms - after.step_ms > 1.96 * 0.15 * computing_ms
        assert before.high_ms - before.step_ms < 1.96 * 0.15 * computing_ms
    gains = [float(np.std(now.draws_ms - then.draws_ms)) for now, then in (steady, drifting)]
    assert gains[1] < 2 * gains[0]


def test_an_unknown_loss_is_doubted(calibrated: Timeline) -> None:
    """Where gradients held NaN; what loses nothing is not."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    costs = {label: replace(one, error=None) for label, one in calibration.costs.items()}
    known = predict(calibration, fit, [Choice("fp16")])
    lossy, plain = predict(replace(calibration, costs=costs), fit, [Choice("fp16"), Choice()])
    assert any("held NaN" in doubt for doubt in lossy.doubts)
    assert not any("held NaN" in doubt for one in (plain, *known) for doubt in one.doubts)


@pytest.mark.slow
def test_intervals_hold_the_truth(tmp_path: Path) -> None:
    """Of runs whose steps, transfers and trials all vary: nine in ten truths and more."""
    held = []
    for seed in range(8):
        truth = Truth(noise=0.04, seed=seed, steps=30)
        timeline = written(truth, tmp_path / str(seed))
        calibration, fit = read_calibration(timeline, MODEL), fit_network(timeline, MODEL)
        for found in predict(calibration, fit, CHOICES):
            assert found.choice.hook is not None
            buckets = [list(rows) for rows in buckets_for(calibration, found.choice)]
            known = truth.step_ns(found.choice.hook, buckets) / 1e6
            held.append(found.low_ms <= known <= found.high_ms)
    assert sum(held) >= 0.9 * len(held)


def test_a_named_network_and_more_ranks(calibrated: Timeline) -> None:
    """A faster link is never slower, more ranks never faster; the answer has its choice."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    asked = [
        Choice(),
        Choice(network=parse_network("10gbit,30us")[0]),
        Choice(ranks=64),
        Choice(ranks=64, per_host=8),
    ]
    own, faster, more, hosts = predict(calibration, fit, asked)
    assert faster.step_ms < own.step_ms < more.step_ms
    assert hosts.choice == asked[3]
    assert hosts.work is not None
    assert hosts.work.ranks == 64


def test_a_hook_that_was_not_tried(calibrated: Timeline) -> None:
    """The error names those that were."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    with pytest.raises(UsageError, match=r"'bf16' was not tried.*allreduce, fp16"):
        predict(calibration, fit, [Choice("bf16")])
