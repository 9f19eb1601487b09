"""Rows of ranks: one each, of its newest line, with delays of steps in which others are known."""

from __future__ import annotations

from hooktrace.ranks.whole_job.job_steps import MOST_RANKS, rows_of
from hooktrace.records.job import merged

from .parts import MS, line_of, part_of


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
