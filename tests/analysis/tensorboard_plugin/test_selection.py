"""What a stretch of time holds: as counted by hand from the records of a job that one knows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.tensorboard_plugin.plugin import of_ranks
from hooktrace.analysis.tensorboard_plugin.scene import Scene
from hooktrace.analysis.tensorboard_plugin.selection import selection
from hooktrace.records.files import find_records
from hooktrace.records.intervals import union_ns
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from tests.analysis.runs import job_run, run_in, tab_of

MS = 1_000_000
JOB = SyntheticJob(ranks=4, steps=12, late_ms={2: 5.0}, slow_every=5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("run")
    return tab_of(job_run(JOB, folder))


def origin() -> int:
    return int(next(simulate(JOB)).ready.min())


def by_name(found: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in (*found["stages"], *found["buckets"])}


def spans(t0: int, t1: int, bucket: int | None = None) -> list[list[tuple[int, int]]]:
    """Return ready and done of each rank's buckets that were ready in a stretch, by hand."""
    found = []
    for rank in range(JOB.ranks):
        moments = [m for step in simulate(JOB) for m in list(enumerate(step.moments(rank)))]
        since = JOB.offset_ns(rank) - origin()
        at = [(b, m.ready + since, m.done + since) for b, m in moments]
        found.append([(s, e) for b, s, e in at if t0 <= s < t1 and bucket in (None, b)])
    return found


def test_buckets_are_those_that_were_ready_inside_whole(scene: Scene) -> None:
    """With the lengths that they had; sum counts overlaps twice, busy once."""
    t0, t1 = 130 * MS, 480 * MS
    found = selection(scene, t0, t1)
    for bucket in range(8):
        own = spans(t0, t1, bucket)
        lengths = [e - s for rank in own for s, e in rank]
        row = by_name(found)[f"bucket {bucket}"]
        assert (row["count"], row["sum"]) == (len(lengths), sum(lengths))
        assert (row["mean"], row["p95"]) == (np.mean(lengths), np.quantile(lengths, 0.95))
        assert row["busy"] == sum(union_ns(rank) for rank in own)
        assert sum(row["histogram"]) == len(lengths)
    every = spans(t0, t1)
    assert found["buckets_counted"] == sum(map(len, every))
    assert found["reach_out"] == sum(e > t1 for rank in every for _, e in rank)
    before = [one for rank in spans(-(10**12), t0) for one in rank]
    assert found["reach_in"] == sum(e > t0 for _, e in before)


def test_wait_and_transfer_stand_apart(scene: Scene) -> None:
    """The late rank waits for nobody, and together they are what is on the wire."""
    rows = by_name(selection(scene, 0, scene.extent))
    assert "wire" not in rows
    wire = sum(
        m.arrived - m.sent for s in simulate(JOB) for r in range(JOB.ranks) for m in s.moments(r)
    )
    assert rows["wire: wait"]["sum"] + rows["wire: transfer"]["sum"] == wire
    assert rows["wire: wait"]["count"] == rows["wire: transfer"]["count"] == 4 * 12 * 8
    late = by_name(selection(of_ranks(scene, {2}), 0, scene.extent))
    assert late["wire: wait"]["sum"] == 0
    assert late["compress"]["count"] == 12 * 8


def test_stretches_that_adjoin_add_up(scene: Scene) -> None:
    """Nothing is in two of them, and nothing in none."""
    whole = by_name(selection(scene, 0, scene.extent + 1))
    cuts = [0, 7 * MS, 200 * MS, 333 * MS, scene.extent + 1]
    parts = [by_name(selection(scene, a, b)) for a, b in pairwise(cuts)]
    for name, row in whole.items():
        own = [part[name] for part in parts if name in part]
        assert sum(p["sum"] for p in own) == row["sum"]
        assert sum(p["count"] for p in own) == row["count"]


def test_the_share_of_exposed_time_is_that_of_the_last_bucket(tmp_path: Path) -> None:
    """Two buckets far apart: only the last one is under way after the last is ready."""
    job = SyntheticJob(ranks=2, steps=3, bucket_bytes=(4_000_000,) * 2, jitter_ms=0.0)
    scene = tab_of(job_run(job, tmp_path))
    found = selection(scene, 0, scene.extent + 1)
    rows = by_name(found)
    assert (rows["bucket 0"]["exposed"], rows["bucket 1"]["exposed"]) == (0.0, 1.0)
    steps = [step.completed(rank)[0] for step in simulate(job) for rank in range(2)]
    assert found["exposed"] == sum(step.exposed_ns or 0 for step in steps)
    codec = sum(3 * 2 * [int(job.codec_ms * MS)])
    assert rows["compress"]["exposed"] == pytest.approx(codec / found["exposed"])
    first = steps[0].exposed_ns or 0
    cut = selection(scene, 0, int(scene.ranks[0].steps.end[0]) - MS)
    assert cut["exposed"] == 2 * (first - MS)


def test_what_is_not_told_apart_stays_wire(tmp_path: Path) -> None:
    """With the reason: the last rank may be among those without a file."""
    write_job(JOB, tmp_path)
    find_records(tmp_path)[3][0].unlink()
    scene = tab_of(run_in(tmp_path))
    found = selection(scene, 0, scene.extent)
    assert "wire" in by_name(found)
    assert "wire: wait" not in by_name(found)
    assert "3 of 4 ranks have a file" in found["wire_not_split"]


def test_one_rank_s_wire_needs_no_reason(tmp_path: Path) -> None:
    """It waits for nobody, so nothing is left to be told apart."""
    scene = tab_of(job_run(SyntheticJob(ranks=1, steps=3), tmp_path))
    found = selection(scene, 0, scene.extent)
    assert "wire" in by_name(found)
    assert found["wire_not_split"] == ""


def test_an_empty_stretch(scene: Scene) -> None:
    """None is an error; one without buckets, or of no rank, holds nothing."""
    with pytest.raises(ValueError, match="after t0"):
        selection(scene, 5, 5)
    for one in (scene, of_ranks(scene, set())):
        found = selection(one, 10**15, 10**15 + 1)
        assert (found["stages"], found["buckets"], found["exposed"]) == ([], [], 0)
