"""Which ranks are together in which collectives."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.run import process_groups
from hooktrace.analysis.run.columns import UNKNOWN
from hooktrace.analysis.run.waits import ranks_within
from hooktrace.records.files import find_records
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
