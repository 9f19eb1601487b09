"""Record files on a real disk: whole after a kill and at any byte, flat, and of one process."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.run import reasons, run_of
from hooktrace.analysis.run.read import read_track
from hooktrace.exporters.record_file import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.records import AnomalyRecord, AssignmentRecord, Batch
from hooktrace.records.files import find_records, record_path
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

MIN_BYTES = 1 << 16


def write(logdir: Path, *batches: Batch, **options: Any) -> RecordFileExporter:
    exporter = RecordFileExporter(logdir, **options)
    for batch in batches:
        exporter.export(batch)
    exporter.close()
    return exporter


def test_each_line_is_strict_json_and_gives_the_records_back(tmp_path: Path) -> None:
    """What was exported is what is read, and any JSON parser takes the lines."""
    batch = sample.full_batch(rank=3)
    exporter = write(tmp_path, batch)
    assert exporter.path == tmp_path / "plugins" / "hooktrace" / "rank00003.jsonl"
    trace = read_parts([exporter.path])
    assert trace.run == batch.run
    assert trace.steps == [replace(step, kept_for="window") for step, _ in batch.steps]
    assert trace.buckets == [bucket for _, buckets in batch.steps for bucket in buckets]
    assert trace.assignments == list(batch.of(AssignmentRecord))
    assert trace.anomalies == list(batch.of(AnomalyRecord))
    assert (trace.skipped, trace.lost, trace.closed) == ([], {}, True)
    lines = [json.loads(line) for line in exporter.path.read_text().splitlines()]
    assert [line["kind"] for line in lines][:2] == ["run", "clock"]
    assert lines[-1] == {"kind": "losses", "closed": True}


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [256 << 20, 4 * MIN_BYTES], ids=["one part", "rotating"])
@pytest.mark.parametrize("after", [1, 40, 150])
def test_a_killed_process_leaves_whole_steps(tmp_path: Path, max_bytes: int, after: int) -> None:
    """All that were exported are read, each whole, but for parts that were removed and counted."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            keep_all = Retention(window_every=1)  # it may write thousands of steps
            exporter = RecordFileExporter(tmp_path, max_bytes=max_bytes, retention=keep_all)
            for step in itertools.count(0, 3):
                exporter.export(sample.make_batch(steps=3, bucket_count=9, first_step=step))
                os.write(writer, b"%d\n" % (step + 3))
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader) as lines:
        exported = [int(lines.readline()) for _ in range(after)]
        os.kill(pid, signal.SIGKILL)
        exported += map(int, lines)
    os.waitpid(pid, 0)
    assert size_of(tmp_path) <= max_bytes
    check_killed(parts_of(tmp_path), exported[-1])


def check_killed(paths: list[Path], exported: int) -> None:
    """Check that of steps 0 to ``exported`` and some more only removed ones are missing."""
    trace = read_parts(paths)
    numbers = [step.step for step in trace.steps]
    gap = next((i for i, number in enumerate(numbers) if number != i), len(numbers))
    missing = numbers[gap] - gap if gap < len(numbers) else 0
    assert gap > 0
    assert numbers[gap:] == list(range(gap + missing, len(numbers) + missing))
    assert len(numbers) + missing >= exported
    # A part is counted before it goes: the kill may have come between.
    going = len(read_parts([paths[1]]).steps) if len(paths) > 1 else 0
    assert trace.removed.get("steps", 0) in {missing, missing + going}
    made = [sample.make_step(i, bucket_count=9)[0] for i in numbers]
    assert trace.steps == [replace(step, kept_for="window") for step in made]
    assert Counter(b.step for b in trace.buckets) == dict.fromkeys(numbers, 9)
    assert len(trace.skipped) <= 1
    assert len(paths) > 1 or not trace.closed


def parts_of(logdir: Path) -> list[Path]:
    return find_records(logdir)[0]


def size_of(logdir: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(logdir / "plugins" / "hooktrace"))


def test_a_detail_that_was_left_out_is_no_missing_one(tmp_path: Path) -> None:
    """The step says so, the file counts it, and the last step before the end is there in full."""
    rules = Retention(first_steps=2, window_every=10, window_steps=1)
    exporter = RecordFileExporter(tmp_path, retention=rules)
    exporter.export(sample.make_batch(steps=5))
    left = {"steps": 3, "buckets": 6}
    assert +exporter.counts.left_out == left
    trace = read_parts([record_path(tmp_path, 0)])
    assert [step.detail_kept for step in trace.steps] == [True, True, False, False, False]
    assert {bucket.step for bucket in trace.buckets} == {0, 1}
    exporter.export(sample.make_batch(steps=8, first_step=5))
    exporter.close()
    trace = read_parts([record_path(tmp_path, 0)])
    assert trace.left_out == +exporter.counts.left_out == {"steps": 9, "buckets": 18}
    assert {bucket.step for bucket in trace.buckets} == {0, 1, 10, 12}
    assert (trace.lost, trace.removed) == ({}, {})


def test_a_slow_step_brings_the_step_before_it(tmp_path: Path) -> None:
    """Its detail was still there; the view of columns knows that it is complete."""
    rules = Retention(first_steps=0, window_every=1000, window_steps=1)
    steps = [sample.make_step(i) for i in range(1, 60)]
    steps[50] = (replace(steps[50][0], previous_period_ns=2 * sample.STEP_NS), steps[50][1])
    write(tmp_path, Batch(run=sample.make_run(), steps=tuple(steps)), retention=rules)
    track = read_track(parts_of(tmp_path))
    left = track.steps.step[track.steps.having("detail_left_out")].tolist()
    assert left == [i for i in range(1, 60) if i not in {50, 51, 59}]
    assert not reasons(run_of([track]))[0].any()


@pytest.mark.slow
def test_files_and_memory_are_flat(tmp_path: Path) -> None:
    """Also in a job that makes a model for each step and forgets it."""
    rules = Retention(first_steps=0, window_every=100, window_steps=2)
    exporter = RecordFileExporter(tmp_path, max_bytes=4 * MIN_BYTES, retention=rules)
    sizes, held = [], []
    tracemalloc.start()
    try:
        for number in range(450):
            own = {"model": f"model {number}"}
            step, buckets = sample.make_step(number)
            coming = [sample.make_anomaly(step=10**6 + number + i) for i in (0, 1)]
            records = [replace(record, **own) for record in (sample.make_layout(), *coming)]
            completed = replace(step, **own), tuple(replace(b, **own) for b in buckets)
            exporter.export(Batch(run=sample.make_run(), steps=(completed,), records=(*records,)))
            sizes.append(size_of(tmp_path))
            if number in {299, 449}:  # by then what is kept of models has its full size
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        exporter.close()
    assert max(sizes) <= 4 * MIN_BYTES
    assert min(sizes[150:]) > 2 * MIN_BYTES
    assert held[1] - held[0] < MIN_BYTES // 2
    assert len(parts_of(tmp_path)) == 8


def test_two_tracers_of_a_process_need_a_folder_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second one's files take the place of the first one's, which no report reads then."""
    first, second = RecordFileExporter(tmp_path), RecordFileExporter(tmp_path)
    first.export(sample.full_batch())
    assert not caplog.records
    second.export(sample.full_batch())
    first.close()
    second.close()
    (warning,) = caplog.records
    assert "give each tracer a logdir of its own" in warning.getMessage()
    write(tmp_path, sample.full_batch())
    assert len(caplog.records) == 1  # a run after the other is what files of earlier runs are
