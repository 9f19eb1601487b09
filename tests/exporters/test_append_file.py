"""A file that grows by whole blocks, on a disk that is full or gone."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hooktrace.exporters.record_file import RecordFileExporter
from hooktrace.records.content import RankRecords
from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: a disk that fills up mid-write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_last_whole_batch(tmp_path: Path) -> None:
    """A write that fails half-way raises with its fix and is cut off again; closing is quiet."""
    exporter = RecordFileExporter(tmp_path)
    exporter.export(sample.make_batch(steps=2))
    path = record_path(tmp_path, 0)
    size = path.stat().st_size
    with largest_file(size + 1000):
        with pytest.raises(OSError, match=r"rank00000.jsonl: File too large; .*ulimit -f"):
            exporter.export(sample.make_batch(steps=2, first_step=2))
        assert path.stat().st_size == size
    with largest_file(size + 10):
        exporter.close()
    trace = read_parts([path])
    assert [step.step for step in trace.steps] == [0, 1]
    assert (trace.skipped, trace.closed) == ([], False)


def test_a_disk_that_is_full_at_the_first_write_leaves_a_valid_file(tmp_path: Path) -> None:
    """The file's beginning is not lost with the first batch: what follows it stays readable."""
    exporter = RecordFileExporter(tmp_path)
    with largest_file(100), pytest.raises(OSError, match="File too large"):
        exporter.export(sample.make_batch())
    exporter.close()
    assert read_parts([record_path(tmp_path, 0)]) == RankRecords(run=sample.make_run(), closed=True)


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """At once; a file that was deleted would swallow everything silently, so export raises."""
    exporter = RecordFileExporter(tmp_path)
    exporter.export(sample.make_batch())
    record_path(tmp_path, 0).unlink()
    with pytest.raises(FileNotFoundError, match="was deleted while it was being written; keep"):
        exporter.export(sample.make_batch(first_step=2))
    exporter.close()
    with pytest.raises(OSError, match="a part of the path is a file; pass another logdir"):
        RecordFileExporter(Path(__file__) / "logs")
    with pytest.raises(ValueError, match="'s3://bucket/logs' is not a local path"):
        RecordFileExporter("s3://bucket/logs")
    with pytest.raises(ValueError, match="max_bytes is 100; pass at least 65536"):
        RecordFileExporter(tmp_path, max_bytes=100)
