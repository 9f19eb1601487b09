"""The made-up job's files hold its records, whoever of several processes wrote them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hooktrace.records.files import find_records
from hooktrace.records.reader import read_records
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job

from ...distributed.harness import environment

JOB = SyntheticJob(ranks=3, steps=4, error=0.1, error_every=2, skews=True, anomaly_rank=2)


def test_the_files_hold_the_records(tmp_path: Path) -> None:
    """Every rank's, and they are closed; the number of stages is what comes back."""
    stages = write_job(JOB, tmp_path)
    read = {rank: read_records(parts[0]) for rank, parts in find_records(tmp_path).items()}
    assert sorted(read) == [0, 1, 2]
    for rank, found in read.items():
        expected = [step.completed(rank) for step in simulate(JOB)]
        assert found.steps == [step for step, _ in expected]
        assert found.buckets == [bucket for _, buckets in expected for bucket in buckets]
        assert (found.run, found.layouts) == (JOB.run(rank), [JOB.layout()])
        assert found.clocks == JOB.clock_records(rank)
        assert len(found.anomalies) == (rank == 2)
        assert (found.closed, found.skipped) == (True, [])
    assert stages == sum(len(b.stages) for found in read.values() for b in found.buckets)


@pytest.mark.slow
def test_processes_write_the_same(tmp_path: Path) -> None:
    """Each a share of the ranks."""
    assert write_job(JOB, tmp_path / "one") == write_job(JOB, tmp_path / "two", processes=2)
    one, two = (sorted((tmp_path / name).rglob("*.jsonl")) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.slow
def test_no_torch_is_needed() -> None:
    """Whoever makes records only does not wait for it."""
    code = "import sys, hooktrace.testing.synthetic; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(), timeout=60)
