"""From the ring to the exporters: what goes out together, and what a defect costs."""

from __future__ import annotations

import threading
from contextlib import suppress

import msgspec
import pytest

from hooktrace import Tracer, trace
from hooktrace.records import AnomalyRecord, Batch
from hooktrace.records.errors import HookError
from hooktrace.testing import FakeBucket
from tests.fakes import FakeExporter, Job, opaque


def test_an_anomaly_comes_with_the_batch_of_its_step() -> None:
    """Of many steps in one cycle: an exporter that keeps or drops a step's detail needs it then."""
    release, blocked = threading.Event(), threading.Event()

    class Blocking(FakeExporter):
        def export(self, batch: Batch) -> None:
            super().export(batch)
            blocked.set()
            release.wait(30)

    exporter = Blocking()
    calls = iter(range(1000))

    def failing(state: object, bucket: FakeBucket) -> object:
        if next(calls) in {41, 300}:  # in another bucket each: an anomaly is told once a bucket
            raise ValueError("no")
        return opaque(state, bucket)

    with Tracer([exporter]) as tracer:
        job = Job(tracer, buckets=4)
        job.step()
        tracer._drain.wake()
        try:
            assert blocked.wait(30)
            job.hook = trace(failing, tracer=tracer)
            for _ in range(100):
                with suppress(HookError):
                    job.step()
        finally:
            release.set()
    first, second = (batch for batch in exporter.batches if batch.of(AnomalyRecord))
    for batch in (first, second):
        (anomaly,) = batch.of(AnomalyRecord)
        assert (anomaly.model, anomaly.step) in {(s.model, s.step) for s, _ in batch.steps}


def test_a_defect_in_the_drain_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drain survives an error of its own, reports it once with its traceback, and goes on."""

    def broken(self: object, call: object) -> None:
        raise ZeroDivisionError

    with Tracer() as tracer:
        job = Job(tracer)
        with monkeypatch.context() as patch:
            patch.setattr("hooktrace.tracing.steps.StepGatherer.add", broken)
            for _ in range(2):
                job.step()
                assert tracer.flush()
        job.step()
        assert [s.step for s in tracer.steps()] == [2]
        assert tracer.losses() == {"internal_error": 2}
    assert caplog.text.count("please report this with the traceback") == 1


class CoffeeRecord(msgspec.Struct, frozen=True):
    """A kind of record that hooktrace knows nothing of."""

    cups: int


def test_a_new_kind_of_record_needs_its_declaration_only() -> None:
    """From the ring to exporters and memory, without a line about it in between."""
    exporter = FakeExporter()
    with Tracer([exporter]) as tracer:
        tracer.start()
        tracer.push(CoffeeRecord(1))
        tracer.push(CoffeeRecord(2))
        assert tracer.records(CoffeeRecord) == [CoffeeRecord(1), CoffeeRecord(2)]
        exported = [record for batch in exporter.batches for record in batch.of(CoffeeRecord)]
        assert exported == [CoffeeRecord(1), CoffeeRecord(2)]  # in one batch, or in two


def test_an_anomaly_knows_its_rank_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes out as it came."""
    monkeypatch.setenv("RANK", "3")

    def failing(state: object, bucket: FakeBucket) -> object:
        raise ValueError("no")

    with Tracer() as tracer:
        job = Job(tracer)
        job.hook = trace(failing, tracer=tracer)
        with suppress(HookError):
            job.step()
        assert [a.rank for a in tracer.anomalies()] == [3]
