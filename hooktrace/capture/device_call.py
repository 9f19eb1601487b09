"""The stamps of a hook call for a bucket on a device: events beside the host's clock.

driver, engine --stamp--> DeviceCall --event--> the pool, on the current stream of the device
                             +--BucketCall's stamps, for what the host saw
"""

from __future__ import annotations

from collections.abc import Hashable

from .buckets import BucketSlot
from .calls import BucketCall, Collective, Recorder, Stamped
from .device_events import DeviceEvent, refuse_captured_stream


class DeviceCall(BucketCall):
    """A call for a bucket on a device: each stamp is an event on its current stream too.

    Raises ``RuntimeError`` where that stream is being captured into a graph.
    """

    __slots__ = ()

    stream: Hashable = None
    """Of a unit whose waits are watched: the stream that it began on."""

    def __init__(
        self, slot: BucketSlot, step: int, ready: int, recorder: Recorder, shadow: bool = False
    ) -> None:
        refuse_captured_stream(slot.device)
        super().__init__(slot, step, ready, recorder, shadow)
        self.events: list[DeviceEvent] | None = []
        self._record()

    def issued(self, operation: Stamped) -> None:
        """Record an event, and stamp."""
        if self.staged:
            self._record()
        super().issued(operation)

    def arrived(self, *, failed: bool = False) -> None:
        """Record an event, and stamp."""
        if self.staged and not failed:
            self._record()
        super().arrived(failed=failed)

    def is_only(self, collective: Collective) -> None:
        """Record an event, and stamp."""
        self.bare = True
        self.issued(collective)

    def over(self) -> None:
        """Record events, and stamp; what is waited for is seen later (``unit_waits.py``)."""
        self.arrived()
        self.finished()
        self.launched = self.done

    def finished(self) -> None:
        """Record an event, stamp, and push the call."""
        self._record()
        super().finished()

    def returned(self) -> None:
        """Record an event where backward may go on after the call."""
        if self.backward_end is not None:
            self._record_around_backward()

    def backward_ended(self) -> None:
        """Record an event, and stamp."""
        self._record_around_backward()
        super().backward_ended()

    def lose_stamps(self, error: Exception) -> None:
        """Give up the device's times too: which event is which stamp's is no longer known."""
        self.events = None
        super().lose_stamps(error)

    def _record_around_backward(self) -> None:
        try:
            event = self._recorder.event_pool.record(self.slot.device)
        except Exception:  # the device does not know then how much backward hid
            return
        self.around_backward = (*self.around_backward, event)

    def _record(self) -> None:
        if self.events is not None:
            try:
                self.events.append(self._recorder.event_pool.record(self.slot.device))
            except Exception as error:
                self.lose_stamps(error)
