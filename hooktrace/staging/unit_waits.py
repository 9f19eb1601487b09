"""What a device's computing stream waits for of a sharded model's collectives: an event before.

    FSDP, about to wait --before--> an event on the computing stream --before_wait--> each call
    that it is waited for in; drain: tracing/stage_times.py has the arithmetic

FSDP's collectives run on streams of their own, in the order in which they were called there.  Who
waits for one of them waits for all that its stream has run before; so each call is waited for
once.  The wait begins at an event that is recorded on the computing stream just before, and lasts
to the ends of the calls' own events.  What is exposed of a call that nothing has waited for when
its step ends is not known.  Nothing here waits; what fails is counted and leaves calls unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable

from ..records.bucket import UnitCollective
from .calls import NOT_YET
from .devices import DeviceCall, EventPool, current_stream, refuse_captured_stream, which
from .ring import Loss
from .slots import ModelState


class UnitWaits:
    """The calls that no computing stream has waited for yet, by the stream that they are on.

    ``pool``: where events come from.  ``push``: takes what failed.  Models may share FSDP's streams
    (``share_comm_ctx``), so one of these is for all that a tracer records, from any thread.
    """

    def __init__(self, pool: EventPool, push: Callable[[object], object]) -> None:
        self._pool = pool
        self._push = push
        self._lock = threading.Lock()
        self._lines: dict[Hashable, list[DeviceCall]] = {}
        self._last: dict[tuple[int, UnitCollective], DeviceCall] = {}

    def begins(self, call: DeviceCall, unit: object, collective: UnitCollective) -> None:
        """Take note of a call that begins on the current stream.  Raises what a device raises."""
        call.stream = which(current_stream(call.slot.device))
        with self._lock:
            self._lines.setdefault(call.stream, []).append(call)
            self._last[id(unit), collective] = call

    def last(self, unit: object, collective: UnitCollective) -> DeviceCall | None:
        """Return a unit's last call of a kind in the step under way; ``None``: there is none."""
        return self._last.get((id(unit), collective))

    def before(self, *calls: DeviceCall | None, streams: Iterable[Hashable] = ()) -> None:
        """Take note that the current stream is about to wait for calls, if it has not before.

        ``streams``: and for all that they have run.
        """
        awaited: list[DeviceCall] = []
        with self._lock:
            for stream in streams:
                awaited += self._lines.pop(stream, ())
            for call in calls:
                if call is not None:
                    awaited += self._up_to(call)
        if awaited:
            self._record(awaited)

    def forget(self, model: ModelState | None = None) -> None:
        """Let go of a model's calls, or of all: when they are waited for is not known."""
        with self._lock:
            lines = {
                stream: [call for call in line if model not in (None, call.slot.model)]
                for stream, line in self._lines.items()
            }
            self._lines = {stream: line for stream, line in lines.items() if line}
            last = self._last.items()
            self._last = {at: call for at, call in last if model not in (None, call.slot.model)}

    def lose(self, error: Exception) -> None:
        """Count what was raised where a wait was looked at, and let go of all calls."""
        self.forget()
        self._push(Loss.of_stamps(error))

    def _up_to(self, last: DeviceCall) -> list[DeviceCall]:
        line = self._lines.get(last.stream, [])
        if last not in line:
            return []
        before = line[: line.index(last)]
        # An asynchronous call ends where it is waited for itself, and is on no stream of FSDP's.
        running = [call for call in before if call.done == NOT_YET]
        line[: len(before) + 1] = running
        return [*(call for call in before if call.done != NOT_YET), last]

    def _record(self, awaited: list[DeviceCall]) -> None:
        device = awaited[0].slot.device
        try:
            refuse_captured_stream(device)
            here = which(current_stream(device))
            # What the computing stream ran itself, as of unshard(), it has stood still for already.
            on_others = [call for call in awaited if call.stream != here or call.done == NOT_YET]
            models = {id(call.slot.model) for call in on_others}
            # Each model's step has an event of its own, which nobody else gives back.
            events = {model: (self._pool.record(device),) for model in models}
        except Exception as error:  # of a device: what is exposed of these is not known
            self._push(Loss.of_stamps(error))
            return
        for call in awaited:
            call.before_wait = ()
        for call in on_others:
            call.before_wait = events[id(call.slot.model)]
