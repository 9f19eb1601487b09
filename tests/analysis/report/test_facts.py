"""Facts of jobs of which one knows what they are like."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.analysis.report import RunReport, build_report
from hooktrace.analysis.report.causes import tails
from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.analysis.report.step_arrays import settled_steps
from hooktrace.analysis.timeline import load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.timeline.files import run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import MODEL, make_step, on_device, opaque, probed

MS = 1_000_000
QUIET = SyntheticJob(ranks=3, steps=20, jitter_ms=0.0)


def report_of(folder: Path) -> RunReport:
    """Read and sum up what lies in a folder."""
    return build_report(load(find_records(folder)))


def facts_of(folder: Path) -> ModelFacts:
    """Return the facts of the only model in a folder."""
    (model,) = report_of(folder).models
    return model.facts


def model_of(job: SyntheticJob, folder: Path) -> ModelFacts:
    """Return the facts of a job's only model."""
    write_job(job, folder)
    return facts_of(folder)


def test_a_steps_times_are_those_of_its_records(tmp_path: Path) -> None:
    """A step of the sample: 10 ms, two buckets 1 ms apart of 2 ms each, so 2 ms are exposed."""
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(9)) for r in range(2)})
    model = facts_of(tmp_path)
    assert (model.steps, model.clock, model.exposed_share) == (9, "host", 0.2)
    assert model.period is not None
    assert model.exposed is not None
    assert (model.period.p50, model.exposed.p50, model.busy_ns) == (10 * MS, 2 * MS, 3 * MS)
    assert model.overlap == pytest.approx(1 / 3)
    assert (model.gradient_bytes, model.wire_bytes) == (8_000, 4_000)
    first, last = model.buckets
    assert first.stages == {
        "compress": 0.1 * MS, "queue": 0.4 * MS, "wire": 1 * MS, "decompress": 0.5 * MS,
    }  # fmt: skip
    assert (first.ready_ns, last.ready_ns) == (0, 1 * MS)
    assert (first.is_last, last.is_last) == (False, True)
    assert (first.tail_share, last.tail_share) == (0.5, 0.5)  # done 1 and 2 ms after backward
    assert first.busbw_bytes_per_second == pytest.approx(2_000 / 1e-3)


def test_transfer_is_wire_time_without_the_wait(tmp_path: Path) -> None:
    """4 MB at 1 GB/s take 4.2 ms, however long the others wait for rank 2."""
    job = dataclasses.replace(QUIET, late_ms={2: 7.0}, late_from=3)
    for bucket in model_of(job, tmp_path).buckets:
        assert bucket.transfer_ns == pytest.approx(4.2 * MS, rel=0.1)
        waits = 7 * MS if bucket.bucket >= 3 else 0.0
        assert bucket.wait_ns == pytest.approx(waits, abs=0.5 * MS)


def test_a_late_rank_is_found_with_its_bucket(tmp_path: Path) -> None:
    """Rank 2 falls behind at bucket 3 by 7 ms; the clocks are known to 20 us each."""
    model = model_of(
        dataclasses.replace(QUIET, late_ms={2: 7.0}, late_from=3, jitter_ms=0.2), tmp_path
    )
    (late,) = model.late
    assert (late.rank, late.since, late.share) == (2, 3, 1.0)
    assert not late.is_late_from_the_start
    assert late.margin_ns == pytest.approx(7 * MS, rel=0.05)
    assert late.lag_ns == pytest.approx(7 * MS, rel=0.05)
    assert 20_000 <= late.uncertainty_ns <= 40_000
    (report,) = report_of(tmp_path).models
    assert report.arrays.lags[2, 3:] == pytest.approx(7 * MS, rel=0.05)
    assert (report.arrays.lags[:2] < 0.3 * MS).all()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_take_turns_are_not_late(tmp_path: Path, ranks: int) -> None:
    """One of them is always last: of two each in half of the steps."""
    assert model_of(dataclasses.replace(QUIET, ranks=ranks, jitter_ms=5.0), tmp_path).late == ()


def test_nobody_is_late_by_an_unknown_clock(tmp_path: Path) -> None:
    """It is said that the clocks are missing instead."""
    write_job(dataclasses.replace(QUIET, late_ms={2: 7.0}, clocks=False), tmp_path)
    report = report_of(tmp_path)
    (model,) = report.models
    assert model.facts.late == ()
    assert not model.facts.is_order_known
    assert np.isnan(model.arrays.lags).all()
    assert report.unaligned == [1, 2]
    assert any("rank 1-2: the clock was not measured" in line for line in report.missing)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.integers(10_000, 20_000_000), min_size=1, max_size=9),
    st.integers(0, 3),
)
def test_what_buckets_add_is_what_is_exposed(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, sizes: list[int], seed: int
) -> None:
    """On every rank and step, whatever the buckets are like."""
    folder = tmp_path_factory.mktemp("job")
    write_job(SyntheticJob(ranks=ranks, steps=4, bucket_bytes=tuple(sizes), seed=seed), folder)
    arrays = settled_steps(load(find_records(folder)), "synthetic")
    assert arrays is not None
    added = tails(arrays)
    assert (added >= 0).all()
    assert np.abs(added.sum(axis=2) - arrays.exposed).max() <= 2  # ns, of a double's rounding


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


def test_an_opaque_hook_leaves_unknown_what_it_does_not_tell(tmp_path: Path) -> None:
    """No stages, no bytes: None, and not 0."""
    steps = [opaque(make_step(i), sent=None) for i in range(3)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    model = facts_of(tmp_path)
    bucket = model.buckets[0]
    assert (model.wire_bytes, model.busbw_bytes_per_second) == (None, None)
    assert (bucket.stages, bucket.transfer_ns, bucket.wait_ns, bucket.wire_bytes) == (
        {}, None, None, None,
    )  # fmt: skip


def test_errors_are_of_their_bucket(tmp_path: Path) -> None:
    """Probes of the sample: a quarter off, with error feedback, one parameter the worst."""
    steps = [probed(make_step(1)), make_step(2), probed(make_step(3))]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    first, second = facts_of(tmp_path).buckets
    assert first.error is not None
    assert (first.error.p50, first.error.count, first.error.worst) == (0.25, 2, "layer0.bias")
    assert first.error.has_feedback
    assert second.error is None


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A rank without a file, a killed one, an unreadable line, a step cut short, another run."""
    step, buckets = make_step(1)
    broken = text_of(
        run_of(0, world_size=5), [make_step(0), (replace(step, complete=False), buckets)]
    )
    lines = broken.splitlines(keepends=True)
    lines.insert(3, "rubbish\n")
    texts = {
        0: "".join(lines),
        1: text_of(run_of(1, world_size=5), steps_of(2), ended=False),
        2: text_of(run_of(2, run_id="older"), steps_of(1)),
    }
    write_ranks(tmp_path, texts)
    said = "\n".join(report_of(tmp_path).missing)
    assert "rank 2-4: no record file; the run has 5 ranks" in said
    assert "rank 1: the file has no end" in said
    assert "rank 2: the file is of another run" in said
    assert "rank 0: line 4 could not be read (not JSON" in said
    assert "rank 0: steps that are not complete, out of all numbers: 1" in said


def test_a_model_that_never_settled_is_said(tmp_path: Path) -> None:
    """Only warm-up steps: no numbers, and a sentence."""
    steps = [
        (replace(step, warmup=True), tuple(replace(b, warmup=True) for b in buckets))
        for step, buckets in steps_of(2)
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    report = report_of(tmp_path)
    assert report.models == []
    assert any(f"model {MODEL}: no step has settled" in line for line in report.missing)
