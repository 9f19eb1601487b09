"""Who is last, how often is beyond chance, and who waits how long: told by starts, not guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.analysis.run import UNKNOWN
from hooktrace.analysis.run.clock import last_rank
from hooktrace.analysis.run.order import is_order_known, often, waiting_ranks
from hooktrace.analysis.run.waits import process_groups, waits
from hooktrace.records import STAGES, CompletedStep, late_rank
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job
from tests.analysis.run.files import MS, drop, timed_by_device, write_changed, write_times
from tests.analysis.runs import arrays_of, facts_of, job_run, run_in


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.integers(0, 20))
def test_arrays_follow_the_rule_of_the_record(arrivals: list[int], uncertainty: int) -> None:
    """A record knows one uncertainty of two ranks' difference; here each rank has half of it."""
    ready = np.array(arrivals)[:, None]
    row, margin, unsure = last_rank(
        ready, np.full(ready.shape, uncertainty), np.ones(ready.shape, bool)
    )
    expected = late_rank(arrivals, 2 * uncertainty)
    assert row.tolist() == [UNKNOWN if expected is None else expected]
    if expected is not None:
        first, second = sorted(arrivals)[-1:-3:-1]
        assert (margin.tolist(), unsure.tolist()) == ([first - second], [2 * uncertainty])


