"""One number a step, the mean of its ranks, of the steps that settle."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.compare import measure
from hooktrace.records import CompletedStep
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import facts_of, write_changed
from tests.analysis.runs import run_in


def test_errors_of_steps_that_do_not_settle_are_left_out(tmp_path: Path) -> None:
    """As the report's are: a step that broke off says nothing of the hook."""

    def broken(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return replace(step, complete=step.step != 25), buckets

    write_changed(tmp_path, SyntheticJob(ranks=2, steps=60, error=0.01), broken)
    one = measure(run_in(tmp_path), "synthetic", "a")
    assert one is not None
    assert len(one.series["error"]) == 1  # of step 50
    counts = [bucket.error.count for bucket in facts_of(tmp_path).buckets if bucket.error]
    assert counts == [2]  # of either rank


def test_steps_whose_buckets_are_of_another_rebuild_have_no_parts(tmp_path: Path) -> None:
    """A damaged file: step times are compared all the same."""
    job = SyntheticJob(ranks=2, steps=6)
    write_job(job, tmp_path)
    for (path,) in find_records(tmp_path).values():
        lines = path.read_bytes().splitlines(keepends=True)
        at = b'"rebuild":%d'
        damaged = [x.replace(at % 1, at % 2) if b'"kind":"step"' in x else x for x in lines]
        path.write_bytes(b"".join(damaged))
    found = measure(run_in(tmp_path), job.model, "a")
    assert found is not None
    assert len(found.series["period"]) > 0
    assert len(found.parts.period) == 0
