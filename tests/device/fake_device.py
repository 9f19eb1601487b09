"""A device that is not there: fake ``cuda`` tensors, inline collectives, a stream a callback.

    with FakeDevice() as device:            FakeTensorMode + StreamOracle + what a CPU build lacks
        hook(state, bucket)
    device.faults(), device.synchronising

``FakeTensorMode`` makes tensors of a device that a build without CUDA does not have; few functions
of Python's side ask for it all the same, and are answered here.  ``Tensor.item``, ``bool(tensor)``
and the like raise there, so code that would wait for the device fails by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from hooktrace.capture import buckets, device_events
from hooktrace.staging import driver, streams

from .allocator import StreamOracle


class _WithoutDeviceGuards(TorchFunctionMode):
    """Functions of tensors whose Python side needs a driver, by operators that do not."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.Tensor.copy_:
            return _copy(*args, **(kwargs or {}))
        if func is torch.Tensor.__getitem__:
            return _part(*args)
        if func is torch.Tensor.__setitem__:
            target, index, value = args
            return _copy(_part(target, index), torch.as_tensor(value, dtype=target.dtype))
        return func(*args, **(kwargs or {}))


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.aten.copy_.default(target, source, non_blocking)


def _part(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    dim = 0
    for each in index if isinstance(index, tuple) else (index,):
        if isinstance(each, int):
            tensor = tensor.select(dim, each)
            continue
        if each is None:
            tensor = tensor.unsqueeze(dim)
        elif isinstance(each, slice):
            start, stop, step = each.indices(tensor.shape[dim])
            tensor = torch.ops.aten.slice.Tensor(tensor, dim, start, stop, step)
        else:
            tensor = torch.ops.aten.index.Tensor(tensor, [None] * dim + [each])
        dim += 1
    return tensor


class FakeEvent:
    """An event of a device that has always passed; it is recorded on no other device's stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, stream: tuple[torch.device, int]) -> None:
        """Record on a stream of the event's own device."""
        assert stream[0] == self.device, f"recorded on {stream[0]}, made for {self.device}"

    def query(self) -> bool:
        """Return True."""
        return True

    def elapsed_time(self, end_event: FakeEvent) -> float:
        """Return 0, for an event of the same device."""
        assert end_event.device == self.device, "compared with an event of another device"
        return 0.0


class FakeDevice(StreamOracle):
    """Where hooks run as on a device: their callbacks inline, each on a stream of its own."""

    def __init__(self, *, protected: bool = True) -> None:
        super().__init__()
        self._protected = protected
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(streams, "enabled", self._protected)
        patch.setattr(streams, "current_stream", lambda device: self.stream)
        patch.setattr(torch.Tensor, "record_stream", self._recorder())
        patch.setattr(torch.Tensor, "pin_memory", self._pinner())
        patch.setattr(driver, "new_future", lambda tensor: torch.futures.Future())
        patch.setattr(buckets, "has_events", lambda device: device.type == "cuda")
        patch.setattr(device_events, "current_stream", lambda device: (device, self.stream))
        patch.setattr(device_events, "new_event", FakeEvent)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        for owner, name in ((driver.HookRun, "finish"), (driver._SequencedRun, "_go_on")):
            patch.setattr(owner, name, self._in_callback(getattr(owner, name)))
        self._stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        self._stack.enter_context(_WithoutDeviceGuards())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()

    def _recorder(self) -> Callable[[torch.Tensor, int], None]:
        def record_stream(tensor: torch.Tensor, stream: int) -> None:
            self.record_stream(tensor, stream)

        return record_stream

    def _pinner(self) -> Callable[[torch.Tensor], torch.Tensor]:
        def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
            return self.pin(tensor)

        return pin_memory

    def _in_callback(self, callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a callback that runs on a stream of its own, as those of futures do."""

        def run(owner: Any, arrived: Any) -> Any:
            if arrived is None:
                return callback(owner, arrived)
            with self.on(self.new_stream()):
                return callback(owner, arrived)

        return run
