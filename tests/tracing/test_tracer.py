"""A tracer's life: options, start, close."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hooktrace import Tracer
from hooktrace.exporters import RecordFileExporter, TensorBoardExporter
from tests.fakes import FakeExporter, Job


def test_without_a_thread_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system gives no thread, tracing is off with one warning that says why."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    tracer = Tracer()
    job = Job(tracer)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        job.step()
        job.step()
    assert tracer.close()
    assert caplog.text.count("raise the limit of threads") == 1


def test_a_resumed_job_goes_on_with_its_steps() -> None:
    """Its first two steps are as much of a warm-up as any."""
    with Tracer(first_step=100, error_every=0) as tracer:
        job = Job(tracer, buckets=2)
        for _ in range(4):
            job.step()
        assert [(s.step, s.warmup) for s in tracer.steps()] == [
            *((100, True), (101, True)),
            *((102, False), (103, False)),
        ]
        assert [layout.step for layout in tracer.assignments()] == [100]


def test_close_twice() -> None:
    """The second close does nothing, and hooks run on untraced."""
    exporter = FakeExporter()
    tracer = Tracer([exporter])
    job = Job(tracer)
    job.step()
    assert tracer.close() is True
    assert tracer.close() is True
    job.step()
    assert exporter.closed == 1
    assert exporter.steps == [0]
    assert tracer.losses() == {}


def test_what_is_closed_does_not_start() -> None:
    """A signal handler may close between a call's look at the state and the start of the drain."""
    exporter = FakeExporter()

    def closing() -> int:
        if job is not None:
            tracer.close()
        return 0

    job: Job | None = None
    tracer = Tracer([exporter], clock=closing)
    job = Job(tracer)
    job.step()
    tracer.start()
    assert not tracer.started
    assert tracer._drain._thread.ident is None
    assert exporter.closed == 1


def test_memory_is_bounded() -> None:
    """It has the last steps only, by either bound."""
    with Tracer(keep_steps=10, keep_buckets=12, error_every=0) as tracer:
        job = Job(tracer, buckets=4)
        for _ in range(20):
            job.step()
        assert [s.step for s in tracer.steps()] == [17, 18, 19]
        assert len(tracer.buckets()) == 12


def test_records_stand_where_their_exporters_write(tmp_path: Path) -> None:
    """TensorBoard's files are no records."""
    exporters = [RecordFileExporter(tmp_path / "a"), TensorBoardExporter(tmp_path / "b")]
    with Tracer(exporters) as tracer:
        assert tracer.logdirs == [tmp_path / "a"]


def test_a_clock_that_is_not_compared_has_no_offset() -> None:
    """Nor one of the user's own beside another tracer's."""
    with (
        Tracer(align_clocks=False) as first,
        Tracer(channel=False) as second,
        Tracer() as third,
        Tracer(clock=time.monotonic_ns) as own,
    ):
        for tracer in (first, second, third, own):
            tracer.start()
        assert [tracer.clock_offset(0) for tracer in (first, second, own)] == [None] * 3
