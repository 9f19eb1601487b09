"""Parts of each step: they add up, and hold what a made-up job did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.run.parts import KINDS, StepParts, step_parts, tails
from hooktrace.records import CompletedStep
from hooktrace.testing.synthetic import Moments, SyntheticJob
from tests.analysis.run.files import write_changed
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


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.integers(10_000, 20_000_000), min_size=1, max_size=9),
    st.integers(0, 3),
)
def test_what_buckets_add_is_what_is_exposed(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, sizes: list[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("job")
    arrays = arrays_of(
        job_run(SyntheticJob(ranks=ranks, steps=4, bucket_bytes=tuple(sizes), seed=seed), folder)
    )
    added = tails(arrays)
    assert (added >= 0).all()
    assert np.abs(added.sum(axis=2) - arrays.exposed).max() <= 2  # ns, of a double's rounding
