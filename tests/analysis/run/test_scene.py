"""Where the tab draws what a run holds; what it draws of whole jobs is in ``golden/``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hooktrace.analysis.run.scene import MAX_ROWS, Bars, Scene, Spans, lanes_of
from hooktrace.analysis.tensorboard_plugin.run_summary import lists_of
from hooktrace.records import CompletedStep, DeviceSpan
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.analysis.run.files import add, text_of, write_ranks
from tests.analysis.runs import run_in, tab_of
from tests.exporters.records_sample import make_anomaly

MS = 1_000_000
S = 1_000_000_000


def scene_of(folder: Path, job: ShardedJob, *steps: CompletedStep) -> Scene:
    """Return what the tab draws of rank 0's steps."""
    write_ranks(folder, {0: text_of(job.run(0), steps)})
    return tab_of(run_in(folder))


ONE = ShardedJob(ranks=1, steps=1)


def test_of_an_asynchronous_collective_issuing_and_waiting_are_exposed(tmp_path: Path) -> None:
    """What lies between is hidden; of one whose wait is not known nothing is drawn.

    On a device to issue it keeps nothing, and until the computing stream waits it is hidden.
    """
    record, (first, second, *others) = next(sharded_steps(ONE))[0]
    issued = replace(first, launched_ns=first.ready_ns + MS // 10, exposed_ns=MS // 2)
    unknown = replace(second, exposed_ns=None)
    step = replace(record, exposed_ns=None), (issued, unknown, *others)
    scene = scene_of(tmp_path, ONE, step)
    spans, zero = scene.exposed, first.ready_ns - scene.origin
    assert (spans.start[:2] - zero).tolist() == [0, MS - MS * 4 // 10]
    assert (spans.end[:2] - zero).tolist() == [MS // 10, MS]
    assert not (spans.row == 1).any()
    span = DeviceSpan(ready_ns=0, done_ns=MS, stages=())
    on_device = replace(issued, device_type="cuda", device=span)
    spans = scene_of(tmp_path, ONE, (record, (on_device, *others))).exposed
    assert (spans.start[0], spans.end[0]) == (MS // 2, MS)


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


def test_the_stall_of_a_hung_step_is_not_listed_once_more(tmp_path: Path) -> None:
    """Each rank marks it; other stalls stay."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    stalls = [
        replace(make_anomaly(step, kind="stall"), model=JOB.model, time_ns=S) for step in (12, 15)
    ]
    add(tmp_path, 0, *stalls)
    found = lists_of(tab_of(run_in(tmp_path)))["anomalies"]
    assert [row["label"][:14] for row in found] == ["hang, step 12,", "stall, step 15"]


def test_many_buckets_take_free_rows() -> None:
    """No two that overlap share a row, and rows begin anew with each step and rank."""
    bucket = np.tile(np.arange(30), 4)
    step, rank = np.repeat([0, 1, 0, 1], 30), np.repeat([0, 0, 1, 1], 30)
    start = step * 1000 + bucket * 10
    zeros = np.zeros(120, np.int64)
    bars = Bars(rank, bucket, start, start + 45, step, bucket, zeros, zeros, zeros)
    rows, titles = lanes_of(bars, [])
    assert rows[:8].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert rows.reshape(4, 30).tolist() == [rows[:30].tolist()] * 4
    assert titles == []
    crowded, _ = lanes_of(dataclasses.replace(bars, end=start + 10_000), [])
    assert set(crowded) == set(range(MAX_ROWS))


def test_what_overlaps_is_inside_however_early_it_began() -> None:
    """Sorted by rank and start; an end before its start is the start."""
    of_rank = [np.array([7, 8, 9]), np.array([50, 0, 10]), np.array([40, 100, 20])]
    spans = Spans.of([of_rank, of_rank])
    assert spans.row.tolist() == [8, 9, 7] * 2
    assert spans.end.tolist() == [100, 20, 50] * 2
    for t0, t1, rows in ((30, 45, [8]), (50, 60, [8, 7]), (101, 200, [])):
        assert spans.row[spans.inside(t0, t1, [1])].tolist() == rows
        assert spans.row[spans.inside(t0, t1, [0, 1])].tolist() == 2 * rows
    assert spans.gather([np.arange(10), -np.arange(10)]).tolist() == [8, 9, 7, -8, -9, -7]
