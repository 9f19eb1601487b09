"""What happens on a device: events of its own, CUDA graphs, lost devices, copies to the host."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.staging import devices, slots
from hooktrace.staging.calls import NOT_YET, BucketCall, StepCalls
from hooktrace.staging.devices import EventPool, HostCopy, relax_capture_mode
from hooktrace.staging.ring import Ring
from hooktrace.testing import FakeBucket, FakeClock
from hooktrace.tracing.stage_times import device_times
from tests.fakes import FakeOperation, plain

FIRST, SECOND = torch.device("meta", 0), torch.device("meta", 1)


class Event:
    """An event that knows its device and stream, and passes when the test says so."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.passed = False

    def record(self, stream: Any) -> None:
        self.stream = stream

    def query(self) -> bool:
        return self.passed

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream for each device."""
    monkeypatch.setattr(devices, "stream_of", lambda index: f"stream of meta:{index}")


def test_an_event_is_reused_on_its_own_device() -> None:
    """Given back, it comes again for the device that it was made for, and for no other."""
    pool = EventPool(Event)
    event: Any = pool.record(FIRST)
    assert event.stream == "stream of meta:0"
    pool.give(FIRST, event)
    other: Any = pool.record(SECOND)
    assert other is not event
    assert (other.device, other.stream) == (SECOND, "stream of meta:1")
    assert pool.record(FIRST) is event
    assert pool.created == 2


def test_a_captured_hook_runs_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is recorded into the graph; the call is counted, with the reason."""
    made: list[Any] = []
    monkeypatch.setattr(slots, "has_events", lambda device: True)
    monkeypatch.setattr(devices, "new_event", made.append)

    def refuse(device: torch.device) -> None:
        raise RuntimeError("captured")

    monkeypatch.setattr("hooktrace.staging.calls.refuse_captured_stream", refuse)
    with Tracer(error_every=0, align_clocks=False) as tracer:
        bucket = FakeBucket([torch.zeros(8, device="meta")])
        result = trace(plain, tracer=tracer)(None, bucket).wait()
        tracer.flush()
        assert result is bucket.buffer()
        assert tracer.losses() == {"stamp_failed": 1}
        assert tracer.buckets() == []
    assert made == []


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_stream_under_capture_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The kind of device is asked; one without graphs is not."""
    name = f"torch.{kind}.is_current_stream_capturing"
    monkeypatch.setattr(name, lambda: False, raising=False)
    devices.refuse_captured_stream(torch.device(kind, 0))
    monkeypatch.setattr(name, lambda: True, raising=False)
    with pytest.raises(RuntimeError, match="captured into a graph"):
        devices.refuse_captured_stream(torch.device(kind, 0))
    devices.refuse_captured_stream(torch.device("mps", 0))


def test_a_thread_says_that_captures_do_not_concern_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function of the runtime that this build of torch has loaded; 2 is "relaxed"."""
    said: list[tuple[str, int]] = []

    def load(name: str) -> Any:
        def exchange(mode: Any) -> int:
            said.append((name, ctypes.cast(mode, ctypes.POINTER(ctypes.c_int)).contents.value))
            return 0

        return SimpleNamespace(cudaThreadExchangeStreamCaptureMode=exchange)

    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not relax_capture_mode(load)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert relax_capture_mode(load)
    assert said == [("libcudart.so.12", 2)]
    assert not relax_capture_mode(lambda name: SimpleNamespace())


class FailingPool:
    """Device events that cannot be recorded from the n-th on."""

    def __init__(self, good: int) -> None:
        self.good = good

    def record(self, device: Any) -> str:
        self.good -= 1
        if self.good < 0:
            raise RuntimeError("the device is lost")
        return "event"


class Recorder:
    """What a call needs of a tracer, and the calls that it was given."""

    def __init__(self, pool: Any) -> None:
        self.clock = FakeClock()
        self.event_pool = pool
        self.calls: list[Any] = []
        self.push = self.calls.append


@pytest.mark.parametrize("good", range(4))
def test_events_that_cannot_be_recorded_leave_the_device_times_unknown(good: int) -> None:
    """The call still ends, and says why its times are not known."""
    recorder: Any = Recorder(FailingPool(good))
    slot: Any = SimpleNamespace(device=torch.device("meta"))
    call = BucketCall(slot, 1, 0, recorder)
    call.begin_on_device()
    call.issued(FakeOperation(wire_bytes=4))
    call.arrived()
    call.finished()
    assert recorder.calls == [call]
    assert not call.has_device_times
    assert device_times([call]) == [None]
    assert call.unknown == "RuntimeError: the device is lost"
    assert not call.staged
    assert not call.in_flight


