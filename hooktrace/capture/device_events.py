"""Device events: recorded on the training thread from a reused pool, read by the drain.

    DeviceCall --record(device)--> event on the current stream of that device
    drain --query, elapsed_time--> times       --give--> pool

Two things must never happen on the training thread: a synchronisation with the device, and the
creation of an event for each bucket (creating and destroying them can block).  So events are
recorded from a pool, the drain resolves them with ``query()``, and then they go back.  So do those
of what is lost on the way: nobody reads them, and recorded again they forget the first time.

A program may capture a CUDA graph at any time.  A captured event never passes, so no call is
stamped on a stream that is being captured; and while any stream of the process is, CUDA forbids
queries from all threads, and breaks the capture, unless the thread has said that it does not mind:
``relax_capture_mode``.
"""

from __future__ import annotations

import ctypes
import functools
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch


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


@functools.cache
def _module_of(device_type: str) -> object:
    return getattr(torch, device_type, None)


def refuse_captured_stream(device: torch.device) -> None:
    """Raise ``RuntimeError`` where the device's current stream is being captured."""
    # A device without graphs has no such function.
    is_captured = getattr(_module_of(device.type), "is_current_stream_capturing", None)
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
