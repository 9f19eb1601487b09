"""Who is late by its own doing, group by group."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.run import UNKNOWN
from hooktrace.analysis.run.order import LastOfGroup, is_order_known, last_of_groups
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.analysis.report.jobs import found_in as findings_in
from tests.analysis.report.jobs import one
from tests.analysis.runs import arrays_of, job_run, run_in

MS = 1_000_000
GATHER, REDUCE = 4, 6


def found_in(job: ShardedJob, folder: Path) -> dict[tuple[int, ...], LastOfGroup]:
    arrays = arrays_of(job_run(job, folder))
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


def test_who_is_late_after_it_was_held_up_is_last_by_the_rest(tmp_path: Path) -> None:
    """Rank 1 computes 20 ms longer before the reduce-scatter, rank 2 50 ms before the gather."""
    job = ShardedJob(ranks=4, replicas=2, late_ms={2: 50.0, 1: 20.0}, late_at=GATHER)
    found = found_in(job, tmp_path)
    assert last_at(found[0, 1], GATHER) == {1}
    at = found[0, 2].group.buckets.index(REDUCE)
    # Rank 0 was held up for 20 ms of the 50.
    assert last_at(found[0, 2], REDUCE) == {2}
    assert set(found[0, 2].margin[1:, at].tolist()) == {30.0 * MS}


def test_one_clock_that_nobody_measured_is_enough_to_know_nothing(tmp_path: Path) -> None:
    """The last one may always be that rank, so it is not said that none is last."""
    job = SyntheticJob(ranks=3, steps=12, late_ms={1: 6.0})
    write_job(job, tmp_path)
    path = record_path(tmp_path, 2)
    kept = [line for line in path.read_text().splitlines(True) if '"kind":"clock"' not in line]
    path.write_text("".join(kept))
    arrays = arrays_of(run_in(tmp_path))
    assert not is_order_known(arrays)
    finding = one(findings_in(tmp_path), "Ranks wait for each other")
    assert "the clocks of all ranks were never known at once" in finding.evidence[1]
