"""Which ranks are together in which collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.run import Run, groups_of, load
from hooktrace.analysis.run.columns import UNKNOWN
from hooktrace.analysis.run.dense import settled_steps
from hooktrace.analysis.run.groups import Together, ranks_within
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.report.sharded_jobs import ShardedJob
from tests.analysis.runs import job_run, run_in


@pytest.mark.parametrize("size", [8, 30, 4_800, 12_000_000])
@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (4, 4), (8, 8), (4, 2), (8, 2), (8, 4)])
def test_the_factor_of_bus_bandwidth_tells(
    ranks: int, group: int, size: int, tmp_path: Path
) -> None:
    """Of payloads of all sizes, though a column holds whole bytes."""
    run = job_run(
        ShardedJob(ranks=ranks, replicas=ranks // group, bytes=size * ranks, steps=4), tmp_path
    )
    found = groups_of(run.tracks[0], ranks)
    assert set(found.of.tolist()) == ({0} if ranks == group else {UNKNOWN})


def test_records_say_which_ranks_are_together(tmp_path: Path) -> None:
    """Two of four where parameters are shared, two others where gradients are averaged."""
    job = Replicated(ranks=4, replicas=2, steps=2)
    tracks = job_run(job, tmp_path).tracks
    found = groups_of(tracks[3], 4)
    assert found.members == (None, (2, 4, 1), (1, 4, 2))
    expected = [1 + (unit.collective == "all_reduce") for unit in job.slots()]
    assert found.of.tolist() == expected * 2
    assert [ranks_within(tracks, one) for one in found.members] == [[0, 1, 2, 3], [2, 3], [1, 3]]
    assert found.having((1, 4, 2)).sum() == 2 * 4
    assert not found.having((0, 2, 1)).any()


def test_a_rank_that_is_in_another_group_than_it_says_is_in_none(tmp_path: Path) -> None:
    """Of a file that somebody has put together: nothing is made of it."""
    job = Replicated(ranks=4, replicas=2, steps=2)
    write_sharded_job(job, tmp_path)
    path = find_records(tmp_path)[3][0]
    path.write_text(path.read_text().replace('"members":[2,4,1]', '"members":[0,2,1]'))
    track = run_in(tmp_path).tracks[3]
    assert set(groups_of(track, 4).of.tolist()) == {UNKNOWN, 1}


def test_of_buckets_all_ranks_are_in_each(tmp_path: Path) -> None:
    """DDP's process group is what the run says."""
    run = job_run(SyntheticJob(ranks=2, steps=5), tmp_path)
    assert not groups_of(run.tracks[0], 64).of.any()


def groups_in(
    job: Replicated, folder: Path, files: int | None = None
) -> tuple[Run, tuple[Together, ...]]:
    write_sharded_job(job, folder)
    run = load(dict([*find_records(folder).items()][:files]))
    arrays = settled_steps(run, job.model)
    assert arrays is not None
    return run, arrays.together


@pytest.mark.parametrize("tells", [True, False])
def test_all_ranks_are_one_group_however_that_is_known(tells: bool, tmp_path: Path) -> None:
    """From records, or of an older file from how many bytes were on the bus."""
    job = Replicated(ranks=4, tells_members=tells)
    _, found = groups_in(job, tmp_path)
    assert found == (Together((0, 1, 2, 3), tuple(range(len(job.slots())))),)


def test_of_a_rank_without_a_file_the_others_are_left(tmp_path: Path) -> None:
    """A group of which one rank is left is none."""
    _, found = groups_in(Replicated(ranks=4, replicas=2), tmp_path, files=3)
    assert {group.ranks for group in found} == {(0, 1), (0, 2)}
