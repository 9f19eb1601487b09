"""Models that communicate while another one's steps last: both of two that take turns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hooktrace.analysis.run import Run, critical_path_sums, models_beside
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.runs import job_run, run_in

JOB = SyntheticJob(ranks=2, steps=20)


def both(folder: Path, other: SyntheticJob) -> Run:
    """Return a run of a job and another one in the same processes, at the same time."""
    write_job(JOB, folder)
    write_job(other, folder / "other")
    for rank in range(JOB.ranks):
        lines = record_path(folder / "other", rank).read_text().splitlines(keepends=True)
        own = [line for line in lines if f'"model":"{other.model}"' in line]
        path = record_path(folder, rank)
        *before, end = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*before, *own, end]))
    return run_in(folder)


def test_two_models_that_take_turns(tmp_path: Path) -> None:
    """Each is in the other's steps; and alone, none is."""
    run = both(tmp_path, dataclasses.replace(JOB, model="critic"))
    assert models_beside(run, JOB.model) == ("critic",)
    assert models_beside(run, "critic") == (JOB.model,)
    assert critical_path_sums(run, JOB.model).beside == ("critic",)
    assert models_beside(job_run(JOB, tmp_path / "alone"), JOB.model) == ()


def test_a_model_that_communicates_in_few_of_the_steps_is_not_in_them(tmp_path: Path) -> None:
    """One that is trained for a moment at the beginning."""
    run = both(tmp_path, dataclasses.replace(JOB, model="critic", steps=4))
    assert models_beside(run, JOB.model) == ()
