"""A node's message; the hub's records of steps, what it keeps, and what a look shows."""

from __future__ import annotations

import pytest

from hooktrace.ranks.whole_job.job_steps import (
    KEPT_STEPS,
    MOST_RANKS,
    WAIT_S,
    Gatherer,
    JobSteps,
    decode_lines,
    decode_part,
    rows_of,
)
from hooktrace.records.job import merged

from .parts import MODEL, MS, Seconds, line_of, message_of, part_of


def test_parts_of_children_and_its_own_are_one() -> None:
    """As if one node had told of all ranks; nothing is told twice, and lines are kept."""
    leader = Gatherer()
    leader.add([(MODEL, part_of(0, 4))], [line_of(0, [part_of(0, 4)])])
    leader.take(1, message_of([1], [4], late=1))
    leader.take(2, message_of([2], [4]))
    assert leader.message() == message_of([0, 1, 2], [4], late=1)
    assert leader.message() is None
    leader.take(2, message_of([2], [5]))
    part = decode_part(leader.message() or b"")
    lines = [(line.rank, line.step) for line in decode_lines(part.lines)]
    assert lines == [(0, 4), (1, 4), (2, 5)]
    assert [(model, [s.step for s in steps]) for model, steps in part.steps] == [(MODEL, [5])]


def test_what_had_no_room_is_counted_below_too() -> None:
    """Steps between two messages are bounded."""
    child, leader = Gatherer(), Gatherer()
    child.add([(MODEL, part_of(1, step)) for step in range(300)], [])
    leader.take(1, child.message() or b"")
    assert decode_part(leader.message() or b"").lost == 300 - 256


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def test_a_step_is_a_record_when_all_ranks_have_told(clock: Seconds) -> None:
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], [7]))
    assert job.newest() == []
    job.take(2, message_of([2, 3], [7], late=3))
    (record,) = job.newest()
    spread = record.spread
    assert (record.model, record.hook, record.world_size) == (*MODEL, 4)
    assert (spread.step, spread.ranks) == (7, 4)
    assert (spread.arrival_delay_ns, spread.last_rank) == (7 * MS, 3)
    assert (spread.period_mean_ns, spread.exposed_mean_ns) == (100 * MS, 5 * MS)
    assert job.newest() == []


def test_a_rank_that_never_tells_is_waited_for_a_while(clock: Seconds) -> None:
    """Then steps are recorded without it, the newest alone; or where others would be forgotten."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1, 2], [1, 2]))
    clock.now += WAIT_S + 1.9
    assert job.newest() == []
    clock.now += 0.2
    assert [(r.spread.step, r.spread.ranks) for r in job.newest()] == [(2, 3)]
    for first in (3, 203):
        job.take(0, message_of([0, 1, 2], range(first, first + 200)))
    assert [r.spread.step for r in job.newest()] == [402 - KEPT_STEPS // 2 - 1]


def test_what_comes_late_counts(clock: Seconds) -> None:
    """In a step that has its record already."""
    job = JobSteps(2, clock)
    job.take(0, message_of([0], [1]))
    clock.now += WAIT_S + 2
    assert len(job.newest()) == 1
    job.take(1, message_of([1], [1]))
    assert job.snapshot().steps[-1].ranks == 2


def test_memory_is_bounded(clock: Seconds) -> None:
    job = JobSteps(2, clock)
    for first in range(0, 20_000, 100):
        job.take(0, message_of([0], range(first, first + 100)))
    ((_, steps),) = job._table.items()
    assert (len(steps), max(steps), len(job._since)) == (KEPT_STEPS, 19_999, 16 * KEPT_STEPS)


def test_a_look_shows_ranks_by_lateness(clock: Seconds) -> None:
    """The latest first; with their host."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], range(1, 11), late=1, host="a"))
    clock.now += 3
    job.take(2, message_of([2], range(1, 9), host="b"))
    job.take(3, message_of([3], range(1, 11), host="b"))
    shown = job.snapshot()
    rows = [(r.line.rank, r.line.host, r.arrival_delay_ns, r.age_s) for r in shown.ranks]
    assert rows == [(1, "a", 7 * MS, 3), (0, "a", 0, 3), (2, "b", 0, 0), (3, "b", 0, 0)]
    assert (shown.model, shown.told_by, shown.world_size) == ("net", 4, 4)
    assert [s.step for s in shown.steps] == list(range(1, 11))


def test_the_newest_line_of_a_rank_counts() -> None:
    """Where another node has taken over for its host, the hub has two of it."""
    old, new = line_of(1, [part_of(1, 3)]), line_of(1, [part_of(1, 5)])
    for (row,), count in (
        rows_of([(9.0, old), (1.0, new)], {}),
        rows_of([(1.0, new), (9.0, old)], {}),
    ):
        assert (row.line.step, row.age_s, count) == (5, 1.0, 1)


def test_a_delay_needs_another_rank() -> None:
    """Of the same step; otherwise it is not known, and not 0."""
    parts = [part_of(1, 3, delay_ms=4), part_of(1, 4, delay_ms=6), part_of(1, 5)]
    alone = {4: parts[1]}
    (row,), _ = rows_of([(0.0, line_of(1, parts))], alone)
    assert row.arrival_delay_ns is None
    both = {p.step: merged(p, part_of(0, p.step)) for p in parts[:2]}
    (row,), _ = rows_of([(0.0, line_of(1, parts))], both)
    assert (row.arrival_delay_ns, row.line.uncertainty_ns) == (5 * MS, MS // 10)


def test_all_ranks_of_a_small_job_are_shown() -> None:
    """Of a larger one the latest."""
    lines = [(0.0, line_of(rank, [part_of(rank, 1)])) for rank in range(MOST_RANKS)]
    assert len(rows_of(lines, {})[0]) == MOST_RANKS
    more = [*lines, (0.0, line_of(MOST_RANKS, [part_of(MOST_RANKS, 1, delay_ms=9)]))]
    rows, told_by = rows_of(more, {})
    assert (len(rows), told_by) == (MOST_RANKS, MOST_RANKS + 1)


def test_a_rank_that_has_told_nothing_for_half_a_minute_comes_first() -> None:
    """And then by its delay, which is not known of steps so old."""
    parts = [part_of(rank, 40, delay_ms=rank) for rank in range(3)]
    lines = [(40.0 if rank == 1 else 9.0, line_of(rank, [parts[rank]])) for rank in range(3)]
    rows, _ = rows_of(lines, {40: merged(parts[0], parts[2])})
    assert [row.line.rank for row in rows] == [1, 2, 0]
