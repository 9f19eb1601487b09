"""Times of a device come from its events alone, once it has passed them."""

from __future__ import annotations

import doctest
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from hooktrace.records.intervals import union_ns
from hooktrace.staging import devices, slots
from hooktrace.staging.calls import BucketCall, Collective, Round, give_back
from hooktrace.staging.order import Sequencer
from hooktrace.testing import FakeBucket
from hooktrace.tracing import stage_times
from hooktrace.tracing.stage_times import QueueModel, device_times, exposed_of
from tests.fakes import FakeGroup, FakeOperation, buckets_of, fake_clock, hook_of
from tests.staging.test_backward import chain
from tests.tracing.test_assembler import spans


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


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> list[FakeBucket]:
    """Buckets on the meta device, which passes for one with events; the device is nowhere yet."""
    FakeEvent.now_ns, FakeEvent.reached_ns = 0, -1
    monkeypatch.setattr(slots, "has_events", lambda device: device.type == "meta")
    monkeypatch.setattr(devices, "new_event", FakeEvent)
    monkeypatch.setattr(devices, "stream_of", lambda index: index)
    return [FakeBucket([torch.zeros(8, device="meta")], index=i, is_last=i == 1) for i in range(2)]


def test_a_result_is_not_done_before_its_hook_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """DDP cannot have it: with the last bucket a hook of several rounds waits for all its calls."""
    clock = fake_clock()

    def wait(sequencer: Sequencer) -> bool:
        clock.advance(30)
        return True

    monkeypatch.setattr(Sequencer, "wait_until_idle", wait)

    operation = FakeOperation(wire_bytes=4)
    operation.complete()
    hook = hook_of([operation], clock, 5, 7, multi_round=True)
    with Tracer(clock=clock, error_every=0) as tracer:
        trace(hook, tracer=tracer)(None, FakeBucket([torch.zeros(8)]))
        ((record,), (step,)) = tracer.buckets(), tracer.steps()
    assert (record.launched_ns, record.done_ns) == (42, 42)
    assert step.exposed_ns == 42
    assert record.stage_totals_ns() == {"compress": 5, "wire": 0, "decompress": 37}


def test_device_times_come_from_events_alone(on_device: list[FakeBucket]) -> None:
    """A bucket on a device has no host stages; its spans resolve when the device is there."""
    operations = [FakeOperation(wire_bytes=4, info=FakeGroup(workers=1)) for _ in range(4)]
    waiting = iter(operations)
    with Tracer(clock=fake_clock()) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        for step in range(2):
            FakeEvent.reached_ns = -1
            FakeEvent.now_ns = 7_000_000 * step
            for bucket in on_device:
                hook(None, bucket)
                FakeEvent.now_ns += 3000
                next(waiting).complete()  # the host is done long before the device
                FakeEvent.now_ns += 500
            assert len(tracer.steps()) == step  # not resolved yet
            FakeEvent.reached_ns = FakeEvent.now_ns
            assert len(tracer.steps()) == step + 1
        records, steps = tracer.buckets(), tracer.steps()
        assert tracer.event_pool.created == 8  # two steps, but the second used the first's events
    assert {(record.clock, record.stages) for record in records} == {("device", ())}
    spans = [(record.device.ready_ns, record.device.done_ns) for record in records]
    assert spans == [(0, 3000), (3500, 6500)] * 2
    assert [(s.name, s.start_ns, s.end_ns) for s in records[1].timed_stages] == [
        ("compress", 3500, 3500),
        ("wire", 3500, 6500),
        ("decompress", 6500, 6500),
    ]
    assert [(s.clock, s.communication_ns, s.exposed_ns) for s in steps] == [
        ("device", 6000, 3000)
    ] * 2


def test_device_times_that_never_come_are_counted(on_device: list[FakeBucket]) -> None:
    """At close, a bucket whose events did not pass has no times, and never the host's."""
    operation = FakeOperation(wire_bytes=4)
    with Tracer(clock=fake_clock()) as tracer:
        trace(hook_of([operation]), tracer=tracer)(None, on_device[0])
        operation.complete()
        tracer.close()
        ((step, (record,)),) = tracer._recent.steps()
    assert record.duration_ns is None
    assert (step.communication_ns, step.exposed_ns, step.overlap_ratio) == (None, None, None)
    assert tracer.losses() == {"device_unresolved": 1}


def test_each_bucket_is_timed_on_its_own_device() -> None:
    """A model over two devices: events are compared with their own device's only.

    The second device's times begin where the host called its first hook.
    """
    devices = [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 1)]
    given: list[tuple[torch.device, FakeEvent]] = []
    pool = SimpleNamespace(give=lambda device, event: given.append((device, event)))
    calls: list[Any] = []
    for i, device in enumerate(devices):
        call: Any = BucketCall(SimpleNamespace(device=device), 0, 50_000 + 5000 * i, fake_clock())
        call.pool = pool
        call.events = [FakeEvent(device), FakeEvent(device)]
        for event, at_ns in zip(call.events, (100 + 7000 * i, 3100 + 7000 * i), strict=True):
            event.at_ns = at_ns
        calls.append(call)
    times = [t for t in device_times(calls) if t is not None]
    give_back(calls)
    give_back(calls)  # which are over: others may have recorded their events by then
    assert [(t.ready, t.done) for t in times] == [(0, 3000), (5000, 8000), (12_000, 15_000)]
    assert all(event.device == device for device, event in given)
    assert len(given) == 6


