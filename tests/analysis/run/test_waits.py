"""Waiting and transfer: told apart by the last rank's start, and by nobody's guess."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.run import (
    STAGE_NAMES,
    UNKNOWN,
    Run,
    Waits,
    process_groups,
    waits,
)
from hooktrace.analysis.run.waits import ranks_within
from hooktrace.records import CompletedStep
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job
from tests.analysis.run.files import MS, drop, timed_by_device, write_times
from tests.analysis.runs import job_run, run_in

WIRE = STAGE_NAMES.index("wire")


def waits_of(folder: Path) -> tuple[Run, Waits]:
    run = run_in(folder)
    return run, waits(run, "synthetic")


def write(
    folder: Path,
    begins_ms: Sequence[float],
    ends_ms: Sequence[float],
    change: Callable[[CompletedStep], CompletedStep] = lambda step: step,
) -> None:
    """One bucket of one step, whose collective each rank begins and ends when it is told to."""
    pairs = zip(begins_ms, ends_ms, strict=True)
    write_times(folder, [[[(0, 0, begin, end, end)] for begin, end in pairs]], change)


def of_wire(run: Run, found: Waits) -> tuple[list[list[int]], list[list[int]]]:
    own = [track.stages.name == WIRE for track in run.tracks]
    return (
        [found.waited[i].ns[rows].tolist() for i, rows in enumerate(own)],
        [found.waited[i].last[rows].tolist() for i, rows in enumerate(own)],
    )


def test_all_wait_until_the_last_rank_begins(tmp_path: Path) -> None:
    write(tmp_path, [1, 5, 13], [20, 20, 20])
    run, found = waits_of(tmp_path)
    assert of_wire(run, found) == ([[12 * MS], [8 * MS], [0]], [[2], [2], [2]])
    assert (found.why_no_clock, found.why_unknown) == (None, None)
    assert [found.by_bucket(i).ns.tolist() for i in range(3)] == [
        [12 * MS], [8 * MS], [0],
    ]  # fmt: skip
    others = [found.waited[i].ns[t.stages.name != WIRE] for i, t in enumerate(run.tracks)]
    assert all((one == UNKNOWN).all() for one in others)


def test_of_a_group_with_a_rank_without_records_nothing_is_known(tmp_path: Path) -> None:
    """It may be the last one; of the other groups it is known."""
    job = ShardedJob(ranks=4, replicas=2, steps=1, late_ms={2: 50.0}, late_at=4)
    write_sharded_job(job, tmp_path)
    drop(tmp_path, [3], '"kind":"buckets"')
    run = run_in(tmp_path)
    found = waits(run, job.model)
    known = [(found.waited[i].ns[[4, 6]] != UNKNOWN).tolist() for i in range(3)]
    assert known == [[True, True], [True, False], [False, True]]


def test_two_that_come_together_are_not_told_apart(tmp_path: Path) -> None:
    write(tmp_path, [1, 13, 13.01], [20, 20, 20])
    run, found = waits_of(tmp_path)
    ns, last = of_wire(run, found)
    assert (ns, last) == ([[12_010_000], [0], [0]], [[UNKNOWN]] * 3)


def test_devices_run_behind_their_hosts_by_unlike_times(tmp_path: Path) -> None:
    """Rank 0's host is 8 ms ahead of it, so its times are placed as much too early."""
    write(tmp_path, [1, 5, 13], [12, 20, 20], timed_by_device)
    run, found = waits_of(tmp_path)
    assert of_wire(run, found) == ([[4 * MS], [8 * MS], [0]], [[UNKNOWN]] * 3)
    assert found.why_no_clock == "no clock ties the times of one device to another's"


def test_rounds_are_matched_where_all_ranks_have_as_many(tmp_path: Path) -> None:
    def two(step: CompletedStep) -> CompletedStep:
        record, (bucket,) = step
        wire = next(s for s in bucket.stages if s.name == "wire")
        middle = (wire.start_ns + wire.end_ns) // 2
        rounds = (replace(wire, end_ns=middle), replace(wire, start_ns=middle))
        return record, (replace(bucket, stages=rounds),)

    write(tmp_path / "same", [1, 5], [21, 21], two)
    ns, last = of_wire(*waits_of(tmp_path / "same"))
    assert (ns, last) == ([[4 * MS, 2 * MS], [0, 0]], [[1, 1], [1, 1]])
    twice = iter([True, False])
    write(tmp_path / "other", [1, 5], [21, 21], lambda step: two(step) if next(twice) else step)
    assert of_wire(*waits_of(tmp_path / "other"))[0] == [[UNKNOWN] * 2, [UNKNOWN]]


def test_records_say_which_ranks_are_together(tmp_path: Path) -> None:
    """Two of four where parameters are shared, two others where gradients are averaged."""
    job = ShardedJob(ranks=4, replicas=2, steps=2)
    run = job_run(job, tmp_path)
    of, members = process_groups(run)
    assert members == [None, (0, 2, 1), (0, 3, 2), (1, 4, 2), (2, 4, 1)]
    expected = [3 if unit.collective == "all_reduce" else 4 for unit in job.slots()]
    assert of[3].tolist() == expected * 2
    within = [ranks_within(run.tracks, one) for one in members]
    assert within == [[0, 1, 2, 3], [0, 1], [0, 2], [1, 3], [2, 3]]
