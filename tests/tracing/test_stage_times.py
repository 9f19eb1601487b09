"""Times of a device come from its events alone, once it has passed them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from hooktrace.capture import buckets, device_events
from hooktrace.capture.calls import BucketCall, Collective, Round
from hooktrace.capture.device_call import give_back
from hooktrace.staging.sequencer import Sequencer
from hooktrace.testing import FakeBucket
from hooktrace.tracing.stage_times import device_times, host_times
from tests.fakes import FakeGroup, FakeOperation, fake_clock, hook_of


class FakeEvent:
    """A device event: the device's time when it was recorded, in ns, once the device is there."""

    now_ns = 0
    reached_ns = 0

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, stream: int | None) -> None:
        assert stream == self.device.index, "recorded on a stream of another device"
        self.at_ns = FakeEvent.now_ns

    def query(self) -> bool:
        return FakeEvent.reached_ns >= self.at_ns

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert end_event.device == self.device, "compared with an event of another device"
        return (end_event.at_ns - self.at_ns) / 1e6


def use_fake_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors on the meta device pass for ones on a device with events."""
    monkeypatch.setattr(buckets, "has_events", lambda device: device.type == "meta")
    monkeypatch.setattr(device_events, "new_event", FakeEvent)
    monkeypatch.setattr(device_events, "stream_of", lambda index: index)


def test_a_worker_is_free_from_round_to_round() -> None:
    """The callback of a round ends where the next one is issued, the last one with the hook."""
    what = Collective("all_reduce", 4, torch.float32, FakeGroup())
    call: Any = BucketCall(SimpleNamespace(), 0, 0, SimpleNamespace())
    call.earlier = (Round(what, 0, 100), Round(what, 130, 200))
    call.collective, call.issued_at, call.arrived_at = what, 210, 300
    call.done = 350
    assert [one.freed for one in host_times(call).collectives] == [130, 210, 350]


def test_a_collective_that_is_all_of_its_call_takes_the_call_s_times() -> None:
    """It is no round, and the record of its call has it all the same."""
    what = Collective("all_gather", 4, torch.float32, FakeGroup())
    call: Any = BucketCall(SimpleNamespace(), 0, 10, SimpleNamespace())
    call.only, call.done = what, 50
    (found,) = host_times(call).collectives
    assert (found.what, found.issued, found.arrived, found.freed) == (what, 10, 50, 50)


def test_a_result_is_not_done_before_its_hook_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DDP cannot have it: with the last bucket a hook of several rounds waits for all its calls."""
    clock = fake_clock()

    def wait(sequencer: Sequencer) -> bool:
        clock.advance(30)
        return True

    monkeypatch.setattr(Sequencer, "wait_until_idle", wait)

    @staged(multi_round=True)
    def hook(state: object, bucket: Any) -> Any:
        clock.advance(5)
        operation = FakeOperation(wire_bytes=4)
        operation.complete()
        yield operation
        clock.advance(7)
        return bucket.buffer()

    with Tracer(clock=clock, error_every=0) as tracer:
        trace(hook, tracer=tracer)(None, FakeBucket([torch.zeros(8)]))
        ((record,), (step,)) = tracer.buckets(), tracer.steps()
    assert (record.launched_ns, record.done_ns) == (42, 42)
    assert step.exposed_ns == 42
    assert record.stage_totals_ns() == {"compress": 5, "wire": 0, "decompress": 37}


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


class Returned:
    """Takes events back, and remembers of which device each was."""

    def __init__(self) -> None:
        self.events: list[tuple[torch.device, FakeEvent]] = []

    def give(self, device: torch.device, event: FakeEvent) -> None:
        self.events.append((device, event))


def test_each_bucket_is_timed_on_its_own_device() -> None:
    """A model over two devices: events are compared with their own device's only.

    The second device's times begin where the host called its first hook.
    """
    devices = [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 1)]
    pool: Any = Returned()
    recorder: Any = SimpleNamespace(event_pool=pool)
    calls: list[Any] = []
    for i, device in enumerate(devices):
        events = [FakeEvent(device), FakeEvent(device)]
        for event, at_ns in zip(events, (100 + 7000 * i, 3100 + 7000 * i), strict=True):
            event.at_ns = at_ns
        call: Any = BucketCall(SimpleNamespace(device=device), 0, 50_000 + 5000 * i, recorder)
        call.events = events
        calls.append(call)
    times = [t for t in device_times(calls) if t is not None]
    give_back(calls)
    give_back(calls)  # which are over: others may have recorded their events by then
    assert [(t.ready, t.done) for t in times] == [(0, 3000), (5000, 8000), (12_000, 15_000)]
    assert all(event.device == device for device, event in pool.events)
    assert len(pool.events) == 6


@pytest.mark.parametrize(("done", "exposed"), [(60_000, 0), (130_000, 40_000)])
def test_a_device_knows_its_own_end_of_backward(
    monkeypatch: pytest.MonkeyPatch, done: int, exposed: int
) -> None:
    """Its kernels end at 100 us, 10 of them the hook's own; the host is long through."""
    use_fake_events(monkeypatch)
    clock, operation = fake_clock(), FakeOperation(wire_bytes=4, info=FakeGroup(workers=1))

    def hook(state: object, bucket: Any) -> Any:
        FakeEvent.now_ns = 10_000
        yield operation
        FakeEvent.now_ns = done
        return bucket.buffer()

    def end_backward(gradient: torch.Tensor) -> None:
        operation.complete()  # inline at launch, its kernel later
        FakeEvent.now_ns = 100_000

    with Tracer(clock=clock) as tracer:
        traced, bucket = (
            trace(staged(hook), tracer=tracer),
            FakeBucket([torch.zeros(8, device="meta")]),
        )
        FakeEvent.now_ns, FakeEvent.reached_ns = 0, -1
        x = torch.ones(1, requires_grad=True)
        x.register_hook(end_backward)
        y = 2 * x
        y.register_hook(lambda gradient: traced(None, bucket) and None)
        y.backward()
        assert tracer.steps() == []
        FakeEvent.reached_ns = 200_000
        (step,) = tracer.steps()
        assert tracer.event_pool.created == 6
    assert (step.clock, step.busy_ns, step.exposed_ns) == ("device", done, exposed)
