"""One number a step: the mean of its ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hooktrace.analysis.compare import measure
from hooktrace.records import CompletedStep
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import facts_of, write_changed
from tests.analysis.runs import job_run, run_in

from .jobs import measured, measures


def test_facts_of_a_run() -> None:
    """What was run where."""
    facts = measures("base").facts
    assert (facts.name, facts.model, facts.hook) == ("base", "synthetic", "allreduce_hook")
    assert (facts.ranks, facts.world_size, facts.hosts) == ((0, 1, 2), 3, ("host-0",))
    assert (facts.steps, facts.probed, facts.gradient_bytes) == (60, 0, 32_000_000)
    assert (facts.waits_unknown, facts.unaligned, facts.closed) == (None, (), True)
    assert facts.buckets[3].parameters == (("layers.3.weight", (1_000_000,)),)


def test_a_step_is_the_mean_of_its_ranks() -> None:
    """So their sum is what the job took, which the longest rank of each step would exceed."""
    one = measures("base")
    assert len(one.series["period"].values) == 59
    np.testing.assert_allclose(one.series["period"].values, one.parts.period)
    assert set(one.series["wire_bytes"].values) == {32_000_000}


def test_errors_are_by_step_also_of_probed_ones(tmp_path: Path) -> None:
    """Each probed step once, whatever the number of ranks."""
    one = measured(SyntheticJob(ranks=2, steps=60, error=0.01), tmp_path, "a")
    assert one.series["error"].steps.tolist() == [25, 50]
    assert one.facts.probed == 2
    assert 25 not in one.series["period"].steps


def test_errors_of_steps_that_do_not_settle_are_left_out(tmp_path: Path) -> None:
    """As the report's are: a step that broke off says nothing of the hook."""

    def broken(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return replace(step, complete=step.step != 25), buckets

    write_changed(tmp_path, SyntheticJob(ranks=2, steps=60, error=0.01), broken)
    one = measure(run_in(tmp_path), "synthetic", "a")
    assert one is not None
    assert one.series["error"].steps.tolist() == [50]
    counts = [bucket.error.count for bucket in facts_of(tmp_path).buckets if bucket.error]
    assert counts == [2]  # of either rank


def test_one_rank_has_no_waits(tmp_path: Path) -> None:
    """And says why."""
    one = measured(SyntheticJob(ranks=1, steps=20), tmp_path, "a")
    assert one.facts.waits_unknown == "one rank waits for nobody"


def test_nothing_settled_is_none(tmp_path: Path) -> None:
    """Of another model."""
    assert measure(job_run(SyntheticJob(ranks=1, steps=3), tmp_path), "another", "a") is None


def test_steps_whose_buckets_are_of_another_generation_have_no_parts(tmp_path: Path) -> None:
    """A damaged file: step times are compared all the same."""
    job = SyntheticJob(ranks=2, steps=6)
    write_job(job, tmp_path)
    for (path,) in find_records(tmp_path).values():
        lines = path.read_bytes().splitlines(keepends=True)
        at = b'"generation":%d'
        damaged = [x.replace(at % 1, at % 2) if b'"kind":"step"' in x else x for x in lines]
        path.write_bytes(b"".join(damaged))
    found = measure(run_in(tmp_path), job.model, "a")
    assert found is not None
    assert len(found.series["period"].values) > 0
    assert len(found.parts.period) == 0
