"""What happens on a device: events of its own, CUDA graphs, lost devices, copies to the host."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.staging import devices, slots
from hooktrace.staging.calls import NOT_YET, BucketCall, StepCalls
from hooktrace.staging.devices import EventPool, HostCopy, relax_capture_mode
from hooktrace.staging.ring import Ring
from hooktrace.staging.slots import ModelState
from hooktrace.testing import FakeBucket, FakeClock
from tests.fakes import FakeOperation, plain

FIRST, SECOND = torch.device("meta", 0), torch.device("meta", 1)


class Event:
    """An event that knows its device and stream, and passes when the test says so."""

    passed = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, stream: Any) -> None:
        self.stream = stream

    def query(self) -> bool:
        return self.passed


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream for each device, and events."""
    monkeypatch.setattr(devices, "stream_of", lambda index: f"stream of meta:{index}")
    monkeypatch.setattr(devices, "new_event", Event)


def test_a_captured_hook_runs_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is recorded into the graph; the call is counted, with the reason."""
    made: list[Any] = []
    monkeypatch.setattr(slots, "has_events", lambda device: True)
    monkeypatch.setattr(devices, "new_event", made.append)
    module = SimpleNamespace(is_current_stream_capturing=lambda: True)
    monkeypatch.setattr(torch, "meta", module, raising=False)
    with Tracer(error_every=0, align_clocks=False) as tracer:
        bucket = FakeBucket([torch.zeros(8, device="meta")])
        assert trace(plain, tracer=tracer)(None, bucket).wait() is bucket.buffer()
        assert tracer.buckets() == []
        assert tracer.losses() == {"stamp_failed": 1}
    assert made == []
    devices.refuse_captured_stream(torch.device("mps", 0))  # a device without graphs


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


class Recorder:
    """What a call needs of a tracer."""

    def __init__(self) -> None:
        self.clock, self.event_pool = FakeClock(), EventPool()


def run(recorder: Any, step: int = 1) -> BucketCall:
    """Return a call of one round that has ended, the last of its backward pass."""
    slot: Any = SimpleNamespace(device=FIRST)
    call = BucketCall(slot, step, 0, recorder.clock)
    call.begin_on_device(recorder.event_pool)
    call.backward_end = NOT_YET
    call.issued(FakeOperation(wire_bytes=4))
    call.arrived()
    call.finished()
    call.record_around_backward()
    call.backward_over(False)
    return call


@pytest.mark.parametrize("good", range(4))
def test_events_that_cannot_be_recorded_leave_the_device_times_unknown(
    good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call still ends, and says why its times are not known."""
    made = [Event(FIRST)] * good + [RuntimeError("the device is lost")] * 4
    monkeypatch.setattr(devices, "new_event", mock.Mock(side_effect=made))
    call = run(Recorder())
    assert call.has_ended
    assert call.unknown == "RuntimeError: the device is lost"
    assert not call.has_device_times
    assert not call.staged
    assert not call.in_flight


def test_a_step_that_does_not_fit_in_the_ring_gives_its_events_back() -> None:
    """None is destroyed, and none is made in its place, on the training thread."""
    ring, recorder, model = Ring(1), Recorder(), ModelState("net", "hook", 0)
    pool = recorder.event_pool
    made = []
    for step in range(4):
        made.append(run(recorder, step))
        model.begin_step(made[-1], ring)
    assert ring.dropped == 3
    assert pool.created == 12  # of the step that fits, and of one that does not
    assert [call.device_over for call in made] == [False, True, True, True]


def test_a_step_that_does_not_fit_in_the_ring_gives_each_event_back_once() -> None:
    """Calls of a sharded model that are waited for together share an event."""
    recorder = Recorder()
    pool = recorder.event_pool
    calls = [run(recorder), run(recorder)]
    shared = (pool.record(FIRST),)
    for call in calls:
        call.before_wait = shared
    ring = Ring(1)
    ring.push("first")
    step = StepCalls(0, 2)
    step += calls
    ring.push(step)
    assert ring.dropped == 2
    again = [pool.record(FIRST) for _ in range(pool.created)]
    assert pool.created == len(set(map(id, again))) == 13


def test_what_arrives_is_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every type and shape, also one number out of a column, and though it is worked on."""
    sent = {
        "flag": torch.tensor(True),
        "half": torch.tensor([1.5, -2.0, 3.0], dtype=torch.float16),
        "none": torch.zeros(0, 6, dtype=torch.float64),
        "checksums": torch.tensor([[2**62, -1]]),
        "flags": torch.tensor([True, False, True]),
        "sums": torch.randn(2, 6, dtype=torch.float64),
        "column": torch.arange(12, dtype=torch.int32).view(3, 4)[:, 1:3],
        "cell": torch.randn(1, 13)[:, 3],
    }
    expected = {name: tensor.clone() for name, tensor in sent.items()}
    monkeypatch.setattr(devices, "new_event", None)  # a CPU needs no event
    copy = HostCopy(sent, EventPool())
    for tensor in sent.values():
        tensor.zero_()
    assert copy.has_arrived()
    found = copy.read()
    assert list(found) == list(sent)
    for name, tensor in found.items():
        assert tensor.dtype == sent[name].dtype
        assert torch.equal(tensor, expected[name])
