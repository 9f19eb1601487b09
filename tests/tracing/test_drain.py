"""The drain: what goes out together, what a defect costs; nobody waits for it in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hooktrace import Tracer, trace
from hooktrace.records import AnomalyRecord, Batch
from hooktrace.records.errors import HookError
from hooktrace.testing import FakeBucket
from tests.fakes import FakeExporter, Job, plain
from tests.staging.test_backward import chain


class Blocking(FakeExporter):
    """Holds the drain up in its first batch, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked, self.release = threading.Event(), threading.Event()

    def export(self, batch: Batch) -> None:
        super().export(batch)
        self.blocked.set()
        self.release.wait(30)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    """An exporter that is let go in any case."""
    exporter = Blocking()
    yield exporter
    exporter.release.set()


def test_an_anomaly_comes_with_the_batch_of_its_step(blocking: Blocking) -> None:
    """Of many steps in one cycle: an exporter that keeps or drops a step's detail needs it then."""
    calls = iter(range(1000))

    def failing(state: object, bucket: FakeBucket) -> object:
        if next(calls) in {41, 300}:  # in another bucket each: an anomaly is told once a bucket
            raise ValueError("no")
        return plain(state, bucket)

    with Tracer([blocking]) as tracer:
        job = Job(tracer, buckets=4)
        job.step()
        tracer.wake()
        assert blocking.blocked.wait(30)
        job.hook = trace(failing, tracer=tracer)
        for _ in range(100):
            with suppress(HookError):
                job.step()
        blocking.release.set()
    batches = [batch for batch in blocking.batches if batch.of(AnomalyRecord)]
    assert len(batches) == 2
    for batch in batches:
        (anomaly,) = batch.of(AnomalyRecord)
        assert (anomaly.model, anomaly.step) in {(s.model, s.step) for s, _ in batch.steps}


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_check_finds_comes_with_the_batch_of_its_step(
    blocking: Blocking, at_once: bool
) -> None:
    """Of many steps in one cycle, and of one alone."""
    with Tracer([blocking], debug=True, error_every=0, align_clocks=False) as tracer:
        job = Job(tracer, buckets=4)
        chain(job.step).backward()
        tracer.wake()
        assert blocking.blocked.wait(30)
        if at_once:
            blocking.release.set()
        for number in range(1, 100):
            for index, bucket in enumerate(job.buckets):
                bucket.buffer().fill_(float("nan") if (number, index) in {(41, 1), (90, 2)} else 0)
            chain(job.step).backward()
            if at_once:
                tracer.flush()
        blocking.release.set()
    batches = [batch for batch in blocking.batches if batch.of(AnomalyRecord)]
    assert len(batches) == 2
    for batch in batches:
        (anomaly,) = batch.of(AnomalyRecord)
        assert anomaly.kind == "nonfinite_gradient"
        assert anomaly.step in {step.step for step, _ in batch.steps}


def test_a_defect_in_the_drain_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drain survives an error of its own, reports it once with its traceback, and goes on."""

    def broken(self: object, call: object) -> None:
        raise ZeroDivisionError

    with Tracer() as tracer:
        job = Job(tracer)
        with monkeypatch.context() as patch:
            patch.setattr("hooktrace.tracing.assembler.Assembler._complete", broken)
            for _ in range(2):
                job.step()
                assert tracer.flush()
        job.step()
        assert [s.step for s in tracer.steps()] == [2]
        assert tracer.losses() == {"internal_error": 2}
    assert caplog.text.count("please report this with the traceback") == 1


def test_a_hanging_exporter_cannot_hold_up_close(
    blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    """close() returns at its deadline, false, and says what to look at."""
    tracer = Tracer([blocking], close_timeout_s=0.2)
    Job(tracer).step()
    assert tracer.close() is False
    assert "could not close within 0.2 s" in caplog.text
    assert "check its backend" in caplog.text
    blocking.release.set()
    tracer._drain._thread.join(30)


def test_an_exporter_may_ask_the_tracer() -> None:
    """flush() on the drain's own thread is false at once instead of waiting for itself."""
    answers = []

    class Asking(FakeExporter):
        def export(self, batch: object) -> None:
            answers.append(tracer.flush(timeout_s=600))
            tracer.summary()

    with Tracer([Asking()]) as tracer:
        Job(tracer).step()
        assert tracer.flush(60)
    assert answers
    assert not any(answers)  # of one batch, or of two
