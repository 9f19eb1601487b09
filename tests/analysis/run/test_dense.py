"""A model's settled steps as arrays, and the rows of a rank that count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.run import STAGE_NAMES
from hooktrace.analysis.run.dense import RankRows
from tests.analysis.report.jobs import MS, facts_of
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in


def test_a_steps_times_are_those_of_its_records(tmp_path: Path) -> None:
    """A step of the sample: 10 ms, two buckets 1 ms apart of 2 ms each, so 2 ms are exposed."""
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(9)) for r in range(2)})
    model = facts_of(tmp_path)
    assert (model.steps, model.clock, model.exposed_share) == (9, "host", 0.2)
    assert model.period is not None
    assert model.exposed is not None
    assert (model.period.p50, model.exposed.p50, model.busy_ns) == (10 * MS, 2 * MS, 3 * MS)
    assert model.overlap == pytest.approx(1 / 3)
    assert (model.gradient_bytes, model.wire_bytes) == (8_000, 4_000)
    first, last = model.buckets
    assert first.stages == {
        "compress": 0.1 * MS, "queue": 0.4 * MS, "wire": 1 * MS, "decompress": 0.5 * MS,
    }  # fmt: skip
    assert (first.ready_ns, last.ready_ns) == (0, 1 * MS)
    assert (first.is_last, last.is_last) == (False, True)
    assert (first.tail_share, last.tail_share) == (0.5, 0.5)  # done 1 and 2 ms after backward
    assert first.busbw_bytes_per_second == pytest.approx(2_000 / 1e-3)


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
    assert list(rows.errors()) == []
