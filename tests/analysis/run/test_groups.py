"""Which ranks are together in which collectives."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.run import Run, load, process_groups
from hooktrace.analysis.run.columns import UNKNOWN
from hooktrace.analysis.run.dense import settled_steps
from hooktrace.analysis.run.groups import Together, ranks_within
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.runs import job_run, run_in


def test_records_say_which_ranks_are_together(tmp_path: Path) -> None:
    """Two of four where parameters are shared, two others where gradients are averaged."""
    job = Replicated(ranks=4, replicas=2, steps=2)
    run = job_run(job, tmp_path)
    of, members = process_groups(run)
    assert members == [None, (0, 2, 1), (0, 3, 2), (1, 4, 2), (2, 4, 1)]
    expected = [3 if unit.collective == "all_reduce" else 4 for unit in job.slots()]
    assert of[3].tolist() == expected * 2
    within = [ranks_within(run.tracks, one) for one in members]
    assert within == [[0, 1, 2, 3], [0, 1], [0, 2], [1, 3], [2, 3]]


def test_a_rank_that_is_in_another_group_than_it_says_is_in_none(tmp_path: Path) -> None:
    """Of a file that somebody has put together: nothing is made of it."""
    job = Replicated(ranks=4, replicas=2, steps=2)
    write_sharded_job(job, tmp_path)
    path = find_records(tmp_path)[3][0]
    path.write_text(path.read_text().replace('"members":[2,4,1]', '"members":[0,2,1]'))
    of, members = process_groups(run_in(tmp_path))
    assert {members[i] if i != UNKNOWN else i for i in of[3].tolist()} == {UNKNOWN, (1, 4, 2)}


def test_of_buckets_all_ranks_are_in_each(tmp_path: Path) -> None:
    """DDP's process group is what the run says."""
    run = job_run(SyntheticJob(ranks=2, steps=5), tmp_path)
    assert not any(own.any() for own in process_groups(run).of)


def groups_in(
    job: Replicated, folder: Path, files: int | None = None
) -> tuple[Run, tuple[Together, ...]]:
    write_sharded_job(job, folder)
    run = load(dict([*find_records(folder).items()][:files]))
    arrays = settled_steps(run, job.model)
    assert arrays is not None
    return run, arrays.together


def test_all_ranks_are_one_group(tmp_path: Path) -> None:
    """Where a unit is sharded over all of them."""
    job = Replicated(ranks=4)
    _, found = groups_in(job, tmp_path)
    assert found == (Together((0, 1, 2, 3), tuple(range(len(job.slots())))),)


def test_of_a_rank_without_a_file_the_others_are_left(tmp_path: Path) -> None:
    """A group of which one rank is left is none."""
    _, found = groups_in(Replicated(ranks=4, replicas=2), tmp_path, files=3)
    assert {group.ranks for group in found} == {(0, 1), (0, 2)}
