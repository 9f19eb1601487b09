"""A device that is not there: fake ``cuda`` tensors, inline collectives, a stream a callback.

``Tensor.item``, ``bool(tensor)`` and the like raise under ``FakeTensorMode``: what would wait for
the device fails by itself.  The few functions that ask for a driver are answered here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from hooktrace.fsdp import replicas
from hooktrace.probes import debug_checks, device_group, plan, probe, step_sampler
from hooktrace.ranks.hang import look
from hooktrace.staging import devices, driver, slots
from hooktrace.tracing import drain

from .allocator import StreamOracle


class _WithoutDeviceGuards(TorchFunctionMode):
    """Functions of tensors whose Python side needs a driver, by operators that do not."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.Tensor.copy_:
            return _copy(*args, **(kwargs or {}))
        if func is torch.Tensor.contiguous:
            return args[0] if args[0].is_contiguous() else args[0].clone()
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

    def __init__(self, device: torch.device, asked: Callable[[], None]) -> None:
        self.device = device
        self._asked = asked

    def record(self, stream: tuple[torch.device, int]) -> None:
        assert stream[0] == self.device, f"recorded on {stream[0]}, made for {self.device}"

    def query(self) -> bool:
        self._asked()
        return True

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert end_event.device == self.device, "compared with an event of another device"
        return 0.0


CALLBACKS: tuple[tuple[type, str], ...] = (
    (driver.StagedRun, "finish"),
    (driver.PlainRun, "finish"),
    (driver.StagedRun, "go_on"),
    (probe.Probe, "_arrived"),
    (debug_checks.CheckedCall, "_arrived"),
    (step_sampler.SampledCall, "_pass_on"),
)
"""What futures call, on a device each on a stream of its own."""


class FakeDevice(StreamOracle):
    """Where hooks run as on a device: their callbacks inline, each on a stream of its own.

    ``ends``: what was done at the end of backward passes.  ``captured``: whether the current stream
    is being captured into a graph.  ``strict_queries``: threads that asked for an event and had not
    said that captures do not concern them.
    """

    def __init__(self, *, protected: bool = True) -> None:
        super().__init__()
        self.captured = False
        self.events = 0
        self.ends = 0
        self.asked = 0
        self.strict_queries: list[str] = []
        self._relaxed: set[int] = set()
        self._at_the_end: deque[Callable[[], None]] = deque()
        self._protected = protected
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(devices, "keeps_tensors", self._protected)
        # Functions, which are methods of the tensor that they are called of.
        for name, does in (("record_stream", self.record_stream), ("pin_memory", self.pin)):
            patch.setattr(torch.Tensor, name, lambda *given, does=does: does(*given))
        for owner in (driver, probe):
            patch.setattr(owner, "new_future", lambda tensor: torch.futures.Future())
        for module in (slots, replicas):
            patch.setattr(module, "has_events", lambda device: device.type == "cuda")
        patch.setattr(devices, "stream_of", lambda i: (torch.device("cuda", i), self.stream))
        patch.setattr(devices, "new_event", self._new_event)
        patch.setattr(devices, "new_pinned", self._new_pinned)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.captured)
        patch.setattr(debug_checks, "queue_callback", self._at_the_end.append)
        for owner in (drain, look):
            patch.setattr(owner, "relax_capture_mode", self._relax)
        for owner, name in CALLBACKS:
            patch.setattr(owner, name, self._in_callback(getattr(owner, name)))
        self._make_ranks_agree(patch)
        self._stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        self._stack.enter_context(_WithoutDeviceGuards())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()

    def end_backward(self) -> None:
        """Do what was queued for the end of a backward pass; DDP has waited for the futures."""
        while self._at_the_end:
            self._at_the_end.popleft()()
            self.ends += 1

    def counts(self) -> tuple[int, int, int]:
        return self.operations, self.collectives, self.events

    def _make_ranks_agree(self, patch: pytest.MonkeyPatch) -> None:
        """Let ranks that are not there probe what this one does."""
        store = HashStore()
        for name in ("job_store", "rendezvous_store"):
            patch.setattr(plan, name, lambda prefix: store)
        patch.setattr(plan.ProbePlan, "_want_the_same", lambda *_: True)
        patch.setattr(plan.Consent, "given", lambda *_: True)
        patch.setattr(device_group, "_IN_ORDER", ("fake",))
        patch.setattr(device_group, "collectives_issued", lambda group, device: self.collectives)

    def _new_event(self, device: torch.device) -> FakeEvent:
        assert not self.captured, "an event was made under capture"
        self.events += 1
        return FakeEvent(device, self._asked)

    def _relax(self) -> bool:
        self._relaxed.add(threading.get_ident())
        return True

    def _asked(self) -> None:
        self.asked += 1
        if threading.get_ident() not in self._relaxed:
            self.strict_queries.append(threading.current_thread().name)

    def _new_pinned(self, size: int) -> torch.Tensor:
        with unset_fake_temporarily():
            memory = torch.zeros(size, dtype=torch.uint8)
        self.pinned.append(memory)
        return memory

    def _in_callback(self, callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a callback that runs on a stream of its own, as those of futures do."""

        def run(owner: Any, arrived: Any) -> Any:
            if arrived is None:
                return callback(owner, arrived)
            with self.on(self.new_stream()):
                return callback(owner, arrived)

        return run
