"""Who frees memory too soon?  A caching allocator and its streams, simulated over fake tensors.

    hooks on fake ``cuda`` tensors --each operation--> StreamOracle: which memory, on which stream
    StreamOracle.faults(): memory that was let go of while a stream, not recorded, still used it

``FakeTensorMode`` makes tensors of a device that is not there, and the ``fake`` process group
completes its collectives inline, as NCCL does.  What is missing are streams: here each callback
runs on one of its own, a number, as PyTorch's futures have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAIN = 0
"""The stream of the backward pass."""


@dataclass
class Memory:
    """One allocation: on which stream it was made, used, and for which it is kept."""

    reference: StorageWeakRef
    made_by: str
    allocated: int
    used: dict[int, str] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)


class StreamOracle(TorchDispatchMode):
    """Follows every tensor on a device from operation to operation.

    ``synchronising``: the operations that would have waited for the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream = MAIN
        self.streams = 0
        self.synchronising: list[str] = []
        self.pinned: list[torch.Tensor] = []
        self._memories: dict[int, Memory] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs, outputs = _on_device((args, kwargs)), _on_device(result)
        copies = "_to_copy" in str(func) or "copy_" in str(func) or "_local_scalar" in str(func)
        if copies and inputs and not outputs and not kwargs.get("non_blocking"):
            self.synchronising.append(str(func))
        if copies and outputs and self._waits_for_host(args, kwargs):
            self.synchronising.append(f"{func} from pageable memory")
        for tensor in inputs:
            self._touch(tensor, str(func))
        for tensor in outputs:
            self._touch(tensor, str(func))
        if str(func).startswith("c10d."):
            # The backend and the future keep what a collective works on for their streams.
            for tensor in [*inputs, *outputs]:
                self._memory(tensor, str(func)).recorded.add(self.streams + 1)
        return result

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Run on a stream."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def new_stream(self) -> int:
        """Return a stream of a callback's own."""
        self.streams += 1
        return self.streams

    def record_stream(self, tensor: torch.Tensor, stream: int) -> None:
        """Keep a tensor's memory until a stream is done: ``Tensor.record_stream``."""
        self._memory(tensor, "record_stream").recorded.add(stream)

    def faults(self) -> list[str]:
        """Return what was let go of while a stream, for which it was not kept, still used it."""
        return [
            f"made by {m.made_by} on stream {m.allocated}, used by {used_by} on stream {stream}"
            for m in self._memories.values()
            if m.reference.expired()
            for stream, used_by in m.used.items()
            if stream not in {m.allocated, *m.recorded}
        ]

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy that a device may fetch by itself: ``Tensor.pin_memory``."""
        self.pinned.append(tensor.clone())
        return self.pinned[-1]

    def _waits_for_host(self, args: Any, kwargs: Any) -> bool:
        """Return whether a copy to the device would wait until the device has come to it.

        It does from memory of the host that is not pinned, and where it is not told not to.
        """
        known = {tensor.untyped_storage()._cdata for tensor in self.pinned}
        sources = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        told = kwargs.get("non_blocking") or args[-1] is True
        return any(
            s.device.type == "cpu" and not (told and s.untyped_storage()._cdata in known)
            for s in sources
        )

    def _touch(self, tensor: torch.Tensor, by: str) -> None:
        self._memory(tensor, by).used.setdefault(self.stream, by)

    def _memory(self, tensor: torch.Tensor, by: str) -> Memory:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._memories:
            # The weak reference keeps the address from being another allocation's.
            self._memories[storage._cdata] = Memory(StorageWeakRef(storage), by, self.stream)
        return self._memories[storage._cdata]


def _on_device(tree: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda"
    ]
