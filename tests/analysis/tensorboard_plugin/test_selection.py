"""What a stretch of time holds: parts add up, and shares are of what is exposed in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.tensorboard_plugin import selection as module
from hooktrace.testing.synthetic import SyntheticJob, simulate
from tests.analysis.runs import job_run, tab_of

MS = 1_000_000
JOB = SyntheticJob(ranks=4, steps=12, late_ms={2: 5.0}, slow_every=5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("run")
    return tab_of(job_run(JOB, folder))


def selection(scene: Scene, t0: int, t1: int) -> dict[str, Any]:
    return module.selection(scene, t0, t1, [*range(len(scene.numbers))])


def by_name(found: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in (*found["stages"], *found["buckets"])}


def test_stretches_that_adjoin_add_up(scene: Scene) -> None:
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
    cut = selection(scene, 0, int(scene.steps.end[0]) - MS)
    assert cut["exposed"] == 2 * (first - MS)


def test_an_empty_stretch(scene: Scene) -> None:
    """None is an error; one without buckets, or of no rank, holds nothing."""
    with pytest.raises(ValueError, match="after t0"):
        selection(scene, 5, 5)
    for ranks in ([0, 1, 2, 3], []):
        found = module.selection(scene, 10**15, 10**15 + 1, ranks)
        assert (found["stages"], found["buckets"], found["exposed"]) == ([], [], 0)
