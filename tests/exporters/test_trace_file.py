"""The trace file on a real disk: whole after a kill, on a full disk, at its limit, across runs."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hooktrace.exporters.append_file import AppendFile
from hooktrace.exporters.trace_file import TraceFileExporter, trace_path
from hooktrace.records import Batch
from hooktrace.trace_format import Trace, decode_trace, read_trace
from tests.exporters import records_sample as sample

MIN_BYTES = 1 << 16


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: a disk that fills up mid-write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write(logdir: Path, *batches: Batch, **options: int) -> TraceFileExporter:
    """Export batches to a file and end it."""
    exporter = TraceFileExporter(logdir, **options)
    for batch in batches:
        exporter.export(batch)
    exporter.close()
    return exporter


def test_a_closed_file_is_strict_json_and_gives_the_records_back(tmp_path: Path) -> None:
    """What was exported is what is read, and any JSON parser takes the file."""
    batch = sample.full_batch(rank=3)

    exporter = write(tmp_path, batch)

    assert exporter.path == tmp_path / "plugins" / "hooktrace" / "rank00003.trace.json"
    trace = read_trace(exporter.path)
    assert trace.run == batch.run
    assert trace.steps == [step for step, _ in batch.steps]
    assert trace.buckets == [bucket for _, buckets in batch.steps for bucket in buckets]
    assert trace.layouts == list(batch.layouts)
    assert trace.anomalies == list(batch.anomalies)
    assert (trace.skipped, trace.lost, trace.closed) == ([], {}, True)
    assert {event["pid"] for event in json.loads(exporter.path.read_text())} == {3}


def test_a_file_cut_at_any_byte_gives_whole_steps(tmp_path: Path) -> None:
    """Wherever the file ends, the steps before are whole and at most one line is skipped."""
    batch = sample.make_batch(steps=3)
    write(tmp_path, batch)
    data = trace_path(tmp_path, 0).read_bytes()
    steps = [step for step, _ in batch.steps]
    for size in range(len(data)):
        trace = decode_trace(data[:size].splitlines(keepends=True))
        assert trace.steps == steps[: len(trace.steps)]
        for step in trace.steps:
            assert sum(b.step == step.step for b in trace.buckets) == step.bucket_count
        assert len(trace.skipped) <= 1
        assert trace.closed == (size == len(data) - 1)  # only the last newline is missing
    assert trace.steps == steps


KILLED = """
import os, sys
from hooktrace.exporters.trace_file import TraceFileExporter
from tests.exporters import records_sample as sample
for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        exporter, step = TraceFileExporter(name), 0
        while True:
            exporter.export(sample.make_batch(steps=3, bucket_count=9, first_step=step))
            step += 3
            os.write(1, b"%d %d\\n" % (os.getpid(), step))
    os.waitpid(pid, 0)
    os.write(1, b"killed\\n")
"""


def test_a_killed_process_leaves_whole_steps(tmp_path: Path) -> None:
    """After SIGKILL at several moments all steps that were exported are read, each whole."""
    kill_after = (1, 40, 150)
    logdirs = [tmp_path / str(n) for n in kill_after]
    root = str(Path(__file__).parents[2])
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, *map(str, logdirs)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        cwd=root,
        start_new_session=True,
    )
    try:
        assert writer.stdout is not None
        for logdir, lines in zip(logdirs, kill_after, strict=True):
            for _ in range(lines):
                pid, exported = map(int, writer.stdout.readline().split())
            os.kill(pid, signal.SIGKILL)
            while (line := writer.stdout.readline()) != b"killed\n":
                exported = int(line.split()[1])
            trace = read_trace(trace_path(logdir, 0))
            count = len(trace.steps)
            assert count >= exported
            assert trace.steps == [sample.make_step(i, bucket_count=9)[0] for i in range(count)]
            for i in range(count):
                assert sum(b.step == i for b in trace.buckets) == 9
            assert len(trace.skipped) <= 1
            assert not trace.closed
        assert writer.wait(timeout=60) == 0
    finally:
        if writer.poll() is None:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()


def test_a_full_disk_leaves_the_last_whole_batch(tmp_path: Path) -> None:
    """A write that fails half-way raises with its remedy and is cut off again; closing is quiet."""
    exporter = TraceFileExporter(tmp_path)
    exporter.export(sample.make_batch(steps=2))
    path = trace_path(tmp_path, 0)
    size = path.stat().st_size

    with largest_file(size + 1000):
        with pytest.raises(OSError, match=r"rank00000.trace.json: File too large; .*ulimit -f"):
            exporter.export(sample.make_batch(steps=2, first_step=2))
        assert path.stat().st_size == size
    with largest_file(size + 10):
        exporter.close()

    trace = read_trace(path)
    assert [step.step for step in trace.steps] == [0, 1]
    assert (trace.skipped, trace.closed) == ([], False)


def test_a_disk_that_is_full_at_the_first_write_leaves_a_valid_file(tmp_path: Path) -> None:
    """The file's beginning is not lost with the first batch: what follows it stays readable."""
    exporter = TraceFileExporter(tmp_path)
    with largest_file(100), pytest.raises(OSError, match="File too large"):
        exporter.export(sample.make_batch())
    exporter.close()
    json.loads(trace_path(tmp_path, 0).read_text())
    assert read_trace(trace_path(tmp_path, 0)) == Trace(run=sample.make_run(), closed=True)


