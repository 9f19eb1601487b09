"""Clocks: the host's, and device events from a reused pool.

Two things must never happen on the training thread: a synchronisation with the device, and the
creation of an event for each bucket (creating and destroying them can block).  So events are
recorded from a pool, the drain resolves them with ``query()``, and only then do they go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

Clock = Callable[[], int]
"""Returns integer nanoseconds that never go back."""


EVENT_DEVICES = {"cuda"}
"""Types of device whose events hooktrace records; on another the times of a bucket are unknown."""


class DeviceEvent(Protocol):
    """What hooktrace needs of ``torch.cuda.Event(enable_timing=True)``."""

    def record(self) -> None:
        """Record on the current stream of the calling thread."""

    def query(self) -> bool:
        """Whether the device has passed the event."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to a later one."""


class EventPool:
    """Timing events that are recorded again and again.

    ``make`` creates one event; it is called only when the pool is empty.  ``take`` and ``give``
    are safe from several threads.
    """

    def __init__(self, make: Callable[[], DeviceEvent]) -> None:
        self._make = make
        self._free: deque[DeviceEvent] = deque()
        self.created = 0

    def record(self) -> DeviceEvent:
        """Return an event that has just been recorded on the current stream."""
        try:
            event = self._free.pop()
        except IndexError:
            event = self._make()
            self.created += 1
        event.record()
        return event

    def give(self, event: DeviceEvent) -> None:
        """Take back an event that nobody reads any more."""
        self._free.append(event)
