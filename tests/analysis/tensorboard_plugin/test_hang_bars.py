"""Hangs in the picture: where they are drawn; what is said of them is in ``golden/``."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.run.columns import KEY_BITS
from hooktrace.analysis.tensorboard_plugin.level_of_detail import picture
from hooktrace.analysis.tensorboard_plugin.run_summary import lists_of
from hooktrace.analysis.tensorboard_plugin.scene import Scene
from hooktrace.analysis.tensorboard_plugin.units import MAX_ROWS
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import add
from tests.analysis.runs import run_in, tab_of
from tests.exporters.records_sample import make_anomaly

JOB = SyntheticJob(steps=20)
S = 1_000_000_000


def scene_with(folder: Path, hang: SyntheticHang, job: SyntheticJob = JOB) -> Scene:
    write_hung_job(job, hang, folder)
    return tab_of(run_in(folder))


def test_a_hang_without_end_is_open_on_all_that_have_a_part_in_it(tmp_path: Path) -> None:
    """In the bucket's row of those that wait, and over all rows of the one that they wait for."""
    scene = scene_with(tmp_path, SyntheticHang(step=12, killed=(2,)))
    last = max(int(rank.buckets.end.max()) for rank in scene.ranks)
    found = picture(scene, 0, scene.extent, 1000)
    bars = {rank["rank"]: rank["hangs"] for rank in found["ranks"]}
    ((bar,), (_,), (missing,), (_,)) = bars.values()
    assert [(b["lane"], b["waits"]) for (b,) in bars.values()] == [
        (5, True), (5, True), (None, False), (5, True)
    ]  # fmt: skip
    assert bar["end"] is None
    assert last < bar["start"] < scene.extent
    assert bar["text"] == (
        "bucket 5 of step 12 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
        "`data.py:88 next_batch`, 1 step behind; no end of it is recorded"
    )
    assert bar["title"] == "hang, step 12: rank 0 waits"
    assert missing["title"] == "hang, step 12: rank 2 is waited for"


def test_a_hang_in_the_first_step_has_a_picture(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, SyntheticHang(step=1))
    assert (scene.extent, scene.lanes) == (S, 6)
    assert [bar.start for bar in scene.ranks[3].hangs] == [0]
    assert len(picture(scene, 0, scene.extent, 1000)["ranks"][1]["hangs"]) == 1


def test_of_many_buckets_the_row_is_one_that_there_is(tmp_path: Path) -> None:
    """The bucket's last one, else one of those that a lane has."""
    job = SyntheticJob(steps=20, bucket_bytes=(100_000,) * 30)
    scene = scene_with(tmp_path, SyntheticHang(step=12, bucket=20), job)
    (bar,) = scene.ranks[0].hangs
    assert bar.lane in set(scene.ranks[0].lane[scene.ranks[0].bucket == 20].tolist())
    scene = scene_with(tmp_path, SyntheticHang(step=1, bucket=20), job)
    assert scene.ranks[0].hangs[0].lane == MAX_ROWS - 1
    assert scene.lanes == MAX_ROWS


def test_ranks_that_wait_for_each_other_are_both(tmp_path: Path) -> None:
    """And where no call waits, all rows of the rank do."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    other = replace(record, hang=1, bucket=-1, ranks=(0, 1), waiting=(0, 1))
    add(tmp_path, 0, other)
    bars = tab_of(run_in(tmp_path)).ranks[1].hangs
    assert [(bar.lane, bar.waits) for bar in bars] == [(5, True), (None, False), (None, True)]


def test_the_stall_of_a_hung_step_is_not_listed_once_more(tmp_path: Path) -> None:
    """Each rank marks it; other stalls stay."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    stalls = [
        replace(make_anomaly(step, kind="stall"), model=JOB.model, time_ns=S) for step in (12, 15)
    ]
    add(tmp_path, 0, *stalls)
    found = lists_of(tab_of(run_in(tmp_path)))["anomalies"]
    assert [row["label"][:14] for row in found] == ["hang, step 12,", "stall, step 15"]


def test_a_hung_step_is_not_the_one_at_which_a_rank_is_latest(tmp_path: Path) -> None:
    """As in the report: it says for itself whom all waited for."""
    job = SyntheticJob(ranks=2, steps=30, late_ms={1: 12.0})
    write_hung_job(job, SyntheticHang(step=12, rank=1, bucket=0, went_on_after_s=42), tmp_path)
    ((late, calls),) = tab_of(run_in(tmp_path)).late
    assert (late.rank, late.margin_ns < 20_000_000) == (1, True)
    assert not {11, 12} & set((calls >> KEY_BITS).tolist())
