"""Pictures of made-up runs: every bucket is in them once, and their size is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.run.scene import KINDS, Scene
from hooktrace.analysis.tensorboard_plugin.level_of_detail import MAX_MARKS
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.run.files import Completed, run_of, steps_of, text_of, write_ranks
from tests.analysis.run.test_others import US, collective, run_with
from tests.analysis.runs import asking, drawn, job_run, run_in, tab_of
from tests.exporters.records_sample import STEP_NS

MS = 1_000_000


def scene(folder: Path, steps: list[Completed]) -> Scene:
    """Return the scene of one rank with these steps."""
    write_ranks(folder, {0: text_of(run_of(0), steps)})
    return tab_of(run_in(folder))


def count(found: dict[str, Any], what: str) -> int:
    return sum(len(r[what]["lane"]) for r in found["ranks"])


def test_wide_buckets_are_bars_with_their_stages(tmp_path: Path) -> None:
    """In ns, in the order of the file, and only what the stretch touches."""
    made = scene(tmp_path, steps_of(5))
    (rank,) = drawn(made, STEP_NS, 2 * STEP_NS - 1, 1000)["ranks"]
    bars = rank["bars"]
    assert rank["bins"]["lane"] == []
    assert (bars["step"], bars["bucket"], bars["lane"]) == ([1, 1], [0, 1], [0, 1])
    assert bars["start"] == [STEP_NS, STEP_NS + MS]
    assert bars["end"] == [STEP_NS + 2 * MS, STEP_NS + 3 * MS]
    assert bars["flags"] == [0, 1]
    assert bars["stages"] == [4, 4]
    assert bars["stage"] == [2, 3, 4, 5] * 2
    cuts = [STEP_NS + t for t in (0, 100_000, 500_000, 1_500_000, 2_000_000)]
    starts, ends = cuts[:-1], cuts[1:]
    assert bars["stage_start"] == [*starts, *(t + MS for t in starts)]
    assert bars["stage_end"] == [*ends, *(t + MS for t in ends)]
    assert rank["steps"] == {
        "step": [1], "start": [STEP_NS], "last_ready": [STEP_NS + MS], "end": [STEP_NS + 3 * MS],
    }  # fmt: skip


def test_narrow_buckets_are_merged_with_their_shares(tmp_path: Path) -> None:
    """2 ms of which 5 % compress, 20 % queue, 50 % wire, 25 % decompress."""
    made = scene(tmp_path, steps_of(5))
    found = drawn(made, 0, 5 * STEP_NS, 6)
    (rank,) = found["ranks"]
    assert rank["bars"]["lane"] == []
    assert found["bin_ns"] == 25 * MS  # two bins of 3 px
    bins = rank["bins"]
    assert list(zip(bins["lane"], bins["bin"], bins["count"], strict=True)) == [
        (0, 0, 3), (0, 1, 2), (1, 0, 3), (1, 1, 2),
    ]  # fmt: skip
    assert bins["cover"] == [24, 16, 24, 16]
    assert bins["shares"] == [0, 0, 5, 20, 50, 25, 0, 0, 0, 0] * 4


def test_limits_hold_where_they_bite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer bars and wider bins, but no bucket is lost; steps all or none."""
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_STEPS", 49)
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_BARS", 10)
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.level_of_detail.MAX_BINS", 12)
    made = scene(tmp_path, steps_of(50))
    found = drawn(made, 0, 50 * STEP_NS, 5000)
    assert count(found, "bars") <= 10
    assert 0 < count(found, "bins") <= 12
    assert sum(found["ranks"][0]["bins"]["count"]) + count(found, "bars") == 100
    assert found["ranks"][0]["steps"]["step"] == []
    assert len(drawn(made, 0, 49 * STEP_NS - 1, 5000)["ranks"][0]["steps"]["step"]) == 49
    part = drawn(made, 20 * STEP_NS, 25 * STEP_NS - 1, 5000)
    assert sum(part["ranks"][0]["bins"]["count"]) + count(part, "bars") == 10


def test_an_empty_stretch_is_refused(tmp_path: Path) -> None:
    made = scene(tmp_path, steps_of(1))
    for t0, t1, width in ((5, 5, 10), (5, 4, 10), (0, 5, 0)):
        with pytest.raises(ValueError, match="t1 must be after t0"):
            drawn(made, t0, t1, width)


def test_a_collective_leads_from_the_last_rank_to_all_that_waited(tmp_path: Path) -> None:
    """Also where the last rank is out of sight; a wait is a piece of its own."""
    job = SyntheticJob(ranks=4, steps=6, late_ms={2: 12.0}, jitter_ms=0.0)
    made = tab_of(job_run(job, tmp_path))
    shown = drawn(made, 0, made.extent, 30_000)
    found = shown["collectives"]
    assert len(found) == 6 * 8
    for one in found:
        assert (one["last"], one["lane"]) == (2, one["bucket"])
        assert [w["rank"] for w in one["waiting"]] == [0, 1, 3]
        assert all(w["at"] - w["start"] == 12 * MS and w["at"] == one["at"] for w in one["waiting"])
    assert [rank["bars"]["stage"].count(KINDS.index("wait")) for rank in shown["ranks"]] == [
        48, 48, 0, 48
    ]  # fmt: skip
    (first, *_) = drawn(made, 0, made.extent, 30_000, ranks=[0])["collectives"]
    assert (first["last"], first["at"]) == (2, None)


BARRIER = {"name": "barrier", "wire_bytes": 0, "where": "train.py:9"}


def test_collectives_of_no_bucket_have_a_row_below(tmp_path: Path) -> None:
    """As long as each was in flight; who issued it is told."""
    run = run_with(tmp_path, collective(10, 400), collective(500, None, **BARRIER))
    scene = tab_of(run)
    rows = scene.lanes - 1
    assert scene.others_lane == rows
    found = drawn(scene, 0, scene.extent, 1000)["ranks"][1]
    first, second = found["others"]
    assert set(found["bars"]["lane"]) <= set(range(rows))
    assert (first["lane"], first["end"] - first["start"]) == (rows, 400 * US)
    assert (second["title"], second["end"]) == ("barrier, step 3 of net, rank 1", second["start"])
    assert first["text"] == (
        "4 kB of payload, in flight for 400 µs; issued at train.py:7 on MainThread"
    )
    assert second["text"].startswith("0 B of payload, its end is not known; issued at train.py:9")
    steps = scene.steps.at((scene.steps.rank == 1) & (scene.steps.number == 3))
    assert first["start"] == steps.start[0] + 10 * US
    (model,) = asking(tmp_path)("/run")["models"]
    assert model["others_lane"] == rows


def test_in_low_lanes_there_are_none(tmp_path: Path) -> None:
    """A strip is one row, of buckets."""
    scene = tab_of(run_with(tmp_path, collective(10, 400)))
    assert drawn(scene, 0, scene.extent, 1000, strips=True)["ranks"][0]["others"] == []


def test_a_run_without_any_has_no_row(tmp_path: Path) -> None:
    scene = tab_of(run_with(tmp_path))
    assert scene.others_lane is None
    assert drawn(scene, 0, scene.extent, 1000)["ranks"][0]["others"] == []


def test_of_many_the_longest_are_drawn(tmp_path: Path) -> None:
    run = run_with(tmp_path, *(collective(i, i + 1) for i in range(MAX_MARKS + 50)))
    scene = tab_of(run)
    found = drawn(scene, 0, scene.extent, 1000)["ranks"][0]["others"]
    assert len(found) == MAX_MARKS
    assert min(one["end"] - one["start"] for one in found) == 51 * US
