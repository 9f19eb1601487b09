"""Parts of bounded size under one cap, and those of earlier runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters.record_file import RecordFileExporter
from hooktrace.records import ClockRecord
from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample
from tests.exporters.test_record_file import MIN_BYTES, parts_of, size_of, write


def test_the_limit_takes_the_oldest_parts_and_counts_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first steps and the last are there, the files never too large, what went is counted."""
    exporter = RecordFileExporter(tmp_path, max_bytes=MIN_BYTES)
    with caplog.at_level(logging.WARNING):
        for i in range(40):
            exporter.export(sample.make_batch(first_step=i * 10, steps=10))
            assert size_of(tmp_path) <= MIN_BYTES
        exporter.close()

    paths = parts_of(tmp_path)
    assert len(paths) == 8
    trace = read_parts(paths)
    kept = [step.step for step in trace.steps]
    gap = next(i for i, step in enumerate(kept) if step != i)
    assert gap > 0
    assert kept[gap:] == list(range(kept[gap], 400))
    assert len(kept) + trace.removed["steps"] == 400
    assert len(trace.buckets) == 2 * len(kept)
    assert trace.removed == exporter.counts.removed
    assert (trace.lost, trace.left_out) == ({}, {})
    assert len(caplog.records) == 1
    assert "pass a larger max_bytes" in caplog.text


def test_every_part_can_be_read_alone(tmp_path: Path) -> None:
    """It says the run, the last layout and clock, and what went so far; its buckets say no more."""
    batches = [sample.make_batch(first_step=i * 10, steps=10) for i in range(10)]
    clock = ClockRecord(time_ns=1, offset_ns=2, uncertainty_ns=3, round_trip_ns=6, pings=4)
    batches[0] = replace(batches[0], records=(*batches[0].records, clock))
    write(tmp_path, *batches, max_bytes=MIN_BYTES)
    *paths, last = parts_of(tmp_path)
    for path in [*paths, last]:
        assert '"hook"' not in "".join(x for x in path.open() if '"kind":"buckets"' in x)
        part = read_parts([path])
        assert part.run == sample.make_run()
        assert set(part.assignments) == {sample.make_layout()}
        assert part.clocks == [clock]
        assert part.closed
        assert part.skipped == []
    # A kill leaves the last part without its end: the counts are in its beginning too.
    last.write_text("".join(last.read_text().splitlines(keepends=True)[:9]))
    assert read_parts([last]).removed["parts"] > 0
    assert read_parts([paths[0], last]).clocks == [clock]


def test_what_no_part_can_hold_is_lost_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes no other records with it; also what would fit if a part had no beginning."""
    huge = replace(sample.make_anomaly(), message="x" * MIN_BYTES)
    large = replace(sample.make_anomaly(), message="x" * 6900)
    batch = replace(sample.make_batch(bucket_count=120), records=(huge, large))
    with caplog.at_level(logging.WARNING):
        exporter = write(tmp_path, *[batch] * 9, sample.make_batch(), max_bytes=MIN_BYTES)
    trace = read_parts(parts_of(tmp_path))
    assert trace.lost == exporter.lost == {"buckets": 2160, "anomalies": 18}
    assert len(trace.steps) == 20
    assert len(trace.buckets) == 4
    assert trace.removed == {}
    assert len(caplog.records) == 1
    assert "too large" in caplog.text


def test_all_parts_of_earlier_runs_move_on(tmp_path: Path) -> None:
    """Together, each run to its number, and the oldest beyond ``keep`` goes with all of them."""
    for run_id, count in (("a", 30), ("b", 17), ("c", 1), ("d", 1)):
        run = sample.make_run(run_id=run_id)
        write(tmp_path, sample.make_batch(run=run, steps=count), max_bytes=MIN_BYTES, keep=2)
    found = {p.name: read_parts([p]).run for p in record_path(tmp_path, 0).parent.iterdir()}
    assert {name: run and run.run_id for name, run in found.items()} == {
        "rank00000.jsonl": "d",
        "rank00000.1.jsonl": "c",
        "rank00000.2.jsonl": "b",
        "rank00000.2.part1.jsonl": "b",
        "rank00000.2.part2.jsonl": "b",
    }


def test_two_jobs_with_one_logdir_take_nothing_from_each_other(tmp_path: Path) -> None:
    """The first one's next part is in the way of an error; its old parts are another's by now."""
    runs = [sample.make_run(run_id=run_id) for run_id in ("first", "second")]
    first, second = (RecordFileExporter(tmp_path, max_bytes=MIN_BYTES) for _ in runs)
    first.export(sample.make_batch(run=runs[0], steps=18))  # three parts
    second.export(sample.make_batch(run=runs[1], steps=18))
    mine = {path: path.read_bytes() for path in parts_of(tmp_path)[:2]}
    first.export(sample.make_batch(run=runs[0], steps=120))
    assert first.counts.removed["parts"] > 2
    assert {path: path.read_bytes() for path in mine} == mine
    with pytest.raises(FileExistsError, match="give each job a logdir of its own"):
        second.export(sample.make_batch(run=runs[1], steps=120))
    first.close()
    second.close()


def test_a_forked_child_leaves_its_parents_files_alone(tmp_path: Path) -> None:
    """Whatever it does with an exporter that a script holds."""
    exporter = RecordFileExporter(tmp_path)
    exporter.export(sample.make_batch(steps=4))
    (path,) = parts_of(tmp_path)
    before = path.read_bytes()
    pid = os.fork()
    if pid == 0:
        exporter.export(sample.make_batch(steps=4))
        exporter.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert path.read_bytes() == before
    exporter.close()
    assert path.read_text().count('"closed":true') == 1


def test_what_was_said_with_a_step_that_is_lost_is_said_again(tmp_path: Path) -> None:
    """A later step has the same stages, and names them by a line that stands in the file."""
    small = sample.make_batch(steps=2)
    (_, many), *_ = sample.make_batch(bucket_count=20).steps
    first, second = small.steps
    large = replace(small, steps=((first[0], many * 30), second))
    trace_of = write(tmp_path, large, max_bytes=MIN_BYTES)
    trace = read_parts(parts_of(tmp_path))
    assert trace_of.lost == {"buckets": 600}
    assert [b.stages for b in trace.buckets] == [b.stages for b in second[1]]
