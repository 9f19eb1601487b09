"""Rows of the tab, and of a sharded run where training waited; jobs are in ``golden/``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail
from hooktrace.analysis.tensorboard_plugin.scene import Scene
from hooktrace.analysis.tensorboard_plugin.selection import selection
from hooktrace.analysis.tensorboard_plugin.units import MAX_ROWS, Spans, kind_words, rows_of
from hooktrace.records import CompletedStep, DeviceSpan, ErrorRecord, Unit
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.analysis.runs import job_run, run_in, tab_of

from ..run.files import text_of, write_ranks

MS = 1_000_000
HYBRID = ShardedJob(ranks=4, replicas=2, steps=12, late_ms={3: 4.0})
PLAIN = ShardedJob(ranks=2, steps=3, micro_steps=2)


def scene_from(folder: Path, job: ShardedJob) -> Scene:
    return tab_of(job_run(job, folder))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene_from(tmp_path_factory.mktemp("hybrid"), HYBRID)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene_from(tmp_path_factory.mktemp("plain"), PLAIN)


def test_what_is_under_way_at_once_has_a_row_each(tmp_path: Path) -> None:
    """Asked for asynchronously a second gather begins before the first has ended."""
    made = [_overlapping(ranks[0]) for ranks in sharded_steps(PLAIN)]
    write_ranks(tmp_path, {0: text_of(PLAIN.run(0), made)})
    scene = tab_of(run_in(tmp_path))
    assert scene.titles == ["all-gather fwd", "", "all-gather bwd", "reduce-scatter"]
    assert scene.ranks[0].lane[:3].tolist() == [0, 1, 0]


def _overlapping(step: CompletedStep) -> CompletedStep:
    record, (first, second, *others) = step
    return record, (replace(first, done_ns=second.ready_ns + 1), second, *others)


def test_of_an_asynchronous_collective_issuing_and_waiting_are_exposed(tmp_path: Path) -> None:
    """What lies between is hidden; of one whose wait is not known nothing is drawn."""
    job = ShardedJob(ranks=1, steps=1)
    record, (first, second, *others) = next(sharded_steps(job))[0]
    issued = replace(first, launched_ns=first.ready_ns + MS // 10, exposed_ns=MS // 2)
    unknown = replace(second, exposed_ns=None)
    step = replace(record, exposed_ns=None), (issued, unknown, *others)
    write_ranks(tmp_path, {0: text_of(job.run(0), [step])})
    scene = tab_of(run_in(tmp_path))
    spans, zero = scene.ranks[0].exposed_at, first.ready_ns - scene.origin
    assert (spans.start[:2] - zero).tolist() == [0, MS - MS * 4 // 10]
    assert (spans.end[:2] - zero).tolist() == [MS // 10, MS]
    assert not (spans.row == 1).any()
    said = dict(bucket_detail(scene, 0, 1)["times"])["exposed"]
    assert said == "not known: its record does not say what training waited for it"
    assert dict(bucket_detail(scene, 0, 0)["times"])["exposed"] == "0.500 ms"


def test_on_a_device_the_end_of_a_collective_is_exposed(tmp_path: Path) -> None:
    """To issue it keeps nothing; until the computing stream waits it is hidden."""
    job = ShardedJob(ranks=1, steps=1)
    record, (first, *others) = next(sharded_steps(job))[0]
    on_device = replace(
        first, device_type="cuda", device=DeviceSpan(ready_ns=0, done_ns=MS, stages=()),
        launched_ns=first.ready_ns + MS // 10, exposed_ns=MS * 4 // 10,
    )  # fmt: skip
    write_ranks(tmp_path, {0: text_of(job.run(0), [(record, (on_device, *others))])})
    spans = tab_of(run_in(tmp_path)).ranks[0].exposed_at
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
    rows = selection(scene, 0, scene.extent)["buckets"]
    assert [(row["name"], row["count"]) for row in rows] == [(str(u), 4) for u in job.slots()]
    assert [r.lane.tolist() for r in scene.ranks] == [scene.ranks[0].lane.tolist()] * 2


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Unit(name="a", collective="all_gather", phase="backward", turn=1),
         "all-gather, backward pass, call 2 of the step"),
        (Unit(name="a", collective="reduce_scatter", phase="backward"),
         "reduce-scatter"),
        (Unit(name="a", collective="all_reduce", phase="backward"),
         "all-reduce"),
    ],
)  # fmt: skip
def test_kinds_in_words(unit: Unit, words: str) -> None:
    assert kind_words(unit) == words


def test_an_error_says_what_it_is_against(tmp_path: Path) -> None:
    """Of parameters that are gathered there is no average."""
    job = ShardedJob(ranks=1, steps=1, units=("<root>",))
    error = ErrorRecord(
        relative_l2=0.1, cosine=1.0, max_absolute=0.1, flipped_share=0.0, reference_l2=1.0
    )
    step, calls = next(sharded_steps(job))[0]
    probed = step, tuple(replace(call, error=error) for call in calls)
    write_ranks(tmp_path, {0: text_of(job.run(0), [probed])})
    scene = tab_of(run_in(tmp_path))
    told = [dict(bucket_detail(scene, 0, row)["error"])["against"] for row in range(2)]
    assert told == ["the parameters", "a lossless reduce-scatter"]


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


def test_what_overlaps_is_inside_however_early_it_began() -> None:
    """Sorted by start; an end before its start is the start."""
    rows = np.array([7, 8, 9])
    spans = Spans(rows, np.array([50, 0, 10]), np.array([40, 100, 20]))
    assert spans.row.tolist() == [8, 9, 7]
    assert spans.end.tolist() == [100, 20, 50]
    assert spans.row[spans.inside(30, 45)].tolist() == [8]
    assert spans.row[spans.inside(50, 60)].tolist() == [8, 7]
    assert spans.row[spans.inside(101, 200)].tolist() == []
