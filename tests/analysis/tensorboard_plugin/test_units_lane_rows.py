"""The rows of a rank's lane."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.tensorboard_plugin.units import MAX_ROWS, rows_of


def test_many_buckets_take_free_rows() -> None:
    """No two that overlap share a row, and rows begin anew with each step."""
    bucket = np.tile(np.arange(30), 2)
    step = np.repeat([0, 1], 30)
    start = step * 1000 + bucket * 10
    end = start + 45
    rows = rows_of(step, bucket, start, end)
    assert rows[:8].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert rows[30:].tolist() == rows[:30].tolist()
    crowded = rows_of(step, bucket, start, start + 10_000)
    assert set(crowded) == set(range(MAX_ROWS))
