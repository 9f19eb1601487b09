"""Where the tab draws what a run holds; what it draws of whole jobs is in ``golden/``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hooktrace.analysis.run.columns import KEY_BITS
from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.run.spans import MAX_ROWS
from hooktrace.analysis.tensorboard_plugin.run_summary import lists_of
from hooktrace.records import CompletedStep, DeviceSpan
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.analysis.run.files import add, run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import drawn, run_in, tab_of
from tests.exporters.records_sample import STEP_NS, make_anomaly, on_device

MS = 1_000_000
S = 1_000_000_000


def test_device_steps_end_with_their_last_bucket(tmp_path: Path) -> None:
    """The host's end is only when the work was enqueued."""
    write_ranks(tmp_path, {0: text_of(run_of(0), [on_device(s) for s in steps_of(2)])})
    steps = tab_of(run_in(tmp_path)).steps
    assert steps.end.tolist() == [6 * MS, STEP_NS + 6 * MS]
    assert steps.last_ready.tolist() == [2 * MS, STEP_NS + 2 * MS]


def scene_of(folder: Path, job: ShardedJob, *steps: CompletedStep) -> Scene:
    """Return what the tab draws of rank 0's steps."""
    write_ranks(folder, {0: text_of(job.run(0), steps)})
    return tab_of(run_in(folder))


def test_what_is_under_way_at_once_has_a_row_each(tmp_path: Path) -> None:
    """Asked for asynchronously a second gather begins before the first has ended."""
    job = ShardedJob(ranks=2, steps=3, micro_steps=2)
    scene = scene_of(tmp_path, job, *(_overlapping(ranks[0]) for ranks in sharded_steps(job)))
    assert scene.titles == ["all-gather fwd", "", "all-gather bwd", "reduce-scatter"]
    assert scene.bars.lane[:3].tolist() == [0, 1, 0]


def _overlapping(step: CompletedStep) -> CompletedStep:
    record, (first, second, *others) = step
    return record, (replace(first, done_ns=second.ready_ns + 1), second, *others)


ONE = ShardedJob(ranks=1, steps=1)


def test_of_an_asynchronous_collective_issuing_and_waiting_are_exposed(tmp_path: Path) -> None:
    """What lies between is hidden; of one whose wait is not known nothing is drawn."""
    record, (first, second, *others) = next(sharded_steps(ONE))[0]
    issued = replace(first, launched_ns=first.ready_ns + MS // 10, exposed_ns=MS // 2)
    unknown = replace(second, exposed_ns=None)
    step = replace(record, exposed_ns=None), (issued, unknown, *others)
    scene = scene_of(tmp_path, ONE, step)
    spans, zero = scene.exposed, first.ready_ns - scene.origin
    assert (spans.start[:2] - zero).tolist() == [0, MS - MS * 4 // 10]
    assert (spans.end[:2] - zero).tolist() == [MS // 10, MS]
    assert not (spans.row == 1).any()


def test_on_a_device_the_end_of_a_collective_is_exposed(tmp_path: Path) -> None:
    """To issue it keeps nothing; until the computing stream waits it is hidden."""
    record, (first, *others) = next(sharded_steps(ONE))[0]
    with_span = replace(
        first, device_type="cuda", device=DeviceSpan(ready_ns=0, done_ns=MS, stages=()),
        launched_ns=first.ready_ns + MS // 10, exposed_ns=MS * 4 // 10,
    )  # fmt: skip
    spans = scene_of(tmp_path, ONE, (record, (with_span, *others))).exposed
    assert (spans.start[0], spans.end[0]) == (MS * 6 // 10, MS)


def test_units_are_the_same_on_ranks_that_number_them_otherwise(tmp_path: Path) -> None:
    """A rank numbers collectives as it meets them."""
    job = ShardedJob(ranks=2, steps=2)
    for rank in range(2):
        steps = [
            (step, tuple(replace(call, bucket=call.bucket + 3 * rank) for call in calls))
            for step, calls in (ranks[rank] for ranks in sharded_steps(job))
        ]
        write_ranks(tmp_path, {rank: text_of(job.run(rank), steps)})
    scene = tab_of(run_in(tmp_path))
    assert scene.units == [*job.slots()]
    assert np.bincount(scene.bars.unit).tolist() == [4] * len(scene.units)
    first, second = (scene.bars.lane[scene.bars.of_rank(i)].tolist() for i in range(2))
    assert first == second


JOB = SyntheticJob(steps=20)


def scene_with(folder: Path, hang: SyntheticHang, job: SyntheticJob = JOB) -> Scene:
    write_hung_job(job, hang, folder)
    return tab_of(run_in(folder))


def test_a_hang_without_end_is_open_on_all_that_have_a_part_in_it(tmp_path: Path) -> None:
    """In the bucket's row of those that wait, and over all rows of the one that they wait for."""
    scene = scene_with(tmp_path, SyntheticHang(step=12, killed=(2,)))
    last = int(scene.bars.end.max())
    found = drawn(scene, 0, scene.extent, 1000)
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
    assert [hang.start for _, hang, *_ in scene.hang_bars] == [scene.origin] * 4
    assert len(drawn(scene, 0, scene.extent, 1000)["ranks"][1]["hangs"]) == 1


def test_of_many_buckets_the_row_is_one_that_there_is(tmp_path: Path) -> None:
    """The bucket's last one, else one of those that a lane has."""
    job = SyntheticJob(steps=20, bucket_bytes=(100_000,) * 30)
    scene = scene_with(tmp_path, SyntheticHang(step=12, bucket=20), job)
    own = scene.bars.at(scene.bars.of_rank(0))
    assert scene.hang_bars[0][2] in set(own.lane[own.bucket == 20].tolist())
    scene = scene_with(tmp_path, SyntheticHang(step=1, bucket=20), job)
    assert scene.hang_bars[0][2] == MAX_ROWS - 1
    assert scene.lanes == MAX_ROWS


def test_ranks_that_wait_for_each_other_are_both(tmp_path: Path) -> None:
    """And where no call waits, all rows of the rank do."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    other = replace(record, hang=1, bucket=-1, ranks=(0, 1), waiting=(0, 1))
    add(tmp_path, 0, other)
    bars = tab_of(run_in(tmp_path)).hang_bars
    assert [(lane, waits) for rank, _, lane, waits in bars if rank == 1] == [
        (5, True),
        (None, False),
        (None, True),
    ]


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
