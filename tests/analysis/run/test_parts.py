"""Parts of each step: they add up, and hold what a made-up job did."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hooktrace.analysis.run.parts import KINDS, StepParts, step_parts
from hooktrace.records import CompletedStep
from hooktrace.testing.synthetic import Moments, SyntheticJob
from tests.analysis.report.jobs import write_changed
from tests.analysis.report.sharded_jobs import ShardedJob
from tests.analysis.runs import arrays_of, job_run, run_in

MS = 1e6


def parts_of(job: SyntheticJob, folder: Path) -> StepParts:
    return step_parts(arrays_of(job_run(job, folder))).of_known()


def exposed_in(parts: StepParts, kind: str) -> float:
    return float(parts.exposed_in[KINDS.index(kind)].sum(axis=1).mean())


def test_exposed_time_is_parted_without_rest(tmp_path: Path) -> None:
    """Of many buckets at once no time counts twice."""
    job = SyntheticJob(ranks=3, steps=20, bytes_per_second=2e8, late_ms={1: 4.0})
    parts = parts_of(job, tmp_path)
    assert len(parts.period) == 19  # the last step's period is not known
    np.testing.assert_allclose(parts.exposed_in.sum(axis=(0, 2)), parts.exposed, atol=3)
    assert exposed_in(parts, "between") < 100
    assert exposed_in(parts, "transfer") > 20 * MS


def test_one_bucket_is_its_stages(tmp_path: Path) -> None:
    """All of it is exposed: 2 ms of codec at each end, 8 MB at 1 GB/s and 0.2 ms between."""
    job = SyntheticJob(ranks=2, steps=20, bucket_bytes=(8_000_000,), codec_ms=2.0, jitter_ms=0)
    parts = parts_of(job, tmp_path)
    for kind, ms in (("compress", 2.0), ("decompress", 2.0), ("wait", 0.0)):
        assert abs(exposed_in(parts, kind) - ms * MS) < 10
    assert abs(exposed_in(parts, "transfer") - 8.2 * MS) < 0.5 * MS
    assert not parts.compress.any()  # none of it before the last gradient


def test_others_wait_for_a_late_rank(tmp_path: Path) -> None:
    """A mean over 3 ranks, of which 2 wait 8 ms; what it transfers meanwhile is waiting too."""
    early = parts_of(SyntheticJob(ranks=3, steps=20), tmp_path / "early")
    late = parts_of(SyntheticJob(ranks=3, steps=20, late_ms={2: 8.0}), tmp_path / "late")
    assert abs(exposed_in(late, "wait") - exposed_in(early, "wait") - 16 / 3 * MS) < 0.2 * MS
    assert abs(exposed_in(late, "transfer") - exposed_in(early, "transfer")) < 0.3 * MS


def test_without_clocks_waits_are_those_of_the_wire_alone(tmp_path: Path) -> None:
    """Nobody knows when the last rank has its last gradient."""
    job = SyntheticJob(ranks=3, steps=20, late_ms={2: 8.0}, clocks=False)
    parts = parts_of(job, tmp_path)
    np.testing.assert_allclose(parts.exposed_in.sum(axis=(0, 2)), parts.exposed, atol=3)


def test_busy_is_no_sum(tmp_path: Path) -> None:
    """Buckets overlap: in transfer for no longer than the step's wire was busy."""
    job = SyntheticJob(ranks=2, steps=10, bytes_per_second=2e8, jitter_ms=0)
    arrays = arrays_of(job_run(job, tmp_path))
    parts = parts_of(job, tmp_path)
    busy = parts.busy_in[KINDS.index("transfer")]
    wire = arrays.by_step("wire_busy").mean(axis=0)[:-1]
    np.testing.assert_allclose(busy, wire, atol=2)
    assert busy.mean() < arrays.stages["wire"].sum(axis=2).mean()


def test_a_short_stage_within_a_long_one_does_not_end_it(tmp_path: Path) -> None:
    """Transfers of 100 ms, and two within it of 10 ms each: 100 ms busy."""
    job = SyntheticJob(ranks=1, steps=4, bucket_bytes=(1000,) * 3)

    def nested(rank: int, completed: CompletedStep) -> CompletedStep:
        step = completed[0]
        at = step.step * 200 * int(MS)
        spans = [(at + int(x * MS), at + int(y * MS)) for x, y in ((0, 100), (10, 20), (30, 40))]
        moments = [Moments(start, start, start, end, end) for start, end in spans]
        return job.step(step.step, moments, previous_period_ns=200 * int(MS))

    write_changed(tmp_path, job, nested)
    parts = step_parts(arrays_of(run_in(tmp_path))).of_known()
    assert parts.busy_in[KINDS.index("transfer")].tolist() == [100 * MS] * 3
    assert exposed_in(parts, "transfer") == 70 * MS  # after the last gradient, at 30 ms


def test_of_units_all_waits_are_in_their_own_collectives(tmp_path: Path) -> None:
    """Rank 1 comes 4 ms late to each of ten: 8/3 ms of wait each in the mean, and no hook's calls.

    What backward leaves over is nothing here; a gather in forward counts as any other.
    """
    parts = step_parts(
        arrays_of(job_run(ShardedJob(late_ms={1: 4.0}, again=False), tmp_path))
    ).of_known()
    np.testing.assert_allclose(parts.exposed_in.sum(axis=(0, 2)), parts.exposed, atol=3)
    assert abs(exposed_in(parts, "wait") - 10 * 4 * MS * 2 / 3) < 0.1 * MS
    assert abs(exposed_in(parts, "transfer") - 10 * 8.2 * MS) < 0.1 * MS
    assert not parts.calls.any()
    assert not parts.compress.any()


def test_a_hook_on_a_unit_is_exposed_by_stage(tmp_path: Path) -> None:
    """3 ms of compress and of decompress at each of five reduce-scatters."""
    parts = step_parts(
        arrays_of(job_run(ShardedJob(codec_ms=3.0, again=False), tmp_path))
    ).of_known()
    for kind in ("compress", "decompress"):
        assert abs(exposed_in(parts, kind) - 5 * 3 * MS) < 0.01 * MS
