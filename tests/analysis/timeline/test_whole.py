"""Which collectives all ranks of a run are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.timeline import is_whole, load, waits
from hooktrace.analysis.timeline.columns import UNKNOWN
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded


@pytest.mark.parametrize("size", [8, 30, 4_800, 12_000_000])
@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (4, 4), (8, 8), (4, 2), (8, 2), (8, 4)])
def test_the_factor_of_bus_bandwidth_tells(
    ranks: int, group: int, size: int, tmp_path: Path
) -> None:
    """Of payloads of all sizes, though a column holds whole bytes."""
    write_sharded(ShardedJob(ranks=ranks, group=group, block_bytes=size * ranks, steps=4), tmp_path)
    timeline = load(find_records(tmp_path))
    found = is_whole(timeline.tracks[0], ranks)
    assert set(found.tolist()) == {ranks == group}


def test_of_buckets_all_ranks_are_in_each(tmp_path: Path) -> None:
    """DDP's process group is what the run says."""
    write_job(SyntheticJob(ranks=2, steps=5), tmp_path)
    timeline = load(find_records(tmp_path))
    assert is_whole(timeline.tracks[0], 64).all()


def test_nobody_waits_for_a_rank_that_is_in_another_collective(tmp_path: Path) -> None:
    """Of hybrid sharding no wait is known, and the reason is given."""
    write_sharded(ShardedJob(ranks=4, group=2, late_ms={1: 9.0}), tmp_path)
    found = waits(load(find_records(tmp_path)), "net")
    assert found.why_unknown is not None
    assert "a part of the ranks is in each collective" in found.why_unknown
    assert all((one == UNKNOWN).all() for one in found.ns)
    write_sharded(ShardedJob(ranks=4, late_ms={1: 9.0}), tmp_path / "whole")
    found = waits(load(find_records(tmp_path / "whole")), "net")
    assert found.why_unknown is None
    assert np.concatenate(found.ns).max() > 8_000_000
