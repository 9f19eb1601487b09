"""Tensors that live across a yield, kept from a device's allocator until their stream is done.

    StagedRun --generator, operation--> keep_across_yield --> record_stream(each tensor)

On NCCL a hook's second part runs on the callback's stream.  Once Python lets go of a tensor of the
first part, the allocator gives its memory out again on that part's stream, while kernels of the
callback's still read it.  So before a generator goes on, all that its frames and the operation hold
is recorded, also in unfinished expressions, containers, closures and plain objects.  Of the hook's
state, which holds tensors of every bucket, it is its own attributes, and what dictionaries hold
under this bucket's index.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Generator, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, Final

import torch
import torch.distributed as dist

from .devices import accelerator, current_stream

_SPARSE: Final = torch.sparse_coo
_DEPTH: Final = 5  # a generator's local, its object, that one's dictionary, a list in it, its item
_LEFT_ALONE: Final = (
    *(type(None), str, bytes, int, float, type, torch.dtype, torch.device),
    *(ModuleType, CodeType, FrameType, type(dist.ReduceOp.SUM)),
    *(torch.nn.Module, torch.optim.Optimizer, torch.Generator),
    *(torch._C.Future, dist.ProcessGroup, dist.Work),
)
"""What holds no tensor of one call, or far more than that."""

enabled: bool = accelerator() is not None
"""Whether this build of torch knows a device at all; no driver is asked.  If not, nothing is."""


def keep_across_yield(
    steps: Generator[Any, Any, Any], state: object, operation: object, bucket: Any, value: object
) -> None:
    """Have the allocator wait for the current streams before it reuses what a hook holds.

    ``steps``: the hook's generator, called with ``state``, suspended at ``operation``.  ``value``:
    what it is about to get, which says whether a device is involved at all.
    """
    if isinstance(value, torch.Tensor):
        if value.is_cpu:
            return
    elif all(tensor.is_cpu for tensor in _tensors([value], 1, set())):
        return
    seen = {id(state), id(bucket)}
    # A generator that this one goes through is as deep as its caller: so is what both hold.
    held = _tensors(gc.get_referents(steps, operation), _DEPTH - 1, seen)
    if state is not None:
        index, attributes = bucket.index(), _attributes(state)
        mine = (each.get(index) if isinstance(each, dict) else each for each in attributes)
        held += _tensors(mine, 1, seen)
    keep_for_current_stream(held)


def keep_for_current_stream(tensors: Iterable[torch.Tensor]) -> None:
    """Have the allocator wait for the current streams of tensors' devices before it reuses them."""
    of: torch.device | None = None
    stream: Any = None
    for tensor in tensors:
        if tensor.is_cpu:
            continue
        device = tensor.device
        if device != of:
            of, stream = device, current_stream(device)
        try:
            tensor.record_stream(stream)
        except NotImplementedError:  # a device without streams
            continue


def _attributes(state: object) -> Iterator[object]:
    """Yield what a state's attributes hold; in its dictionary, once somebody has asked for that."""
    own = getattr(state, "__dict__", None)
    for part in gc.get_referents(state):
        yield from list(own.values()) if part is own and own is not None else [part]


def _tensors(values: Iterable[Any], depth: int, seen: set[int]) -> list[torch.Tensor]:
    """Return the tensors in some values, each object once, ``depth`` levels down."""
    found: list[torch.Tensor] = []
    level = list(values)
    while level and depth >= 0:
        below: list[Any] = []
        for value in level:
            what: type = type(value)
            kind = _kind(what)
            if kind == _LEAVE or id(value) in seen:
                continue
            seen.add(id(value))
            if kind == _TENSOR:
                if value.layout is _SPARSE:
                    found += value._indices(), value._values()
                else:
                    found.append(value)
            elif kind == _GENERATOR:
                # One that another one goes through is as deep as its own caller.
                found += _tensors(gc.get_referents(value), _DEPTH - 1, seen)
            elif kind == _FUNCTION:
                below += value.__closure__ or ()
            else:
                below += gc.get_referents(value)
        level, depth = below, depth - 1
    return found


_LEAVE, _TENSOR, _GENERATOR, _FUNCTION, _LOOK_INTO = range(5)
"""What is done with an object on the way to the tensors."""


@functools.lru_cache(maxsize=1024)  # programs make types while they run
def _kind(kind: type) -> int:
    if issubclass(kind, _LEFT_ALONE):
        return _LEAVE
    if issubclass(kind, torch.Tensor):
        return _TENSOR
    if issubclass(kind, GeneratorType):
        return _GENERATOR
    return _FUNCTION if issubclass(kind, FunctionType) else _LOOK_INTO
