"""Who is late by its own doing, group by group."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hooktrace.analysis.report.last_of_group import (
    LastOfGroup,
    is_order_known,
    last_of_groups,
)
from hooktrace.analysis.report.settled import settled_steps
from hooktrace.analysis.timeline import UNKNOWN, load
from hooktrace.records.files import find_records, record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job
from tests.analysis.report.jobs import found_in as findings_in
from tests.analysis.report.jobs import one

MS = 1_000_000
GATHER, REDUCE = 4, 6


def found_in(job: ShardedJob, folder: Path) -> dict[tuple[int, ...], LastOfGroup]:
    write_sharded_job(job, folder)
    arrays = settled_steps(load(find_records(folder)), job.model)
    assert arrays is not None
    return {one.group.ranks: one for one in last_of_groups(arrays)}


def last_at(one: LastOfGroup, bucket: int) -> set[int]:
    """Return who is last there in the steps after the first one."""
    return set(one.last[1:, one.group.buckets.index(bucket)].tolist())


def test_a_rank_that_was_held_up_is_not_the_last_one(tmp_path: Path) -> None:
    """Rank 3 comes 50 ms after rank 1, which rank 2 has cost it; nobody is named there."""
    job = ShardedJob(ranks=4, replicas=2, late_ms={2: 50.0}, late_at=GATHER)
    found = found_in(job, tmp_path)
    assert last_at(found[2, 3], GATHER) == {2}
    assert last_at(found[0, 2], REDUCE) == {2}
    assert last_at(found[1, 3], REDUCE) == {UNKNOWN}
    at = found[0, 2].group.buckets.index(REDUCE)
    assert set(found[0, 2].margin[1:, at].tolist()) == {50.0 * MS}
    assert found[0, 2].is_sure[1:, at].all()


def test_two_that_are_late_together_are_last_where_they_meet_others(tmp_path: Path) -> None:
    """As a host that is slow: neither waits for the other."""
    job = ShardedJob(ranks=4, replicas=2, late_ms={2: 50.0, 3: 50.0}, late_at=GATHER)
    found = found_in(job, tmp_path)
    assert last_at(found[2, 3], GATHER) == {UNKNOWN}
    assert last_at(found[0, 2], REDUCE) == {2}
    assert last_at(found[1, 3], REDUCE) == {3}


def test_who_is_late_after_it_was_held_up_is_last_by_the_rest(tmp_path: Path) -> None:
    """Rank 1 computes 20 ms longer before the reduce-scatter, rank 2 50 ms before the gather."""
    job = ShardedJob(ranks=4, replicas=2, late_ms={2: 50.0, 1: 20.0}, late_at=GATHER)
    found = found_in(job, tmp_path)
    assert last_at(found[0, 1], GATHER) == {1}
    at = found[0, 2].group.buckets.index(REDUCE)
    # Rank 0 was held up for 20 ms of the 50.
    assert last_at(found[0, 2], REDUCE) == {2}
    assert set(found[0, 2].margin[1:, at].tolist()) == {30.0 * MS}


def test_of_one_group_it_is_who_came_last(tmp_path: Path) -> None:
    """And nothing is taken from anybody's arrival."""
    found = found_in(ShardedJob(ranks=4, late_ms={1: 9.0}, late_at=GATHER), tmp_path)
    (one,) = found.values()
    at = one.group.buckets.index(GATHER)
    assert set(one.last[:, at].tolist()) == {1}
    assert np.array_equal(one.is_sure, one.last != UNKNOWN)
    assert set(one.margin[:, at].tolist()) == {9.0 * MS}


def test_one_clock_that_nobody_measured_is_enough_to_know_nothing(tmp_path: Path) -> None:
    """The last one may always be that rank, so it is not said that none is last."""
    job = SyntheticJob(ranks=3, steps=12, late_ms={1: 6.0})
    write_job(job, tmp_path)
    path = record_path(tmp_path, 2)
    kept = [line for line in path.read_text().splitlines(True) if '"kind":"clock"' not in line]
    path.write_text("".join(kept))
    arrays = settled_steps(load(find_records(tmp_path)), job.model)
    assert arrays is not None
    assert not is_order_known(arrays)
    finding = one(findings_in(tmp_path), "Ranks wait for each other")
    assert "the clocks of all ranks were never known at once" in finding.evidence[1]


def test_buckets_are_of_all_ranks(tmp_path: Path) -> None:
    """DDP's; of one rank alone there is nobody to be last."""
    for ranks in (1, 3):
        job = SyntheticJob(ranks=ranks, steps=12, late_ms={1: 6.0} if ranks > 1 else {})
        write_job(job, tmp_path / str(ranks))
        arrays = settled_steps(load(find_records(tmp_path / str(ranks))), job.model)
        assert arrays is not None
        assert is_order_known(arrays) == (ranks > 1)
        found = last_of_groups(arrays)
        assert [set(of_all.last.flat) for of_all in found] == [{1}] * (ranks > 1)