def test_a_rank_of_an_unsure_clock_shields_the_last_one() -> None:
    """It may have come later still, though another rank came just before the last."""
    ready = np.array([[0], [90], [100]])
    uncertainty = np.array([[200], [0], [0]])
    assert last_rank(ready, uncertainty, ready >= 0)[0].tolist() == [UNKNOWN]
    assert last_rank(ready, uncertainty // 4, ready >= 0)[0].tolist() == [2]
    assert last_rank(ready, uncertainty // 4, ready > 0)[0].tolist() == [UNKNOWN]


def test_whoever_is_done_before_does_not_wait() -> None:
    """Rank 1 is ready at 10: rank 2 has its result before; rank 0 in few steps, or in too many."""
    ready = np.array([[1.0] * 100, [10.0] * 100, [1.0] * 100])
    done = np.array([[12.0] * 100, [12.0] * 100, [5.0] * 100])
    for before, expected in ((4, [0]), (6, [])):
        done[0, :before] = 5.0
        assert waiting_ranks(done, ready, 1) == expected


def test_a_rank_is_named_beyond_three_sigmas() -> None:
    """Of 4 ranks from 0.25 + 3 * 0.0433 = 0.38 on; 10 % of 64 is beyond chance, and yet rare."""
    for times, ranks, beats in ((35, 4, False), (38, 4, True), (10, 64, False), (60, 2, False)):
        assert (times / 100 >= often(ranks, 100)) is beats


def test_one_clock_that_nobody_measured_is_enough_to_know_nothing(tmp_path: Path) -> None:
    """The last one may always be that rank, so it is not said that none is last."""
    write_job(SyntheticJob(ranks=3, steps=12, late_ms={1: 6.0}), tmp_path)
    drop(tmp_path, [2], '"kind":"clock"')
    assert not is_order_known(arrays_of(run_in(tmp_path)))


def two_rounds(completed: CompletedStep) -> CompletedStep:
    """Return the step of a bucket whose collective is two, one after the other."""
    step, (bucket,) = completed
    wire = next(s for s in bucket.stages if s.name == "wire")
    middle = (wire.start_ns + wire.end_ns) // 2
    rounds = (replace(wire, end_ns=middle), replace(wire, start_ns=middle))
    return step, (replace(bucket, stages=rounds),)


@pytest.mark.parametrize(
    ("spans", "change", "waited_ms", "last"),
    [
        ([(1, 20), (5, 20), (13, 20)], None, [[12], [8], [0]], 2),
        ([(1, 20), (13, 20), (13.01, 20)], None, [[12.01], [0], [0]], UNKNOWN),
        # Rank 0's host is 8 ms ahead of its device, so its times are placed as much too early.
        ([(1, 12), (5, 20), (13, 20)], timed_by_device, [[4], [8], [0]], UNKNOWN),
        ([(1, 21), (5, 21)], two_rounds, [[4, 2], [0, 0]], 1),
    ],
    ids=["the last rank", "two come together", "devices", "rounds"],
)
def test_all_wait_until_the_last_rank_begins(
    tmp_path: Path, spans: list[Any], change: Any, waited_ms: list[list[float]], last: int
) -> None:
    """One bucket of one step, whose collective each rank begins and ends when it is told to."""
    steps = [[[(0, 0, begin, end, end)] for begin, end in spans]]
    write_times(tmp_path, steps, *([] if change is None else [change]))
    run = run_in(tmp_path)
    found = waits(run, "synthetic")
    own = [track.stages.name == STAGES.index("wire") for track in run.tracks]
    ns = [one.ns[rows].tolist() for one, rows in zip(found.waited, own, strict=True)]
    ranks = [one.last[rows].tolist() for one, rows in zip(found.waited, own, strict=True)]
    assert ns == [[ms * MS for ms in of_rank] for of_rank in waited_ms]
    assert ranks == [[last] * len(of_rank) for of_rank in waited_ms]
    why = "no clock ties the times of one device to another's"
    assert found.why_no_clock == (why if change is timed_by_device else None)


def test_rounds_are_matched_where_all_ranks_have_as_many(tmp_path: Path) -> None:
    twice = iter([True, False])
    one_rank = lambda step: two_rounds(step) if next(twice) else step  # noqa: E731
    write_times(tmp_path, [[[(0, 0, 1, 21, 21)], [(0, 0, 5, 21, 21)]]], one_rank)
    found = waits(run_in(tmp_path), "synthetic")
    assert [set(one.ns.tolist()) for one in found.waited] == [{UNKNOWN}] * 2


def test_of_ddp_the_ranks_of_a_process_group_wait_for_each_other(tmp_path: Path) -> None:
    """Ranks 1 and 3 are one, in which 3 is late by 6 ms; nobody in 0 and 2 waits for either."""
    job = SyntheticJob(ranks=4, steps=12, late_ms={1: 4.0, 3: 10.0}, jitter_ms=0.0)
    mine = lambda rank, b: replace(b, members=(rank % 2, 3 + rank % 2, 2))  # noqa: E731
    write_changed(tmp_path, job, lambda rank, of: (of[0], tuple(mine(rank, b) for b in of[1])))
    facts, found = facts_of(tmp_path), waits(run_in(tmp_path), job.model).waited
    assert [(late.rank, late.waiting) for late in facts.late] == [(3, (1,))]
    assert [one.arrival_delay_ns for one in facts.ranks] == [0, 0, 0, 6 * MS]
    assert [int(one.ns.max()) for one in found] == [0, 6 * MS, 0, 0]
    assert facts.exposed_kinds["wait"] == pytest.approx(6 * MS / 4, rel=0.02)


def test_records_say_which_ranks_are_together(tmp_path: Path) -> None:
    """Two of four where parameters are shared, two others where gradients are averaged."""
    job = ShardedJob(ranks=4, replicas=2, steps=2)
    run = job_run(job, tmp_path)
    of, members = process_groups(run)
    assert members == [None, (0, 2, 1), (0, 3, 2), (1, 4, 2), (2, 4, 1)]
    expected = [3 if unit.collective == "all_reduce" else 4 for unit in job.slots()]
    assert of[3].tolist() == expected * 2


def test_of_a_group_with_a_rank_without_records_nothing_is_known(tmp_path: Path) -> None:
    """It may be the last one; of the other groups it is known."""
    job = ShardedJob(ranks=4, replicas=2, steps=1, late_ms={2: 50.0}, late_at=4)
    write_sharded_job(job, tmp_path)
    drop(tmp_path, [3], '"kind":"buckets"')
    found = waits(run_in(tmp_path), job.model)
    known = [(found.waited[i].ns[[4, 6]] != UNKNOWN).tolist() for i in range(3)]
    assert known == [[True, True], [True, False], [False, True]]
