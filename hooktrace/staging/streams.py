"""Tensors that live across a yield, kept from a device's allocator until their stream is done.

    HookRun.advance --generator, operation--> keep_across_yield --> record_stream(each tensor)

A hook's first part runs on the stream of the backward pass; on NCCL its next part runs as a
callback, on a stream of its own.  The caching allocator knows a tensor by the stream that it was
allocated on: once Python lets go of it, its memory is given out again on that stream, while kernels
of the callback's stream still read it.  ``Tensor.record_stream`` tells the allocator of the other
stream.  So before a generator goes on, all that its frames and the operation hold is recorded:
local variables, what an unfinished expression holds, and what is in containers, closures and plain
objects among them.  Of the hook's state, which holds tensors of every bucket, it is only its own
attributes and what its dictionaries hold under this bucket's index.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, Final

import torch
import torch.distributed as dist

from ..capture.device_events import accelerator, current_stream

_DEPTH: Final = 5  # a generator's local, its object, that one's dictionary, a list in it, its item
_LEFT_ALONE: Final = (
    *(str, bytes, int, float, type, torch.dtype, torch.device),
    *(ModuleType, CodeType, FrameType),
    *(torch.nn.Module, torch.optim.Optimizer, torch.Generator, torch._C.Future, dist.ProcessGroup),
)
"""What holds no tensor of one call, or far more than that."""

enabled: bool = accelerator() is not None
"""Whether this build of torch knows a device at all; no driver is asked.  If not, nothing is."""


def keep_across_yield(
    steps: Generator[Any, Any, Any], operation: object, bucket: Any, value: object
) -> None:
    """Have the allocator wait for the current streams before it reuses what a hook holds.

    ``steps``: the hook's generator, suspended at ``operation``.  ``value``: what it is about to
    get, which says whether a device is involved at all.
    """
    if not any(tensor.device.type != "cpu" for tensor in _tensors(value, 1, set())):
        return
    keep_for_current_stream(held_tensors(steps, operation, bucket))


def keep_for_current_stream(tensors: Iterable[torch.Tensor]) -> None:
    """Have the allocator wait for the current stream of each tensor's device before it reuses it.

    For what was made on another stream and is used on this one; a CPU has none.
    """
    streams: dict[torch.device, Any] = {}
    for tensor in tensors:
        device = tensor.device
        if device.type != "cpu":
            if device not in streams:
                streams[device] = current_stream(device)
            with contextlib.suppress(NotImplementedError):  # a device without streams
                tensor.record_stream(streams[device])


def held_tensors(
    steps: Generator[Any, Any, Any], operation: object, bucket: Any
) -> Iterator[torch.Tensor]:
    """Yield each tensor that has memory and that a suspended hook holds, or its operation."""
    state = _state_of(steps)
    seen = {id(state), id(bucket)}
    yield from _tensors([steps, operation], _DEPTH, seen)
    index = bucket.index()
    for attribute in _attributes(state):
        mine = attribute.get(index) if isinstance(attribute, dict) else attribute
        yield from _tensors(mine, 1, seen)


def _attributes(state: object) -> Iterator[object]:
    """Yield what a state's attributes hold; in its dictionary, once somebody has asked for that."""
    own = getattr(state, "__dict__", None)
    for part in _parts(state):
        yield from list(own.values()) if part is own and own is not None else [part]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors that a plain object, or a container, holds a few levels down."""
    yield from _tensors(value, _DEPTH, set())


def _state_of(steps: Any) -> object:
    """Return the state that a hook's generator was called with, its first argument."""
    frame: FrameType = steps.gi_frame
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def _tensors(value: Any, depth: int, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, each object once, ``depth`` levels down."""
    if value is None or id(value) in seen or isinstance(value, _LEFT_ALONE):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield from _with_memory(value)
    elif depth > 0:
        # A generator that another one goes through is as deep as its own caller.
        depth = _DEPTH if isinstance(value, GeneratorType) else depth - 1
        for part in _parts(value):
            yield from _tensors(part, depth, seen)


def _parts(value: Any) -> list[Any]:
    """Return the objects that another one holds; of a function only what it closes over."""
    if isinstance(value, FunctionType):
        return list(value.__closure__ or ())
    return gc.get_referents(value)


def _with_memory(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor,)
