"""What a hook sends: heard where torch.distributed's functions hand tensors to a process group.

Works on every thread, callbacks of futures included.  Not heard is what C++ issues by itself, DDP
and functional collectives above all, and what goes over hooktrace's own groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed import ProcessGroup

from ...records import Transfer

_INPUTS = dict.fromkeys(("allreduce", "allreduce_coalesced", "broadcast", "reduce", "send"), 0)
_INPUTS |= dict.fromkeys(
    (
        *("allgather", "allgather_coalesced", "_allgather_base", "all_gather_single"),
        *("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
        *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"),
        *("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
        *("alltoall", "alltoall_base", "all_to_all_single"),
        *("gather", "gather_single", "gather_into_tensor", "scatter"),
    ),
    1,
)
"""Methods of a process group, in torch's old and new names: the place of what goes in."""


@contextmanager
def listening(heard: list[Transfer]) -> Iterator[None]:
    """Add to ``heard`` each tensor that this process gives to a collective or sends meanwhile."""
    methods = {name: vars(ProcessGroup)[name] for name in _INPUTS if name in vars(ProcessGroup)}
    for name, method in methods.items():
        setattr(ProcessGroup, name, _heard_by(heard, name, method))
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(ProcessGroup, name, method)


def _heard_by(heard: list[Transfer], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def issue(group: ProcessGroup, *args: Any, **options: Any) -> Any:
        work = method(group, *args, **options)
        for tensor in _tensors(args[_INPUTS[name] : _INPUTS[name] + 1]):
            count = tensor.numel() * tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            heard.append(Transfer(collective=name, dtype=dtype, wire_bytes=count))
        return work

    return issue


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested lists."""
    if isinstance(given, torch.Tensor):
        yield given
        return
    for part in given:
        yield from _tensors(part)
