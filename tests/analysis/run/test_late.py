"""What a rank waited for others before it came late, and whether the order is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.run.dense import StepArrays
from hooktrace.analysis.run.order import (
    Elsewhere,
    is_order_known,
    waited_elsewhere,
)
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.analysis.run.files import drop
from tests.analysis.runs import arrays_of, job_run, run_in

MS = 1_000_000
GATHER, SCATTER, REDUCE = 4, 5, 6
"""The first three collectives of the backward pass."""
HELD_UP = ShardedJob(ranks=4, replicas=2, late_ms={2: 50.0}, late_at=GATHER)
"""Rank 2 is late before the backward pass, rank 3 waits for it, and then rank 1 for rank 3."""


def test_one_clock_that_nobody_measured_is_enough_to_know_nothing(tmp_path: Path) -> None:
    """The last one may always be that rank, so it is not said that none is last."""
    job = SyntheticJob(ranks=3, steps=12, late_ms={1: 6.0})
    write_job(job, tmp_path)
    drop(tmp_path, [2], '"kind":"clock"')
    assert not is_order_known(arrays_of(run_in(tmp_path)))


def elsewhere(arrays: StepArrays, ranks: tuple[int, ...], bucket: int) -> Elsewhere:
    """Return what a group's ranks waited elsewhere, (ranks, steps), before one collective."""
    (group,) = (one for one in arrays.together if one.ranks == ranks)
    found, at = waited_elsewhere(arrays, group), group.buckets.index(bucket)
    return Elsewhere(found.ns[..., at], found.times[..., at])


def test_who_waited_for_a_late_rank_is_held_up_by_it(tmp_path: Path) -> None:
    arrays = arrays_of(job_run(HELD_UP, tmp_path))
    held = elsewhere(arrays, (1, 3), REDUCE)
    assert held.ns[:, 1:].tolist() == [[0.0] * 9, [50.0 * MS] * 9]
    assert elsewhere(arrays, (0, 2), REDUCE).ns[:, 1:].max() == 0.0
    # Four gathers forward, one backward, a reduce-scatter.
    assert set(held.times.flat) == {6.0}


def test_what_was_before_they_were_together_last_is_over(tmp_path: Path) -> None:
    """At the next unit all ranks of a group were together in between."""
    arrays = arrays_of(job_run(HELD_UP, tmp_path))
    assert elsewhere(arrays, (1, 3), REDUCE + 3).ns.max() == 0.0
    # Both have waited in the all-reduce, as long as each other.
    assert elsewhere(arrays, (0, 1), REDUCE + 1).ns.tolist() == [[50.0 * MS] * 10] * 2


def test_at_the_first_collective_it_is_what_ended_the_step_before(tmp_path: Path) -> None:
    """The last all-reduce; where the step before is not there nobody knows."""
    last = len(ShardedJob(replicas=2).slots()) - 1
    job = ShardedJob(ranks=4, replicas=2, late_ms={0: 7.0, 1: 7.0}, late_at=last - 1)
    held = elsewhere(arrays_of(job_run(job, tmp_path)), (2, 3), 0)
    assert np.isnan(held.ns[:, 0]).all()
    assert held.ns[:, 1:].tolist() == [[7.0 * MS] * 9] * 2


def test_a_step_without_a_collective_does_not_join_its_ranks(tmp_path: Path) -> None:
    """Of another kind of step: what was waited before is not over in it."""
    arrays = arrays_of(job_run(HELD_UP, tmp_path))
    arrays.called[:, 5, REDUCE] = np.nan
    held = elsewhere(arrays, (1, 3), REDUCE + 3)
    assert held.ns[1].tolist() == [0.0] * 5 + [50.0 * MS] + [0.0] * 4


def test_a_wait_that_is_not_known_makes_it_unknown(tmp_path: Path) -> None:
    """Of a hook of the user's that is called after the all-reduce, for one."""
    arrays = arrays_of(job_run(ShardedJob(ranks=4, replicas=2), tmp_path))
    arrays.waited[3, :, SCATTER] = np.nan
    held = elsewhere(arrays, (1, 3), REDUCE)
    assert np.isnan(held.ns[1]).all()
    assert held.ns[0, 1:] == pytest.approx(0.0)