def run(recorder: Any) -> BucketCall:
    """Return a call of one round that has ended, the last of its backward pass."""
    slot: Any = SimpleNamespace(device=torch.device("meta"))
    call = BucketCall(slot, 1, 0, recorder)
    call.begin_on_device()
    call.backward_end = NOT_YET
    call.issued(FakeOperation(wire_bytes=4))
    call.arrived()
    call.finished()
    call.record_around_backward()
    call.backward_ended()
    return call


def test_a_call_that_does_not_fit_in_the_ring_gives_its_events_back() -> None:
    """None is destroyed, and none is made in its place, on the training thread."""
    pool = EventPool(Event)
    recorder = Recorder(pool)
    ring: Ring = Ring(1)
    recorder.push = ring.push
    kept = run(recorder)
    assert pool.created == 6
    dropped = [run(recorder) for _ in range(3)]
    assert ring.dropped == 3
    assert pool.created == 10  # what the first of them recorded, and no more
    assert not kept.device_over
    assert all(call.device_over for call in dropped)


def test_a_step_that_does_not_fit_in_the_ring_gives_each_event_back_once() -> None:
    """Calls of a sharded model that are waited for together share an event."""
    pool = EventPool(Event)
    recorder: Any = Recorder(pool)
    calls = [run(recorder), run(recorder)]
    shared = (pool.record(torch.device("meta")),)
    for call in calls:
        call.before_wait = shared
    ring: Ring = Ring(1)
    ring.push("first")
    ring.push(StepCalls(calls, 0, complete=True))
    again = [pool.record(torch.device("meta")) for _ in range(pool.created)]
    assert pool.created == len(set(map(id, again))) == 13


def pool() -> EventPool:
    """Return a pool that makes no event: a CPU needs none."""
    return EventPool(lambda device: pytest.fail("an event was made"))


@pytest.mark.parametrize("order", [1, -1])
def test_what_arrives_is_what_was_sent(order: int) -> None:
    """Of every type and shape, whatever comes before it: single numbers, nothing, parts of rows.

    One number out of a column, as a bucket of one element has in the table of its error.
    """
    sent = {
        "flag": torch.tensor(True),
        "flags": torch.tensor([True, False, True]),
        "half": torch.tensor([1.5, -2.0, 3.0], dtype=torch.float16),
        "none": torch.zeros(0, 6, dtype=torch.float64),
        "sums": torch.randn(2, 6, dtype=torch.float64),
        "checksums": torch.tensor([[2**62, -1]]),
        "column": torch.arange(12, dtype=torch.int32).view(3, 4)[:, 1:3],
        "cell": torch.randn(1, 13)[:, 3],
    }
    names = list(sent)[::order]
    copy = HostCopy({name: sent[name] for name in names}, pool())
    assert copy.has_arrived()
    found = copy.read()
    assert list(found) == names
    for name, tensor in found.items():
        assert tensor.dtype == sent[name].dtype
        assert torch.equal(tensor, sent[name])


def test_it_does_not_change_with_what_was_sent() -> None:
    """What was sent is worked on afterwards."""
    tensor = torch.ones(3)
    copy = HostCopy({"ones": tensor}, pool())
    tensor.zero_()
    assert copy.read()["ones"].tolist() == [1.0, 1.0, 1.0]


def test_of_a_device_it_has_arrived_when_its_event_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy goes to pinned memory without blocking, and the event is used again."""
    copies: list[tuple[torch.Tensor, bool]] = []
    pinned = torch.zeros(16, dtype=torch.uint8)
    monkeypatch.setattr("hooktrace.staging.devices.new_pinned", lambda size: pinned[:size])

    def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> None:
        copies.append((source, non_blocking))

    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    events = EventPool(Event)
    copy = HostCopy({"two": torch.zeros(2, dtype=torch.float64, device="meta")}, events)
    monkeypatch.undo()
    monkeypatch.setattr(devices, "stream_of", lambda index: None)
    ((source, non_blocking),) = copies
    assert (source.device.type, non_blocking) == ("meta", True)
    event: Any = copy._event
    assert not copy.has_arrived()
    event.passed = True
    assert copy.has_arrived()
    pinned.view(torch.float64).copy_(torch.tensor([3.0, 4.0]))
    assert copy.read()["two"].tolist() == [3.0, 4.0]
    assert events.record(torch.device("meta")) is event
