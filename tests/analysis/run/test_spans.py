"""Rows of bars in a lane, and which of them a stretch of time has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hooktrace.analysis.run.spans import MAX_ROWS, Bars, Spans, lanes_of


def test_many_buckets_take_free_rows() -> None:
    """No two that overlap share a row, and rows begin anew with each step and rank."""
    bucket = np.tile(np.arange(30), 4)
    step, rank = np.repeat([0, 1, 0, 1], 30), np.repeat([0, 0, 1, 1], 30)
    start = step * 1000 + bucket * 10
    zeros = np.zeros(120, np.int64)
    bars = Bars(rank, bucket, start, start + 45, step, bucket, zeros, zeros, zeros)
    rows, titles = lanes_of(bars, [])
    assert rows[:8].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert rows.reshape(4, 30).tolist() == [rows[:30].tolist()] * 4
    assert titles == []
    crowded, _ = lanes_of(replace(bars, end=start + 10_000), [])
    assert set(crowded) == set(range(MAX_ROWS))


def test_what_overlaps_is_inside_however_early_it_began() -> None:
    """Sorted by rank and start; an end before its start is the start."""
    of_rank = [np.array([7, 8, 9]), np.array([50, 0, 10]), np.array([40, 100, 20])]
    spans = Spans.of([of_rank, of_rank])
    assert spans.row.tolist() == [8, 9, 7] * 2
    assert spans.end.tolist() == [100, 20, 50] * 2
    for t0, t1, rows in ((30, 45, [8]), (50, 60, [8, 7]), (101, 200, [])):
        assert spans.row[spans.inside(t0, t1, [1])].tolist() == rows
        assert spans.row[spans.inside(t0, t1, [0, 1])].tolist() == 2 * rows
    assert spans.gather([np.arange(10), -np.arange(10)]).tolist() == [8, 9, 7, -8, -9, -7]
