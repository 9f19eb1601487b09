"""Parts of each step: they add up, and hold what a made-up job did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.run.parts import KINDS, StepParts, step_parts, tails
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import arrays_of, job_run

MS = 1e6


def parts_of(job: SyntheticJob, folder: Path) -> StepParts:
    return step_parts(arrays_of(job_run(job, folder))).of_known()


def exposed_in(parts: StepParts, kind: str) -> float:
    return float(parts.exposed_in[KINDS.index(kind)].mean())


def test_exposed_time_is_parted_without_rest(tmp_path: Path) -> None:
    """Of many buckets at once no time counts twice."""
    job = SyntheticJob(ranks=3, steps=20, bytes_per_second=2e8, late_ms={1: 4.0})
    parts = parts_of(job, tmp_path)
    assert len(parts.period) == 19  # the last step's period is not known
    np.testing.assert_allclose(parts.exposed_in.sum(axis=0), parts.exposed, atol=3)
    assert exposed_in(parts, "between") < 100
    assert exposed_in(parts, "transfer") > 20 * MS


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
