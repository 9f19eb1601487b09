"""Record times against an integer clock: every number is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import BucketRecord, Tracer, staged, trace
from hooktrace.capture import buckets
from hooktrace.records import Stage
from hooktrace.testing import FakeBucket
from tests.fakes import FakeGroup, FakeOperation, fake_clock, hook_of


def spans(record: BucketRecord) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in record.stages]


def make_buckets(count: int) -> list[FakeBucket]:
    return [FakeBucket([torch.zeros(8)], index=i, is_last=i == count - 1) for i in range(count)]


def test_a_staged_bucket_step_by_step() -> None:
    """Each stamp lands where it belongs; wire bytes are the payload's."""
    clock = fake_clock()
    operation = FakeOperation(wire_bytes=16)

    @staged
    def hook(state: Any, bucket: Any) -> Any:
        clock.advance(5)
        yield operation
        clock.advance(7)
        return bucket.buffer()

    with Tracer(clock=clock) as tracer:
        clock.advance(100)
        trace(hook, tracer=tracer, model="net")(None, make_buckets(1)[0])
        clock.advance(30)
        operation.complete()
        (record,) = tracer.buckets()
        (step,) = tracer.steps()
    assert (record.ready_ns, record.launched_ns, record.done_ns) == (100, 105, 142)
    assert record.stages == (
        Stage(name="compress", start_ns=100, end_ns=105),
        Stage(
            name="wire",
            start_ns=105,
            end_ns=135,
            derived=True,
            collective="all_reduce",
            wire_bytes=16,
            dtype="float16",
        ),
        Stage(name="decompress", start_ns=135, end_ns=142),
    )
    assert (record.gradient_bytes, record.wire_bytes, record.bus_bytes) == (32, 16, 16.0)
    assert record.compression_ratio == 2.0
    assert record.duration_ns == 42
    assert record.stage_ns("wire") == 30
    assert record.busbw_bytes_per_second == 16e9 / 30
    assert (step.busy_ns, step.exposed_ns, step.overlap_ratio) == (42, 42, 0.0)


def test_an_opaque_bucket_step_by_step() -> None:
    """Of an opaque hook the call, its return and its completion are seen, and no wire bytes."""
    clock = fake_clock()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def hook(state: Any, bucket: Any) -> Any:
        clock.advance(4)
        return future

    with Tracer(clock=clock) as tracer:
        traced = trace(hook, tracer=tracer)(None, make_buckets(1)[0])
        clock.advance(50)
        result = torch.zeros(8)
        future.set_result(result)
        assert traced.wait() is result
        (record,) = tracer.buckets()
    assert spans(record) == [("hook", 0, 4), ("pending", 4, 54)]
    assert (record.wire_bytes, record.bus_bytes, record.done_ns) == (None, None, 54)


def run_queue(workers: int) -> list[BucketRecord]:
    """Issue three collectives at 0, 10, 20 that arrive at 100, 110, 150."""
    clock = fake_clock()
    group = FakeGroup(workers=workers)
    operations = [FakeOperation(wire_bytes=4, info=group) for _ in range(3)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        for bucket in make_buckets(3):
            hook(None, bucket)
            clock.advance(10)
        clock.now_ns = 100
        operations[0].complete()
        clock.now_ns = 110
        operations[1].complete()
        clock.now_ns = 150
        operations[2].complete()
        (step,) = tracer.steps()
        assert (step.exposed_ns, step.busy_ns, step.wire_busy_ns) == (130, 150, 150)
        return tracer.buckets()


@pytest.mark.parametrize(
    ("workers", "starts"), [(1, [0, 100, 110]), (2, [0, 10, 100]), (3, [0, 10, 20])]
)
def test_the_queue_is_told_from_the_wire(workers: int, starts: list[int]) -> None:
    """With W workers a collective waits until fewer than W earlier ones are unfinished."""
    records = run_queue(workers)
    assert [r.stages[-2].start_ns for r in records] == starts
    for record, issued, start in zip(records, (0, 10, 20), starts, strict=True):
        expected = [("queue", issued, start)] if start > issued else []
        assert [s for s in spans(record) if s[0] == "queue"] == expected


def test_an_unknown_backend_has_no_queue() -> None:
    """Where the number of workers is unknown, wire is launch to arrival, and not called derived."""
    for record in run_queue(0):
        assert [s.name for s in record.stages] == ["compress", "wire", "decompress"]
        assert not any(s.derived for s in record.stages)


def test_overlap_of_two_buckets() -> None:
    """Exposed counts from the last bucket's readiness, busy is the union, never the sum."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(2)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets = make_buckets(2)
        hook(None, buckets[0])
        clock.now_ns = 60
        hook(None, buckets[1])
        clock.now_ns = 80
        operations[1].complete()
        clock.now_ns = 90
        operations[0].complete()
        (step,) = tracer.steps()
    assert (step.first_ready_ns, step.last_ready_ns, step.done_ns) == (0, 60, 90)
    assert (step.busy_ns, step.exposed_ns) == (90, 30)
    assert step.overlap_ratio == 1 - 30 / 90


def test_period_is_from_first_ready_to_first_ready() -> None:
    """The first step has no period; buckets that are ready later do not matter."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(6)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets = make_buckets(2)
        for step, start in enumerate((1000, 1500, 2500)):
            clock.now_ns = start
            for bucket, operation in zip(buckets, operations[2 * step :], strict=False):
                hook(None, bucket)
                clock.advance(100)
                operation.complete()
        periods = [s.period_ns for s in tracer.steps()]
    assert periods == [None, 500, 1000]


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
