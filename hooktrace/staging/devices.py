"""What happens on a device: events, copies to the host, and memory that is not given out too early.

    a call's stamp (calls.py) --> an event from the pool, on the device's current stream
    drain --query, elapsed_time--> times;  let_go, give_back--> the pool
    tensors --HostCopy--> pinned memory, with an event behind it --has_arrived()?--> read()
    StagedRun --generator, operation--> keep_across_yield --> record_stream(each tensor)

The training thread must never wait for the device, nor create an event for each bucket, which can
block.  So events come from a pool and go back to it, and the drain asks them with ``query()``.

A program may capture a CUDA graph at any time.  A captured event never passes, so no call is
stamped on a stream that is being captured; and a query from any thread breaks the capture, unless
the thread has called ``relax_capture_mode``.

On NCCL a hook's second part runs on the callback's stream.  Once Python lets go of a tensor of the
first part, the allocator gives its memory out again on that part's stream, while kernels of the
callback's still read it.  So before a generator goes on, all that its frames and the operation hold
is recorded, also in unfinished expressions, containers, closures and plain objects.  Of the hook's
state, which holds tensors of every bucket, it is its own attributes, and what dictionaries hold
under this bucket's index.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor


def has_events(device: torch.device) -> bool:
    """Return whether events of a device are recorded; if not, its buckets' times are unknown."""
    known = torch.accelerator.current_accelerator()  # of this build; asks no driver
    return known is not None and known.type == device.type


stream_of: Any = torch._C._accelerator_getStream
"""Returns the current stream of the device with an index: what ``torch.accelerator`` calls, in a
quarter of its time."""


def which(stream: Any) -> Hashable:
    """Return what tells a stream from others; torch has classes of them that are never equal."""
    return stream.device, stream.stream_id


def new_event(device: torch.device) -> torch.Event:
    """Return an event of a device that knows the time."""
    return torch.Event(device, enable_timing=True)


class EventPool:
    """Timing events of each device, recorded again and again; safe from several threads."""

    def __init__(self) -> None:
        self._free: defaultdict[torch.device, deque[torch.Event]] = defaultdict(deque)
        self.created = 0

    def record(self, device: torch.device) -> torch.Event:
        """Return an event that has just been recorded on the device's current stream.

        Raises what the device raises.
        """
        try:
            event = self._free[device].pop()
        except IndexError:
            event = new_event(device)
            self.created += 1
        event.record(stream_of(device.index))
        return event

    def give(self, device: torch.device, event: torch.Event) -> None:
        """Take back an event that nobody reads any more."""
        self._free[device].append(event)


def refuse_captured_stream(device: torch.device) -> None:
    """Raise ``RuntimeError`` where the device's current stream is being captured."""
    # A device without graphs has no such function.
    module = getattr(torch, device.type, None)
    is_captured = getattr(module, "is_current_stream_capturing", None)
    if is_captured is not None and is_captured():
        raise RuntimeError(
            "the hook ran while its stream was captured into a graph, where nothing is timed"
        )


def relax_capture_mode(load: Callable[[str], Any] = ctypes.CDLL) -> bool:
    """Let this thread ask events while others capture graphs; returns whether that could be said.

    PyTorch has no function for it: the runtime that it has loaded is asked.
    """
    if torch.version.cuda is not None:
        major = torch.version.cuda.partition(".")[0]
        name, function = f"libcudart.so.{major}", "cudaThreadExchangeStreamCaptureMode"
    elif torch.version.hip is not None:
        name, function = "libamdhip64.so", "hipThreadExchangeStreamCaptureMode"
    else:
        return False
    try:
        exchange = getattr(load(name), function)
    except (OSError, AttributeError):  # linked statically, or under another name
        return False
    mode = ctypes.c_int(2)  # cudaStreamCaptureModeRelaxed, and HIP's of the same name
    return bool(exchange(ctypes.byref(mode)) == 0)


class HostCopy:
    """Tensors of one device on their way; ``pool``: where the event behind them is from."""

    __slots__ = ("_device", "_event", "_host", "_parts", "_pool")

    def __init__(self, tensors: Mapping[str, torch.Tensor], pool: EventPool) -> None:
        self._parts = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        # By ``as_strided``: a single element out of a row keeps the row's stride in view, reshape
        # and contiguous, and torch does not view that as bytes.
        flat = [one.contiguous().as_strided((one.numel(),), (1,)) for one in tensors.values()]
        packed = torch.cat([one.view(torch.uint8) for one in flat])
        self._pool, self._device = pool, packed.device
        self._host = packed
        self._event: torch.Event | None = None
        if packed.device.type != "cpu":
            self._host = new_pinned(packed.numel())
            self._host.copy_(packed, non_blocking=True)
            self._event = pool.record(packed.device)

    def has_arrived(self) -> bool:
        """Return whether the device has passed the copy."""
        return self._event is None or self._event.query()

    def let_go(self) -> None:
        """Give the event back to its pool: nobody asks whether the copy has arrived any more."""
        if self._event is not None:
            self._pool.give(self._device, self._event)

    def read(self) -> dict[str, torch.Tensor]:
        """Return the tensors on the host, once they have arrived; asked for once only."""
        self.let_go()
        sizes = [shape.numel() * dtype.itemsize for dtype, shape in self._parts.values()]
        parts = zip(self._parts.items(), self._host.split(sizes), strict=True)
        # Copies of their own: the bytes of another type have to begin where that type may.
        return {name: own.clone().view(dtype).view(shape) for (name, (dtype, shape)), own in parts}


def new_pinned(size: int) -> torch.Tensor:
    """Return so many bytes of the host's memory that devices copy to by themselves."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


_SPARSE: Final = torch.sparse_coo
_DEPTH: Final = 5  # a generator's local, its object, that one's dictionary, a list in it, its item
_LEFT_ALONE: Final = (
    *(type(None), str, bytes, int, float, type, torch.dtype, torch.device),
    *(ModuleType, CodeType, FrameType, type(dist.ReduceOp.SUM)),
    *(torch.nn.Module, torch.optim.Optimizer, torch.Generator),
    *(torch._C.Future, dist.ProcessGroup, dist.Work),
)
"""What holds no tensor of one call, or far more than that."""

keeps_tensors: bool = torch.accelerator.current_accelerator() is not None
"""Whether this build of torch knows a device at all; no driver is asked.  If not, none is kept."""


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
            of, stream = device, stream_of(device.index)
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
            kind = _kind_of(what)
            if kind is None or id(value) in seen:
                continue
            seen.add(id(value))
            if kind is Tensor:
                if value.layout is _SPARSE:
                    found += value._indices(), value._values()
                else:
                    found.append(value)
            elif kind is object:
                below += gc.get_referents(value)
            elif kind is FunctionType:
                below += value.__closure__ or ()
            else:  # a generator that another one goes through is as deep as its own caller
                found += _tensors(gc.get_referents(value), _DEPTH - 1, seen)
        level, depth = below, depth - 1
    return found


@functools.lru_cache(maxsize=1024)  # programs make types while they run
def _kind_of(what: type) -> type | None:
    """Return as which type of object one is looked into; ``None``: it is left alone."""
    if issubclass(what, _LEFT_ALONE):
        return None
    kinds = (Tensor, GeneratorType, FunctionType)
    return next((kind for kind in kinds if issubclass(what, kind)), object)
