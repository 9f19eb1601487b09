"""What happens on a device: events, copies to the host, and the calls that are stamped by them.

    driver, engine --stamp--> DeviceCall --event from the pool, on the device's current stream
    drain --query, elapsed_time--> times;  let_go, give_back--> the pool
    tensors --HostCopy--> pinned memory, with an event behind it --has_arrived()?--> read()

Two things must never happen on the training thread: a synchronisation with the device, and the
creation of an event for each bucket (creating and destroying them can block).  So events are
recorded from a pool, the drain resolves them with ``query()``, and then they go back, as do those
of what is lost on the way: recorded again, they forget the first time.

A copy to memory that is not pinned waits for the device.  torch gives pinned memory out again, so
that none is allocated, which may wait too, once there is enough for the copies under way.  Tensors
of a CPU go the same way, and have arrived at once.

A program may capture a CUDA graph at any time.  A captured event never passes, so no call is
stamped on a stream that is being captured; and while any stream of the process is, CUDA forbids
queries from all threads, and breaks the capture, unless the thread has said that it does not mind:
``relax_capture_mode``.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .calls import BucketCall, Collective, Recorder

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler
    from .collectives import Operation
    from .slots import BucketSlot


class DeviceEvent(Protocol):
    """What hooktrace needs of ``torch.Event(device, enable_timing=True)``."""

    def record(self, stream: Any) -> None:
        """Record on a stream."""

    def query(self) -> bool:
        """Whether the device has passed the event."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to a later one of the same device."""


def accelerator() -> torch.device | None:
    """Return the kind of device that this build of torch knows beside the CPU, ``None`` for none.

    No driver is asked, except by torch 2.6, which raises where there is no device.
    """
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:
        return None


def has_events(device: torch.device) -> bool:
    """Return whether events of a device are recorded; if not, its buckets' times are unknown."""
    known = accelerator()
    return known is not None and known.type == device.type


stream_of: Callable[[int | None], Any] = getattr(
    torch._C, "_accelerator_getStream", torch.accelerator.current_stream
)
"""Returns the current stream of the device with an index: what ``torch.accelerator`` calls, in a
quarter of its time."""


def current_stream(device: torch.device) -> Any:
    """Return the current stream of a device, whichever device is the current one."""
    return stream_of(device.index)


def which(stream: Any) -> Hashable:
    """Return what tells a stream from others; torch has classes of them that are never equal."""
    return stream.device, stream.stream_id


def new_event(device: torch.device) -> DeviceEvent:
    """Return an event of a device that knows the time."""
    return torch.Event(device, enable_timing=True)


class EventPool:
    """Timing events that are recorded again and again, each on the device that it was made for.

    ``make`` creates one; it is called only when there is none of that device.  ``record`` and
    ``give`` are safe from several threads.
    """

    def __init__(self, make: Callable[[torch.device], DeviceEvent] | None = None) -> None:
        self._make = make or new_event
        self._free: defaultdict[torch.device, deque[DeviceEvent]] = defaultdict(deque)
        self.created = 0

    def record(self, device: torch.device) -> DeviceEvent:
        """Return an event that has just been recorded on the device's current stream.

        Raises what the device raises.
        """
        try:
            event = self._free[device].pop()
        except IndexError:
            event = self._make(device)
            self.created += 1
        event.record(stream_of(device.index))
        return event

    def give(self, device: torch.device, event: DeviceEvent) -> None:
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


_RELAXED = 2
"""``cudaStreamCaptureModeRelaxed``, and HIP's of the same name."""


