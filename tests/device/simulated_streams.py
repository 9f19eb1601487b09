"""FSDP itself on streams of a device that is not there, each with a clock of its own, in ms.

torch's own code runs, over the CPU and collectives that are not sent, and finds these streams and
events where it looks for a device's.  The host takes no time, and is ahead of all streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group, _fsdp_state

from hooktrace.fsdp import comms, replicas, torch_waits
from hooktrace.staging import devices, slots, units

DEVICE = torch.device("cpu")


class Event:
    """An event: when its stream came to it, ms."""

    def __init__(self, device: SimulatedStreams, *_: Any, **__: Any) -> None:
        self._device = device
        self.at = 0
        self.is_hooktraces = False

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self._device.current
        if stream is self._device.fails_on and self.is_hooktraces:
            raise RuntimeError("the device is gone")
        self.at = stream.at

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self._device.current).wait_until(self.at)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        return float(end_event.at - self.at)


class Stream:
    """A stream: how far it is, ms; ``stood``: from when until when it waited for others."""

    def __init__(self, device: SimulatedStreams, number: int) -> None:
        self.device, self.stream_id = DEVICE, number
        self._owner = device
        self.at = 0
        self.stood: list[tuple[int, int]] = []

    def wait_until(self, at: int) -> None:
        if at > self.at:
            self.stood.append((self.at, at))
            self.at = at

    def wait_event(self, event: Event) -> None:
        self.wait_until(event.at)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_until(stream.at)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self._owner)
        event.at = self.at
        return event


class _Work(dist.distributed_c10d.Work):
    """A collective that runs beside the stream that called it, from where that was."""

    def __init__(self, device: SimulatedStreams, takes: int) -> None:
        super().__init__()
        self._device, self._end = device, device.current.at + takes

    def wait(self, timeout: Any = None) -> bool:
        self._device.current.wait_until(self._end)
        return True


class SimulatedStreams:
    """A device whose collectives take so many ms; ``fails_on``: a stream without events."""

    def __init__(self, *, all_gather: int = 0, reduce_scatter: int = 0, all_reduce: int = 0):
        self.takes = {
            "all_gather_single": all_gather,
            "reduce_scatter_single": reduce_scatter,
            "all_reduce": all_reduce,
        }
        self.streams: list[Stream] = []
        self.current = self.computing = self.Stream()
        self.fails_on: Stream | None = None
        self._stack = ExitStack()

    def Stream(self, **_: Any) -> Stream:  # torch's name
        self.streams.append(Stream(self, len(self.streams)))
        return self.streams[-1]

    def Event(self, *_: Any, **__: Any) -> Event:  # torch's name
        return Event(self)

    def current_stream(self, *_: Any) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def run(self, ms: int) -> None:
        self.current.at += ms

    def standstill_ms(self) -> int:
        return sum(until - since for since, until in self.computing.stood)

    def __enter__(self) -> Self:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        for torchs in (_fsdp_collectives, _fsdp_param_group, _fsdp_state):
            patch.setattr(torchs, "_get_device_handle", lambda kind: self)
        for name in self.takes:
            patch.setattr(dist, name, self._taking(name, getattr(dist, name)))
        for module in (slots, comms, replicas, torch_waits):
            patch.setattr(module, "has_events", lambda device: True)
        for module in (devices, units):
            patch.setattr(module, "stream_of", self.current_stream)
        patch.setattr(devices, "new_event", self._new_event)
        patch.setattr(torch.accelerator, "current_stream", self.current_stream)
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def _new_event(self, _: torch.device) -> Event:
        event = Event(self)
        event.is_hooktraces = True
        return event

    def _taking(self, name: str, collective: Any) -> Any:
        def run(*args: Any, async_op: bool = False, **kwargs: Any) -> Any:
            done = collective(*args, **kwargs)
            if async_op:
                return _Work(self, self.takes[name])
            self.current.wait_until(self.current.at + self.takes[name])
            return done

        return run


class _Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, device: SimulatedStreams, ms: int, back: int) -> Any:
        device.run(ms)
        ctx.then = device, back
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        device, ms = ctx.then
        device.run(ms)
        return gradients[0], None, None, None


class Block(nn.Module):
    """A layer that takes so many ms of the computing stream."""

    def __init__(self, device: SimulatedStreams, forward: int = 10, backward: int = 20) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self._device, self._forward_ms, self._backward_ms = device, forward, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        busy: torch.Tensor = _Busy.apply(x, self._device, self._forward_ms, self._backward_ms)
        return self.linear(busy).relu()
