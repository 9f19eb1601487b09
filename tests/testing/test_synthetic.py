"""The made-up job: its records to the nanosecond, what it does by its parameters, its files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hooktrace.records import AnomalyRecord, SkewRecord, StepRecord
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic import Moments, SyntheticJob, simulate, write_job

from ..distributed.harness import environment

HALVED = SyntheticJob(ranks=2, bucket_bytes=(4000, 8000), wire_share=0.5, wire_dtype="float16")
QUIET = SyntheticJob(ranks=3, steps=6, jitter_ms=0.0)
WRITTEN = SyntheticJob(ranks=3, steps=4, error=0.1, error_every=2, skews=True, anomaly_rank=2)
FIRST = Moments(ready=100, encoded=110, sent=150, arrived=250, done=260)
SECOND = Moments(ready=200, encoded=210, sent=250, arrived=450, done=460)


def test_a_step_follows_from_its_buckets_moments() -> None:
    """Its times, what was sent, and what of it is exposed."""
    step, buckets = HALVED.step(7, [FIRST, SECOND], previous_period_ns=1000)
    assert (step.first_ready_ns, step.last_ready_ns, step.done_ns) == (100, 200, 460)
    assert (step.busy_ns, step.exposed_ns, step.wire_busy_ns) == (360, 260, 300)
    assert (step.gradient_bytes, step.wire_bytes, step.bus_bytes) == (12000, 6000, 6000.0)
    assert [(b.step, b.bucket, b.is_last) for b in buckets] == [(7, 0, False), (7, 1, True)]
    assert [b.compression_ratio for b in buckets] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("sent", "names"),
    [(150, ["compress", "queue", "wire", "decompress"]), (110, ["compress", "wire", "decompress"])],
)
def test_stages_fill_the_bucket(sent: int, names: list[str]) -> None:
    """It queues only where its collective did not start at once."""
    bucket = HALVED.bucket(0, 0, FIRST._replace(sent=sent))
    assert [stage.name for stage in bucket.stages] == names
    edges = [bucket.ready_ns, *[stage.end_ns for stage in bucket.stages]]
    assert [stage.start_ns for stage in bucket.stages] == edges[:-1]
    assert edges[-1] == bucket.done_ns


def test_the_layout_says_what_the_buckets_say() -> None:
    """As a reader that puts a bucket's facts back relies on."""
    buckets = HALVED.step(1, [FIRST, SECOND])[1]
    for said, bucket in zip(HALVED.layout().buckets, buckets, strict=True):
        assert (said.bucket, said.numel, said.gradient_bytes, len(said.parameters)) == (
            bucket.bucket, bucket.numel, bucket.gradient_bytes, bucket.parameter_count,
        )  # fmt: skip


def test_each_ranks_clock_is_behind() -> None:
    """By a second for each rank, as its measurements say; rank 0's needs none."""
    assert HALVED.clock_records(0) == []
    assert {c.offset_ns for c in HALVED.clock_records(1)} == {HALVED.offset_ns(1)} == {10**9}
    assert HALVED.run(1).host_anchor_ns == HALVED.run(0).host_anchor_ns - 10**9


def steps(job: SyntheticJob, rank: int = 0) -> list[StepRecord]:
    """Return a rank's steps."""
    return [step.completed(rank)[0] for step in simulate(job)]


def test_a_job_is_the_same_each_time() -> None:
    """To the last number; another seed is another job."""
    assert steps(QUIET) == steps(QUIET) != steps(replace(QUIET, seed=1))


def test_ranks_have_a_step_at_once_by_clocks_that_differ() -> None:
    """Their times differ by what their clocks do, and their periods not at all."""
    zero, two = steps(QUIET, 0), steps(QUIET, 2)
    assert [s.step for s in zero] == [1, 2, 3, 4, 5, 6]
    assert {a.done_ns - b.done_ns for a, b in zip(zero, two, strict=True)} == {2 * 10**9}
    assert [s.previous_period_ns for s in zero] == [s.previous_period_ns for s in two]
    assert [s.previous_period_ns is None for s in zero] == [True, *[False] * 5]


def test_a_late_rank_is_late_and_the_others_wait() -> None:
    """From its bucket on, in the steps that are asked for; no collective starts without it."""
    job = replace(QUIET, late_ms={1: 5.0}, late_from=4, late_every=2)
    for number, step in enumerate(simulate(job)):
        others, late = step.moments(0), step.moments(1)
        lags = [b.ready + 10**9 - a.ready for a, b in zip(others, late, strict=True)]
        assert lags == [0] * 4 + [0 if number % 2 else 5_000_000] * 4
        assert all(a.arrived > b.ready + 10**9 for a, b in zip(others, late, strict=True))


def test_a_slow_step_is_longer() -> None:
    """By one collective that takes ten times as long."""
    lengths = [s.done_ns - s.first_ready_ns for s in steps(replace(QUIET, slow_every=3))]
    assert min(lengths[0], lengths[3]) > max(lengths[1], lengths[2], lengths[4], lengths[5])


def test_probes_skews_and_anomalies_come_where_they_are_asked_for() -> None:
    """The buckets in turn; each rank knows who was late in a probed step."""
    job = replace(
        QUIET, error=0.5, error_every=2, skews=True, late_ms={1: 5.0}, anomaly_rank=2, clocks=False
    )
    probed, events = [], []
    for step in simulate(job):
        _, buckets = step.completed(2)
        probed += [(b.step, b.bucket) for b in buckets if b.error is not None]
        events += step.events(2)
    assert probed == [(2, 1), (4, 2), (6, 3)]
    skews = [one for one in events if isinstance(one, SkewRecord)]
    assert {(skew.step, skew.late_rank, skew.lag_ns) for skew in skews} == {
        (2, 1, 0), (4, 1, 0), (6, 1, 0),
    }  # fmt: skip
    (anomaly,) = [one for one in events if isinstance(one, AnomalyRecord)]
    assert (anomaly.kind, anomaly.step, anomaly.rank) == ("nonfinite_gradient", 3, 2)
    assert job.clock_records(1) == []


def test_the_files_hold_the_records(tmp_path: Path) -> None:
    """Every rank's, and they are closed; the number of stages is what comes back."""
    stages = write_job(WRITTEN, tmp_path)
    read = {rank: read_parts([parts[0]]) for rank, parts in find_records(tmp_path).items()}
    assert sorted(read) == [0, 1, 2]
    for rank, found in read.items():
        expected = [step.completed(rank) for step in simulate(WRITTEN)]
        assert found.steps == [step for step, _ in expected]
        assert found.buckets == [bucket for _, buckets in expected for bucket in buckets]
        assert (found.run, found.layouts) == (WRITTEN.run(rank), [WRITTEN.layout(rank)])
        assert found.clocks == WRITTEN.clock_records(rank)
        assert len(found.anomalies) == (rank == 2)
        assert (found.closed, found.skipped) == (True, [])
    assert stages == sum(len(b.stages) for found in read.values() for b in found.buckets)


@pytest.mark.slow
def test_processes_write_the_same(tmp_path: Path) -> None:
    """Each a share of the ranks."""
    assert write_job(WRITTEN, tmp_path / "one") == write_job(WRITTEN, tmp_path / "two", processes=2)
    one, two = (sorted((tmp_path / name).rglob("*.jsonl")) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.slow
def test_no_torch_is_needed() -> None:
    """Whoever makes records only does not wait for it."""
    code = "import sys, hooktrace.testing.synthetic; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(), timeout=60)
