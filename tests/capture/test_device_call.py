"""Events that fail leave a call's times unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace.capture.device_call import DeviceCall
from hooktrace.testing import FakeClock
from tests.fakes import FakeOperation


class FailingPool:
    """Device events that cannot be recorded from the n-th on."""

    def __init__(self, good: int) -> None:
        self.good = good

    def record(self, device: Any) -> str:
        """Return an event, or raise."""
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
    assert call.events is None
    assert call.unknown == "RuntimeError: the device is lost"
    assert not call.staged
    assert not call.in_flight
