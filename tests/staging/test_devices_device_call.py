"""Events that fail leave a call's times unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace.staging import devices
from hooktrace.staging.calls import NOT_YET
from hooktrace.staging.devices import DeviceCall, EventPool, StepCalls
from hooktrace.staging.ring import Ring
from hooktrace.testing import FakeClock
from hooktrace.tracing.stage_times import device_times
from tests.fakes import FakeOperation


class Event:
    """A device event that is recorded on any stream."""

    def record(self, stream: Any) -> None:
        """Do nothing."""


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
    call = DeviceCall(slot, 1, 0, recorder)
    call.issued(FakeOperation(wire_bytes=4))
    call.arrived()
    call.finished()
    assert recorder.calls == [call]
    assert not call.has_device_times
    assert device_times([call]) == [None]
    assert call.unknown == "RuntimeError: the device is lost"
    assert not call.staged
    assert not call.in_flight


def run(recorder: Any) -> DeviceCall:
    """Return a call of one round that has ended, the last of its backward pass."""
    slot: Any = SimpleNamespace(device=torch.device("meta"))
    call = DeviceCall(slot, 1, 0, recorder)
    call.backward_end = NOT_YET
    call.issued(FakeOperation(wire_bytes=4))
    call.arrived()
    call.finished()
    call.returned()
    call.backward_ended()
    return call


def test_a_call_that_does_not_fit_in_the_ring_gives_its_events_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is destroyed, and none is made in its place, on the training thread."""
    monkeypatch.setattr(devices, "stream_of", lambda index: index)
    pool = EventPool(lambda device: Event())
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


def test_a_step_that_does_not_fit_in_the_ring_gives_each_event_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls of a sharded model that are waited for together share an event."""
    monkeypatch.setattr(devices, "stream_of", lambda index: index)
    pool = EventPool(lambda device: Event())
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
