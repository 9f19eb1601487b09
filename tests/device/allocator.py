"""Who frees memory too soon?  A caching allocator and its streams, simulated over fake tensors.

hooks on fake ``cuda`` tensors --each operation--> StreamOracle --> what was let go of too early

Each callback of a future runs on a stream of its own, a number, as PyTorch's futures have it.
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

    ``synchronising``: the operations that would have waited for the device.  ``pinned``: memory of
    the host that a device copies to by itself.  ``collectives``: how many were issued.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream = MAIN
        self.streams = 0
        self.synchronising: list[str] = []
        self.pinned: list[torch.Tensor] = []
        self.collectives = 0
        self.operations = 0
        self._memories: dict[int, Memory] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs, outputs = _on_device((args, kwargs)), _on_device(result)
        self.operations += 1
        if self._waits(str(func), args, kwargs, result):
            self.synchronising.append(str(func))
        for tensor in inputs:
            self._touch(tensor, str(func))
        for tensor in outputs:
            self._touch(tensor, str(func))
        if str(func).startswith("c10d."):
            self.collectives += 1
            # The backend and the future keep what a collective works on for their streams.
            for tensor in [*inputs, *outputs]:
                self._memory(tensor, str(func)).recorded.add(self.streams + 1)
        return result

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def new_stream(self) -> int:
        self.streams += 1
        return self.streams

    def record_stream(self, tensor: torch.Tensor, stream: tuple[torch.device, int]) -> None:
        """Keep a tensor's memory until a stream is done: ``Tensor.record_stream``."""
        self._memory(tensor, "record_stream").recorded.add(stream[1])

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

    def _waits(self, name: str, args: Any, kwargs: Any, result: Any) -> bool:
        """Return whether an operation waits for the device: it reads it, or copies by the host."""
        if "aten.copy_." in name:
            blocks = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            return _kinds(args[:2]) == {"cpu", "cuda"} and (blocks or not self._is_pinned(args[:2]))
        if "_to_copy" in name:
            return _kinds([args[0], result]) == {"cpu", "cuda"}
        reads = any(
            what in name for what in ("_local_scalar", "nonzero", "aten.equal", "is_nonzero")
        )
        return reads and "cuda" in _kinds([args])

    def _is_pinned(self, tensors: Any) -> bool:
        host = next(tensor for tensor in tensors if tensor.device.type == "cpu")
        return any(host.untyped_storage()._cdata == p.untyped_storage()._cdata for p in self.pinned)

    def _touch(self, tensor: torch.Tensor, by: str) -> None:
        self._memory(tensor, by).used.setdefault(self.stream, by)

    def _memory(self, tensor: torch.Tensor, by: str) -> Memory:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._memories:
            # The weak reference keeps the address from being another allocation's.
            self._memories[storage._cdata] = Memory(StorageWeakRef(storage), by, self.stream)
        return self._memories[storage._cdata]


def _kinds(tree: Any) -> set[str]:
    return {leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}


def _on_device(tree: Any) -> list[torch.Tensor]:
    return [
        leaf
        for leaf in tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda"
    ]
