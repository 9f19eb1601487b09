"""What is lost is counted, and told once."""

from __future__ import annotations

import threading

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.testing import FakeBucket
from tests.fakes import FakeExporter, FakeOperation, Job, hook_of


def test_an_overflowing_ring_counts_and_reports_once(caplog: pytest.LogCaptureFixture) -> None:
    """Calls that do not fit are lost, counted and reported once; training sees nothing of it."""
    release = threading.Event()

    class Blocking(FakeExporter):
        def export(self, batch: object) -> None:
            release.wait(30)
            super().export(batch)

    slow = Blocking()
    with Tracer([slow], ring_capacity=8, interval_s=0.01) as tracer:
        job = Job(tracer)
        for _ in range(100):
            job.step()
        release.set()
        tracer.flush()
        lost = tracer.losses()["ring_full"]
        assert lost >= 100 - 8 - 50  # one drain cycle may have emptied the ring in between
        assert len(tracer.steps()) + lost == 100
        for _ in range(3):
            job.step()
    told = [r.getMessage() for r in caplog.records if "ring_full" in r.getMessage()]
    assert len(told) == 1
    assert "pass Tracer(ring_capacity=...)" in told[0]
    assert slow.batches[-1].losses == {"ring_full": lost}


def test_calls_in_flight_at_close_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A future that never completes is a record lost, with a remedy."""
    operations = [FakeOperation(wire_bytes=4), FakeOperation(wire_bytes=4)]
    tracer = Tracer()
    hook = trace(hook_of(operations), tracer=tracer)
    hook(None, FakeBucket([torch.zeros(4)], index=0, is_last=False))
    hook(None, FakeBucket([torch.zeros(4)], index=1, is_last=True))
    operations[0].complete()
    tracer.close()
    assert tracer.losses() == {"unfinished": 1}
    assert "close it after the last backward pass has returned" in caplog.text
    ((step, buckets),) = tracer._recent.steps()
    assert (step.complete, len(buckets)) == (False, 1)
