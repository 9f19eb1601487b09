"""What is read of the rows of a rank that count."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hooktrace.analysis.run import STAGE_NAMES
from hooktrace.analysis.run.dense import RankRows
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in


def test_rows_that_do_not_count_are_not_read(tmp_path: Path) -> None:
    """Of nine steps with two buckets of four stages each, the first bucket of each step."""
    write_ranks(tmp_path, {0: text_of(run_of(0), steps_of(9))})
    run = run_in(tmp_path)
    (track,), (clock,) = run.tracks, run.clocks
    steps, first = np.ones(9, np.bool_), track.buckets.bucket == 0
    rows = RankRows(track, clock, steps, first, steps, first)
    assert rows.called.tolist() == track.buckets.called[::2].tolist()
    counts = dict(zip(STAGE_NAMES, rows.stage_counts.tolist(), strict=True))
    stages = {"compress": 9, "queue": 9, "wire": 9, "decompress": 9}
    assert {name: count for name, count in counts.items() if count} == stages
    assert rows.sent(None).tolist() == [step.wire_bytes for step, _ in steps_of(9)]
    assert rows.sent(1).tolist() == []  # of a bucket whose rows do not count
    assert list(rows.errors()) == []
