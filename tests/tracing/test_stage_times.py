"""Times of a device come from its events alone, once it has passed them."""

from __future__ import annotations

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.capture import buckets
from hooktrace.testing import FakeBucket
from tests.fakes import FakeGroup, FakeOperation, fake_clock, hook_of


class FakeEvent:
    """A device event: the device's time when it was recorded, in ns, once the device is there."""

    now_ns = 0
    reached_ns = 0

    def record(self) -> None:
        self.at_ns = FakeEvent.now_ns

    def query(self) -> bool:
        return FakeEvent.reached_ns >= self.at_ns

    def elapsed_time(self, end_event: FakeEvent) -> float:
        return (end_event.at_ns - self.at_ns) / 1e6


def use_fake_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors on the meta device pass for ones on a device with events."""
    monkeypatch.setattr(buckets, "EVENT_DEVICES", {"meta"})
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent())


def test_device_times_come_from_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket on a device has no host stages; its spans resolve when the device is there."""
    use_fake_events(monkeypatch)
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4, info=FakeGroup(workers=1)) for _ in range(4)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets = [
            FakeBucket([torch.zeros(8, device="meta")], index=i, is_last=i == 1) for i in range(2)
        ]
        for step in range(2):
            FakeEvent.reached_ns = -1
            FakeEvent.now_ns = 7_000_000 * step
            for i, bucket in enumerate(buckets):
                operation = operations[2 * step + i]
                hook(None, bucket)
                FakeEvent.now_ns += 3000
                operation.complete()  # the host is done long before the device
                FakeEvent.now_ns += 500
            assert len(tracer.steps()) == step  # not resolved yet
            FakeEvent.reached_ns = FakeEvent.now_ns
            assert len(tracer.steps()) == step + 1
        records = tracer.buckets()
        steps = tracer.steps()
        assert tracer.event_pool.created == 8  # two steps, but the second used the first's events
    for record in records:
        assert record.clock == "device"
        assert record.stages == ()
        assert record.device is not None
    first, second = records[:2]
    assert (first.device.ready_ns, first.device.done_ns) == (0, 3000)
    assert (second.device.ready_ns, second.device.done_ns) == (3500, 6500)
    assert [(s.name, s.start_ns, s.end_ns) for s in second.timed_stages] == [
        ("compress", 3500, 3500),
        ("wire", 3500, 6500),
        ("decompress", 6500, 6500),
    ]
    assert records[2].device == first.device
    assert [(s.clock, s.busy_ns, s.exposed_ns) for s in steps] == [("device", 6000, 3000)] * 2


def test_device_times_that_never_come_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At close, a bucket whose events did not pass has no times, and never the host's."""
    use_fake_events(monkeypatch)
    FakeEvent.now_ns, FakeEvent.reached_ns = 10, 5
    operation = FakeOperation(wire_bytes=4)
    with Tracer(clock=fake_clock()) as tracer:
        bucket = FakeBucket([torch.zeros(8, device="meta")])
        trace(hook_of([operation]), tracer=tracer)(None, bucket)
        operation.complete()
        tracer.close()
        ((step, (record,)),) = tracer._recent.steps()
    assert record.duration_ns is None
    assert (step.busy_ns, step.exposed_ns, step.overlap_ratio) == (None, None, None)
    assert tracer.losses() == {"device_unresolved": 1}
