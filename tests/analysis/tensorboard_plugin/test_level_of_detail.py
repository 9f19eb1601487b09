"""Pictures of made-up runs: every bucket is in them once, and their size is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail
from hooktrace.analysis.tensorboard_plugin.level_of_detail import (
    MAX_BARS,
    MAX_BINS,
    MAX_STEPS,
    picture,
)
from hooktrace.analysis.tensorboard_plugin.run_summary import step_of, summary_of
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.analysis.tensorboard_plugin.scene import LATE, MAX_ROWS, Scene, rows_of, scene_of
from hooktrace.analysis.timeline import load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from tests.analysis.timeline.files import Completed, run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import MODEL, STEP_NS, on_device, probed

MS = 1_000_000


def scene(folder: Path, steps: list[Completed]) -> Scene:
    """Return the scene of one rank with these steps."""
    write_ranks(folder, {0: text_of(run_of(0), steps)})
    return scene_of(load(find_records(folder)), MODEL)


def count(found: dict[str, Any], what: str) -> int:
    return sum(len(r[what]["lane"]) for r in found["ranks"])


def test_wide_buckets_are_bars_with_their_stages(tmp_path: Path) -> None:
    """In ns after t0, in the order of the file, and only what the stretch touches."""
    made = scene(tmp_path, steps_of(5))
    (rank,) = picture(made, STEP_NS, 2 * STEP_NS - 1, 1000)["ranks"]
    bars = rank["bars"]
    assert rank["bins"]["lane"] == []
    assert (bars["step"], bars["bucket"], bars["lane"]) == ([1, 1], [0, 1], [0, 1])
    assert bars["start"] == [0, MS]
    assert bars["end"] == [2 * MS, 3 * MS]
    assert bars["flags"] == [0, 1]
    assert bars["stages"] == [4, 4]
    assert bars["stage"] == [0, 1, 2, 3] * 2
    starts, ends = [0, 100_000, 500_000, 1_500_000], [100_000, 500_000, 1_500_000, 2_000_000]
    assert bars["stage_start"] == [*starts, *(t + MS for t in starts)]
    assert bars["stage_end"] == [*ends, *(t + MS for t in ends)]
    assert rank["steps"] == {
        "step": [1], "start": [0], "last_ready": [MS], "end": [3 * MS],
        "exposed": [2 * MS], "flags": [0],
    }  # fmt: skip


def test_narrow_buckets_are_merged_with_their_shares(tmp_path: Path) -> None:
    """2 ms of which 5 % compress, 20 % queue, 50 % wire, 25 % decompress."""
    made = scene(tmp_path, steps_of(5))
    found = picture(made, 0, 5 * STEP_NS, 6)
    (rank,) = found["ranks"]
    assert rank["bars"]["lane"] == []
    assert found["bin_ns"] == 25 * MS  # two bins of 3 px
    bins = rank["bins"]
    assert list(zip(bins["lane"], bins["bin"], bins["count"], strict=True)) == [
        (0, 0, 3), (0, 1, 2), (1, 0, 3), (1, 1, 2),
    ]  # fmt: skip
    assert bins["cover"] == [24, 16, 24, 16]
    assert bins["shares"] == [5, 20, 50, 25, 0, 0, 0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("share", [1, 3, 20, 400])
def test_every_bucket_is_there_once_and_the_picture_is_bounded(tmp_path: Path, share: int) -> None:
    """However many there are and wherever one looks."""
    job = SyntheticJob(ranks=3, steps=400, bucket_bytes=(4_000_000,) * 25)
    write_job(job, tmp_path)
    made = scene_of(load(find_records(tmp_path)), job.model)
    t0, t1 = made.extent // 3, made.extent // 3 + made.extent // share
    found = picture(made, t0, t1, 1500)
    touching = sum(int(((r.buckets.end >= t0) & (r.buckets.start <= t1)).sum()) for r in made.ranks)
    bars = count(found, "bars")
    merged = sum(sum(r["bins"]["count"]) for r in found["ranks"])
    assert bars + merged == touching == found["single"] + found["merged"]
    assert bars <= MAX_BARS
    assert count(found, "bins") <= MAX_BINS
    assert sum(len(r["steps"]["step"]) for r in found["ranks"]) <= MAX_STEPS


def test_limits_hold_where_they_bite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer bars and wider bins, but no bucket is lost; steps all or none."""
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_STEPS", 49)
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_BARS", 10)
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_BINS", 12)
    made = scene(tmp_path, steps_of(50))
    found = picture(made, 0, 50 * STEP_NS, 5000)
    assert count(found, "bars") <= 10
    assert 0 < count(found, "bins") <= 12
    assert sum(found["ranks"][0]["bins"]["count"]) + count(found, "bars") == 100
    assert found["ranks"][0]["steps"]["step"] == []
    assert len(picture(made, 0, 49 * STEP_NS - 1, 5000)["ranks"][0]["steps"]["step"]) == 49


def test_an_empty_stretch_is_refused(tmp_path: Path) -> None:
    """With the reason."""
    made = scene(tmp_path, steps_of(1))
    for t0, t1, width in ((5, 5, 10), (5, 4, 10), (0, 5, 0)):
        with pytest.raises(ValueError, match="t1 must be after t0"):
            picture(made, t0, t1, width)


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


def test_the_late_rank_is_marked_and_counted(tmp_path: Path) -> None:
    """Rank 2 in every fifth step, by 2 ms; the step most exposed is that of the slow collective."""
    job = SyntheticJob(
        steps=100, bucket_bytes=(4_000_000,) * 3, late_ms={2: 2.0}, late_every=5, jitter_ms=0.0,
        slow_every=97, forward_ms=10.0, backward_ms=30.0,
    )  # fmt: skip
    write_job(job, tmp_path)
    made = scene_of(load(find_records(tmp_path)), job.model)
    for rank in made.ranks:
        late = sorted(set(rank.step[(rank.flags & LATE) != 0].tolist()))
        assert late == (list(range(1, 101, 5)) if rank.rank == 2 else [])
    summary = summary_of(made)
    (late_rank,) = summary["late"]
    assert (late_rank["rank"], late_rank["times"], late_rank["of"]) == (2, 60, 300)
    assert late_rank["margin"] == 2 * MS
    steps = {step.number: step.completed(0)[0] for step in simulate(job)}
    longest = max(steps.values(), key=lambda step: step.exposed_ns or 0).step
    assert summary["exposed"][0]["step"] == longest
    start = steps[longest].first_ready_ns - steps[1].first_ready_ns
    assert step_of(made, longest)["start"] == start
    assert step_of(made, 10**6)["step"] == 100


def test_details_are_those_of_the_record(tmp_path: Path) -> None:
    """Errors, exception, and a row that is not there."""
    step, buckets = probed(steps_of(1)[0])
    failed = (buckets[0], replace(buckets[1], exception="ValueError: no"))
    made = scene(tmp_path, [(step, failed)])
    first = bucket_detail(made, 0, 0)
    assert first["title"] == "bucket 0, step 0, rank 0"
    assert first["times"][0] == ["ready to done", "2.000 ms"]
    assert first["stages"][1] == [1, "queue", "0.400 ms", "derived"]
    assert first["bytes"][1] == ["on the wire", "2 kB (2 times less)"]
    assert first["error"][0] == ["relative L2", "0.25"]
    assert first["worst"] == [["layer0.bias", "inf"]]
    assert bucket_detail(made, 0, 1)["exception"] == "ValueError: no"
    for rank, row in ((0, 2), (0, -1), (1, 0)):
        with pytest.raises(NotThereError):
            bucket_detail(made, rank, row)