@pytest.mark.parametrize(("done", "exposed"), [(60_000, 0), (130_000, 40_000)])
def test_a_device_knows_its_own_end_of_backward(
    on_device: list[FakeBucket], done: int, exposed: int
) -> None:
    """Its kernels end at 100 us, 10 of them the hook's own; the host is long through."""
    operation = FakeOperation(wire_bytes=4, info=FakeGroup(workers=1))

    def hook(state: object, bucket: Any) -> Any:
        FakeEvent.now_ns = 10_000
        yield operation
        FakeEvent.now_ns = done
        return bucket.buffer()

    def end_backward() -> None:
        operation.complete()  # inline at launch, its kernel later
        FakeEvent.now_ns = 100_000

    bucket = FakeBucket([torch.zeros(8, device="meta")])
    with Tracer(clock=fake_clock()) as tracer:
        traced = trace(staged(hook), tracer=tracer)
        chain(lambda: traced(None, bucket), end_backward).backward()
        assert tracer.steps() == []
        FakeEvent.reached_ns = 200_000
        (step,) = tracer.steps()
        assert tracer.event_pool.created == 6
    assert (step.clock, step.communication_ns, step.exposed_ns) == ("device", done, exposed)


def test_the_sum_is_the_time_with_a_call_under_way() -> None:
    """Since the wait began; and nobody has more than was under way.  First the docstring's."""
    assert doctest.testmod(stage_times).failed == 0
    source = random.Random(0)
    for _ in range(300):
        begins = [source.randrange(50) for _ in range(source.randrange(6))]
        spans = [(begin, begin + source.randrange(30)) for begin in begins]
        wait = source.randrange(60)
        left = [(max(begin, wait), max(end, wait)) for begin, end in spans]
        found = exposed_of(spans, wait)
        assert sum(found) == union_ns(left)
        for exposed, (begin, end) in zip(found, left, strict=True):
            assert 0 <= exposed <= end - begin


@pytest.mark.parametrize(
    ("workers", "starts"),
    [(1, [0, 100, 110]), (2, [0, 10, 100]), (3, [0, 10, 20]), (0, [0, 10, 20])],
)
def test_the_queue_is_told_from_the_wire(workers: int, starts: list[int]) -> None:
    """Three collectives are issued at 0, 10, 20, and arrive at 100, 110, 150.

    With W workers one waits until fewer than W earlier ones are unfinished; where their number is
    unknown, wire is launch to arrival, and not called derived.
    """
    clock, group = fake_clock(), FakeGroup(workers=workers)
    operations = [FakeOperation(wire_bytes=4, info=group) for _ in range(3)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        for bucket in buckets_of(3):
            hook(None, bucket)
            clock.advance(10)
        for operation, clock.now_ns in zip(operations, (100, 110, 150), strict=True):
            operation.complete()
        (step,), records = tracer.steps(), tracer.buckets()
    assert (step.exposed_ns, step.communication_ns, step.wire_in_flight_ns) == (130, 150, 150)
    assert [r.stages[-2].start_ns for r in records] == starts
    for record, issued, start in zip(records, (0, 10, 20), starts, strict=True):
        expected = [("queue", issued, start)] if start > issued else []
        assert [s for s in spans(record) if s[0] == "queue"] == expected
        assert any(s.derived for s in record.stages) == (workers > 0)


def test_a_callback_holds_its_worker() -> None:
    """What decompresses runs on the worker: the next collective starts at its end, at 130."""
    clock, group = fake_clock(), FakeGroup(workers=1)
    operations = [FakeOperation(wire_bytes=4, info=group) for _ in range(2)]
    with Tracer(clock=clock) as tracer:
        traced = trace(hook_of(operations, clock, after=30), tracer=tracer)
        for bucket in buckets_of(2):
            traced(None, bucket)
        for operation, clock.now_ns in zip(operations, (100, 150), strict=True):
            operation.complete()
        first, second = tracer.buckets()
    assert spans(first)[1:] == [("wire", 0, 100), ("decompress", 100, 130)]
    assert spans(second)[1:] == [("queue", 0, 130), ("wire", 130, 150), ("decompress", 150, 180)]


def test_one_that_ended_late_is_found_behind_others() -> None:
    """It was noted first, many that ended long ago after it: it still holds the only worker."""
    what = Collective("all_reduce", 4, None, FakeGroup(workers=1))
    last = Round(what, 450, 600, 600)
    others = [Round(what, i, i + 1, i + 1) for i in range(1, 400)]
    model = QueueModel()
    model.add([Round(what, 0, 500, 500), *others, last])
    model.derive_starts([last])
    assert last.start_ns == 500
