"""Where the tab draws buckets and steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hooktrace.analysis.tensorboard_plugin.scene import MAX_ROWS, rows_of
from tests.analysis.tensorboard_plugin.test_level_of_detail import MS, scene
from tests.analysis.timeline.files import steps_of
from tests.exporters.records_sample import STEP_NS, on_device


def test_device_steps_end_with_their_last_bucket(tmp_path: Path) -> None:
    """The host's end is only when the work was enqueued."""
    made = scene(tmp_path, [on_device(s) for s in steps_of(2)])
    (rank,) = made.ranks
    assert rank.steps.end.tolist() == [6 * MS, STEP_NS + 6 * MS]
    assert rank.last_ready.tolist() == [2 * MS, STEP_NS + 2 * MS]


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
