"""The made-up job: the same each time, its clocks, its files; goldens show what it does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hooktrace.records import StepRecord
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job

from ..distributed.harness import environment

QUIET = SyntheticJob(ranks=3, steps=6, jitter_ms=0.0)
WRITTEN = SyntheticJob(ranks=3, steps=4, error=0.1, error_every=2, skews=True, anomaly_rank=2)


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


def test_the_files_hold_the_records(tmp_path: Path) -> None:
    """Every rank's, and they are closed; the number of stages is what comes back."""
    stages = write_job(WRITTEN, tmp_path)
    read = {rank: read_parts([parts[0]]) for rank, parts in find_records(tmp_path).items()}
    assert sorted(read) == [0, 1, 2]
    for rank, found in read.items():
        expected = [step.completed(rank) for step in simulate(WRITTEN)]
        assert found.steps == [step for step, _ in expected]
        assert found.buckets == [bucket for _, buckets in expected for bucket in buckets]
        assert (found.run, found.assignments) == (WRITTEN.run(rank), [WRITTEN.layout(rank)])
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
