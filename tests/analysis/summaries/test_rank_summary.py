"""One rank's pass: a function of its files alone, bounded, and of one run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.summaries import Job, summarize
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job

pytest.importorskip("datasketches")
JOB = SyntheticJob(ranks=2, steps=300, bucket_bytes=(4_000_000,) * 2)
SHARED = Job(JOB.run(0), JOB.run(0))


def test_another_runs_file_is_left_out(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    other = Job(replace(JOB.run(0), run_id="another"), None)
    found = summarize([find_records(tmp_path)[1]], other)
    assert (found.ranks, found.other_runs, found.models) == (set(), {1}, {})


def test_of_several_ranks_it_is_their_sum(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    found = summarize(list(find_records(tmp_path).values()), SHARED)
    assert found.ranks == {0, 1}
    assert found.models["synthetic"].by_bucket.columns["count"].tolist() == [2] * 600
    assert next(iter(found.memory.values())) > 2**20


def test_tables_keep_every_nth_step_of_a_long_run(tmp_path: Path) -> None:
    """The same ones on all ranks, and of each rank's sums too; percentiles are of all steps."""
    write_job(JOB, tmp_path)
    found = summarize(find_records(tmp_path).values(), Job(JOB.run(0), JOB.run(0), every=10))  # type: ignore[arg-type]
    model = found.models["synthetic"]
    assert model.by_step.keys.tolist() == list(range(10, 301, 10))
    assert model.ranks[1].called[0][0] == 30
    assert model.steps == 300


@pytest.mark.slow
def test_a_summary_does_not_grow_with_the_ranks(tmp_path: Path) -> None:
    """But for a line a rank, and until sketches are full."""
    write_job(JOB, tmp_path)
    files = list(find_records(tmp_path).values())
    two, many = (len(pickle.dumps(summarize(files * n, SHARED))) for n in (1, 20))
    assert many < 2.5 * two
