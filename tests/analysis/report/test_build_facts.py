"""Facts are what the records say, and unknown where they say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.provenance import model_lines
from hooktrace.analysis.run import critical_path_sums
from hooktrace.exporters.retention import Retention
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import MS, facts_of, model_of, report_of, write_kept
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.analysis.runs import run_in
from tests.exporters.records_sample import make_step, on_device, probed


def test_device_times_are_the_devices(tmp_path: Path) -> None:
    """Twice as long as the host's in the sample; what did not resolve is not in any number."""
    steps = [on_device(make_step(i)) for i in range(4)]
    steps.append(on_device(make_step(4), resolved=False))
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    report = report_of(tmp_path)
    model = report.models[0].facts
    assert model.clock == "device"
    assert model.exposed is not None
    assert model.exposed.p50 == 4 * MS
    assert model.buckets[0].duration is not None
    assert model.buckets[0].duration.p50 == 4 * MS
    assert model.buckets[0].stages["wire"] == 2 * MS
    assert "rank 0: buckets on a device that have no times: 2" in report.missing


def test_errors_are_of_their_bucket(tmp_path: Path) -> None:
    """Probes of the sample: a quarter off, with error feedback, one parameter the worst."""
    steps = [probed(make_step(1)), make_step(2), probed(make_step(3))]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    first, second = facts_of(tmp_path).buckets
    assert first.error is not None
    assert (first.error.p50, first.error.count, first.error.worst) == (0.25, 2, "layer0.bias")
    assert first.error.has_feedback
    assert second.error is None


SLOW_OFTEN = SyntheticJob(ranks=2, steps=400, bucket_bytes=(4_000_000,), slow_every=4)
"""In every fourth step the only bucket takes 42 ms in place of 4.2."""
BY_NUMBER = Retention(first_steps=0, window_steps=10, window_every=30, extra_share=1.0)
"""Keeps each third step by its number, and all slow ones: more than half of what it keeps."""


def test_steps_kept_for_being_slow_are_not_what_buckets_are_like(tmp_path: Path) -> None:
    """Nor what waits, transfers and bandwidths are; slow steps are told with their buckets."""
    everything = model_of(SLOW_OFTEN, tmp_path / "all")
    write_kept(tmp_path / "kept", SLOW_OFTEN, BY_NUMBER)
    report = report_of(tmp_path / "kept")
    kept = report.models[0].facts
    (bucket,), (truth,) = kept.buckets, everything.buckets
    assert bucket.duration is not None
    assert truth.duration is not None
    assert bucket.duration.p50 == pytest.approx(truth.duration.p50, rel=0.02)
    assert bucket.transfer_ns == pytest.approx(truth.transfer_ns, rel=0.02)
    assert bucket.busbw_bytes_per_second == pytest.approx(truth.busbw_bytes_per_second, rel=0.02)
    assert sum(kept.exposed_kinds.values()) == pytest.approx(
        sum(everything.exposed_kinds.values()), rel=0.05
    )
    assert (kept.bucket_steps, everything.bucket_steps) == (139, 400)
    said = dict(model_lines(report.models[0].source))["steps"]
    assert said.startswith("400 of 400 count, 2")
    assert "of which 139, kept by their number, stand for all" in said


def test_paths_are_of_steps_that_stand_for_all(tmp_path: Path) -> None:
    """As many as were asked for, though most steps have no buckets, and most that have are slow."""
    write_kept(tmp_path, SLOW_OFTEN, BY_NUMBER)
    sums = critical_path_sums(run_in(tmp_path), SLOW_OFTEN.model, most=60)
    assert sums.steps == 60
    transfer = sum(ns for (kind, _, _), ns in sums.ns.items() if kind == "transfer")
    assert transfer / sums.steps == pytest.approx((3 * 4.2 + 42) / 4 * MS, rel=0.3)


def test_a_file_that_does_not_say_why_gives_what_it_has(tmp_path: Path) -> None:
    """As of an older hooktrace, or where nothing but slow steps was kept."""
    slow = Retention(first_steps=0, window_steps=0, extra_share=1.0)
    write_kept(tmp_path, SLOW_OFTEN, slow)
    model = facts_of(tmp_path)
    assert model.bucket_steps < 400
    assert model.buckets[0].duration is not None