def relax_capture_mode(load: Callable[[str], Any] = ctypes.CDLL) -> bool:
    """Let this thread ask events while others capture graphs; returns whether that could be said.

    PyTorch has no function for it, so the runtime that it has loaded is asked.
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
    mode = ctypes.c_int(_RELAXED)
    return bool(exchange(ctypes.byref(mode)) == 0)


class HostCopy:
    """Tensors of one device on their way; ``pool``: where the event behind them is from."""

    __slots__ = ("_device", "_event", "_host", "_parts", "_pool")

    def __init__(self, tensors: Mapping[str, torch.Tensor], pool: EventPool) -> None:
        self._parts = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        packed = torch.cat([_bytes_of(tensor) for tensor in tensors.values()])
        self._pool, self._device = pool, packed.device
        self._host = packed
        self._event: DeviceEvent | None = None
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
        found: dict[str, torch.Tensor] = {}
        at = 0
        for name, (dtype, shape) in self._parts.items():
            size = shape.numel() * dtype.itemsize
            # A copy of its own: the bytes of another type have to begin where that type may.
            found[name] = self._host[at : at + size].clone().view(dtype).view(shape)
            at += size
        return found


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    # A single element out of a row keeps the row's stride in view, reshape and contiguous, and
    # torch does not view that as bytes.
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8)


def new_pinned(size: int) -> torch.Tensor:
    """Return so many bytes of the host's memory that devices copy to by themselves."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class DeviceCall(BucketCall):
    """A call for a bucket on a device: each stamp is an event on its current stream too.

    Raises ``RuntimeError`` where that stream is being captured into a graph.
    """

    __slots__ = ()

    on_device = True
    stream: Hashable = None
    """Of a unit whose waits are watched: the stream that it began on."""

    def __init__(
        self, slot: BucketSlot, step: int, ready: int, recorder: Recorder, shadow: bool = False
    ) -> None:
        super().__init__(slot, step, ready, recorder, shadow)
        self.begin_on_device()

    def begin_on_device(self) -> None:
        """Record the first event; raises ``RuntimeError`` on a stream that is being captured."""
        refuse_captured_stream(self.slot.device)
        self.events: list[DeviceEvent] | None = []
        self.record()

    def issued(self, operation: Operation | Collective) -> None:
        """Record an event, and stamp."""
        if self.staged:
            self.record()
        super().issued(operation)

    def arrived(self, *, failed: bool = False) -> None:
        """Record an event, and stamp."""
        if self.staged and not failed:
            self.record()
        super().arrived(failed=failed)

    def is_only(self) -> None:
        """Record an event, and stamp."""
        self.record()
        super().is_only()

    def over(self) -> None:
        """Record events, and stamp; what is waited for is seen later (``UnitWaits``)."""
        self.arrived()
        self.finished()
        self.launched = self.done

    def finished(self) -> None:
        """Record an event, stamp, and push the call."""
        self.record()
        super().finished()

    def returned(self) -> None:
        """Record an event where backward may go on after the call."""
        if self.backward_end is not None:
            self._record_around_backward()

    def backward_ended(self) -> None:
        """Record an event, and stamp."""
        self._record_around_backward()
        super().backward_ended()

    def let_go(self) -> None:
        """Give the events back to their pool."""
        give_back([self])

    def _record_around_backward(self) -> None:
        if not self.device_over:
            with suppress(Exception):  # the device does not know then how much backward hid
                event = self.recorder.event_pool.record(self.slot.device)
                self.around_backward = (*self.around_backward, event)

    def record(self) -> None:
        """Record an event; once one stamp has failed, nobody knows which event is whose."""
        if self.unknown is None and not self.device_over and self.events is not None:
            try:
                self.events.append(self.recorder.event_pool.record(self.slot.device))
            except Exception as error:
                self.lose_stamps(error)


def events_of(call: BucketCall) -> tuple[DeviceEvent, ...]:
    """Return all events of a call."""
    return (*(call.events or ()), *call.around_backward, *(call.before_wait or ()))


def give_back(calls: Iterable[BucketCall]) -> None:
    """Give the events of calls, which nobody reads any more, to the pools that they are from.

    The device need not have passed them.
    """
    used: dict[int, tuple[EventPool, torch.device, DeviceEvent]] = {}  # calls may share one
    for call in calls:
        if call.events and not call.device_over:
            call.device_over = True
            for event in events_of(call):
                used[id(event)] = call.recorder.event_pool, call.slot.device, event
    for pool, device, event in used.values():
        pool.give(device, event)


class StepCalls(list[BucketCall]):
    """The calls of one step: of DDP's buckets in their order, of units in that of their beginning.

    ``generation``: of its buckets.  ``complete``: backward came to its end, and all calls are here.
    """

    def __init__(self, calls: Iterable[BucketCall], generation: int, *, complete: bool) -> None:
        super().__init__(calls)
        self.generation = generation
        self.complete = complete

    def assemble(self, into: Assembler) -> None:
        """Become a step's records; of a sharded model, whose steps come as a whole."""
        into.add_units(self)

    def let_go(self) -> None:
        """Give the calls' events back to their pool: nobody reads them any more."""
        give_back(self)
