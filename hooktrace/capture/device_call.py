"""The stamps of a hook call for a bucket on a device: events beside the host's clock.

driver, engine --stamp--> DeviceCall --event--> the pool, on the current stream of the device
                             |  +--BucketCall's stamps, for what the host saw
                             +--let_go, give_back: nobody reads the events any more--> the pool
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch

from .buckets import BucketSlot
from .calls import BucketCall, Collective, Recorder, Stamped
from .device_events import DeviceEvent, EventPool, refuse_captured_stream


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

    def issued(self, operation: Stamped) -> None:
        """Record an event, and stamp."""
        if self.staged:
            self.record()
        super().issued(operation)

    def arrived(self, *, failed: bool = False) -> None:
        """Record an event, and stamp."""
        if self.staged and not failed:
            self.record()
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
        if self.device_over:
            return
        try:
            event = self.recorder.event_pool.record(self.slot.device)
        except Exception:  # the device does not know then how much backward hid
            return
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

    Destroying an event may block, and a new one would be made in its place, on the training thread.
    The device need not have passed them: an event that is recorded again forgets the first time.
    """
    used: dict[int, tuple[EventPool, torch.device, DeviceEvent]] = {}  # calls may share one
    for call in calls:
        if call.events and not call.device_over:
            call.device_over = True
            for event in events_of(call):
                used[id(event)] = call.event_pool, call.slot.device, event
    for pool, device, event in used.values():
        pool.give(device, event)