def test_no_space_left_is_cut_back_and_raised(tmp_path: Path) -> None:
    """On a file system without space the error says ENOSPC and no half block stays."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "hooktrace-test", str(tmp_path)]
    try:
        mounted = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        file = AppendFile(tmp_path / "f")
        file.append(b"whole\n")
        with pytest.raises(OSError, match=r"cannot write to .*f: No space left .*; free space"):
            file.append(b"x" * 200_000)
        file.close()
        assert (tmp_path / "f").read_bytes() == b"whole\n"
    finally:
        subprocess.run(["umount", str(tmp_path)], timeout=30, check=True)


def test_the_limit_ends_detail_and_counts_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At max_bytes buckets stop first, then all; the file stays valid and every loss is counted."""
    batches = [sample.make_batch(first_step=i * 10, steps=10) for i in range(40)]

    with caplog.at_level(logging.WARNING):
        exporter = write(tmp_path, *batches, max_bytes=MIN_BYTES)

    path = trace_path(tmp_path, 0)
    assert path.stat().st_size <= MIN_BYTES
    json.loads(path.read_text())
    trace = read_trace(path)
    assert 0 < len(trace.buckets) < 2 * len(trace.steps) < 2 * 400
    assert len(trace.buckets) + exporter.lost["buckets"] == 800
    assert len(trace.steps) + exporter.lost["steps"] == 400
    assert trace.lost == exporter.lost
    assert len(caplog.records) == 1
    assert "pass a larger max_bytes" in caplog.text


def test_runs_do_not_share_a_file(tmp_path: Path) -> None:
    """The file of an earlier run moves on to a number, and the oldest beyond ``keep`` goes."""
    for run_id in ("a", "b", "c", "d"):
        write(tmp_path, sample.make_batch(run=sample.make_run(run_id=run_id)), keep=2)

    directory = trace_path(tmp_path, 0).parent
    found = {path.name: read_trace(path).run for path in directory.iterdir()}
    assert {name: run and run.run_id for name, run in found.items()} == {
        "rank00000.trace.json": "d",
        "rank00000.trace.1.json": "c",
        "rank00000.trace.2.json": "b",
    }


def test_a_forked_child_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    """A child that closes the exporter it inherited writes nothing into the parent's file."""
    exporter = TraceFileExporter(tmp_path)
    exporter.export(sample.make_batch(steps=1))
    pid = os.fork()
    if pid == 0:
        exporter.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    exporter.export(sample.make_batch(steps=1, first_step=1))
    exporter.close()
    trace = read_trace(trace_path(tmp_path, 0))
    assert [step.step for step in trace.steps] == [0, 1]
    json.loads(trace_path(tmp_path, 0).read_text())  # a second end would be no JSON


def test_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    """A file that was deleted would swallow everything silently, so export raises."""
    exporter = TraceFileExporter(tmp_path)
    exporter.export(sample.make_batch())
    trace_path(tmp_path, 0).unlink()
    with pytest.raises(FileNotFoundError, match="was deleted while it was being written; keep"):
        exporter.export(sample.make_batch(first_step=2))
    exporter.close()


def test_a_directory_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    """The constructor names what is wrong with the path and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="a part of the path is a file; pass another logdir") as info:
        TraceFileExporter(tmp_path / "file" / "logs")
    assert info.value.errno == errno.ENOTDIR
    with pytest.raises(ValueError, match="'s3://bucket/logs' is not a local path"):
        TraceFileExporter("s3://bucket/logs")
    with pytest.raises(ValueError, match="max_bytes is 100; pass at least 65536"):
        TraceFileExporter(tmp_path, max_bytes=100)
