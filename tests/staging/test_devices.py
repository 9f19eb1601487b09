"""Events of several devices, and CUDA graphs: nothing is recorded into one, none is broken."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.staging import devices, slots
from hooktrace.staging.devices import EventPool, relax_capture_mode
from hooktrace.testing import FakeBucket
from tests.fakes import opaque

FIRST, SECOND = torch.device("meta", 0), torch.device("meta", 1)


class Event:
    """An event that knows its device, and the stream that it was recorded on."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, stream: Any) -> None:
        self.stream = stream

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


def test_an_event_is_reused_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given back, it comes again for the device that it was made for, and for no other."""
    monkeypatch.setattr(devices, "stream_of", lambda index: f"stream of meta:{index}")
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

    monkeypatch.setattr("hooktrace.staging.devices.refuse_captured_stream", refuse)
    with Tracer(error_every=0, align_clocks=False) as tracer:
        bucket = FakeBucket([torch.zeros(8, device="meta")])
        result = trace(opaque, tracer=tracer)(None, bucket).wait()
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
