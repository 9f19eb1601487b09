"""Which ranks are together in which units' collectives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.run import Run, load
from hooktrace.analysis.run.dense import settled_steps
from hooktrace.analysis.run.groups import Together, is_of_all
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job


def groups_in(
    job: ShardedJob, folder: Path, files: int | None = None
) -> tuple[Run, tuple[Together, ...]]:
    write_sharded_job(job, folder)
    run = load(dict([*find_records(folder).items()][:files]))
    arrays = settled_steps(run, job.model)
    assert arrays is not None
    return run, arrays.together


def test_ranks_that_share_parameters_and_those_that_have_the_same(tmp_path: Path) -> None:
    """Of two replicas of two ranks; every collective is in one group of each rank."""
    job = ShardedJob(ranks=4, replicas=2)
    run, found = groups_in(job, tmp_path)
    reduced = tuple(i for i, u in enumerate(job.slots()) if u.collective == "all_reduce")
    shared = tuple(i for i, u in enumerate(job.slots()) if u.collective != "all_reduce")
    assert set(found) == {
        Together((0, 1), shared), Together((2, 3), shared),
        Together((0, 2), reduced), Together((1, 3), reduced),
    }  # fmt: skip
    rows = [(t, np.ones(len(t.buckets), bool)) for t in run.tracks]
    assert not is_of_all(rows, 4)


@pytest.mark.parametrize("tells", [True, False])
def test_all_ranks_are_one_group_however_that_is_known(tells: bool, tmp_path: Path) -> None:
    """From records, or of an older file from how many bytes were on the bus."""
    job = ShardedJob(ranks=4, tells_members=tells)
    run, found = groups_in(job, tmp_path)
    assert found == (Together((0, 1, 2, 3), tuple(range(len(job.slots())))),)
    assert is_of_all([(t, np.ones(len(t.buckets), bool)) for t in run.tracks], 4)


def test_of_a_rank_without_a_file_the_others_are_left(tmp_path: Path) -> None:
    """A group of which one rank is left is none."""
    _, found = groups_in(ShardedJob(ranks=4, replicas=2), tmp_path, files=3)
    assert {group.ranks for group in found} == {(0, 1), (0, 2)}
