"""Where one call's time went, in one clock: from the stamps or events of a ``BucketCall``.

    BucketCall --host_times, device_times--> CallTimes --> queue_model, call_records

The only module that reads a call's stamps, its rounds and its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import torch

from ..capture.calls import NEVER, NOT_YET, BucketCall, Collective
from ..capture.device_call import events_of
from ..capture.device_events import DeviceEvent
from .unit_exposed import exposed_of

Span = tuple[int, int, int]
"""When a collective was issued, when it arrived, and when its worker was free again, in ns."""


class TimedCollective(msgspec.Struct, gc=False):
    """One collective of a call; ``issued`` and ``arrived`` in ns.

    ``freed``: when the worker that executed it could take the next one.  ``start``: when its
    backend began it (``queue_model``), ``None`` where that is not known.
    """

    what: Collective
    issued: int
    arrived: int
    freed: int
    start: int | None = None


class CallTimes(msgspec.Struct, gc=False):
    """One call's times in one clock, in ns.

    ``ready``: DDP called the hook.  ``entered``: hooktrace had looked at the bucket, and called it.
    ``started``: it got its turn.  ``launched``: it had returned; ``None`` on a device, which cannot
    know.  ``done``: DDP could have the bucket's result, for which the hook must have returned.
    ``released``: hooktrace had looked at it too.
    ``hidden_to``: until when the backward pass hides communication, as far as this call tells: to
    ``ready``, and of the last bucket to the end of backward, less the time that the hook's own call
    took, which is not backward's; ``None`` where backward's end is not known.  ``exposed``: on a
    device, of a unit, how long the computing stream waited for it; ``None`` where not known.
    """

    ready: int
    entered: int
    started: int
    launched: int | None
    collectives: list[TimedCollective]
    done: int
    released: int
    hidden_to: int | None
    exposed: int | None = None


def host_spans(call: BucketCall) -> list[tuple[Collective, Span]]:
    """Return what the host's stamps say of each collective of an ended call."""
    freed = done = call.done
    if call.only is not None:
        return [(call.only, (call.ready, done, freed))]
    spans: list[tuple[Collective, Span]] = []
    for known, issued, arrived in reversed(call.rounds):
        # Of a call that failed the last collective may not have arrived.
        spans.append((known, (issued, done if arrived is None else arrived, freed)))
        freed = issued  # A worker runs its collective's callback: to the next round, or the end.
    spans.reverse()
    return spans


def host_times(call: BucketCall) -> CallTimes:
    """Return what the host's stamps say."""
    done = call.available
    collectives = [TimedCollective(known, *span) for known, span in host_spans(call)]
    entered = call.ready if call.entered is None else call.entered
    started = entered if call.started is None else call.started
    released = done if call.released is None else call.released
    # The hook may return just now: it is then stamped between two looks.
    ready, returned, end = call.ready, min(launched(call), done), call.backward_end
    hidden_to = None if end in (NOT_YET, NEVER) else _hidden_to(ready, returned, end)
    return CallTimes(ready, entered, started, returned, collectives, done, released, hidden_to)


def _hidden_to(ready: int, returned: int, backward_end: int | None) -> int:
    return ready if backward_end is None else max(ready, backward_end - (returned - ready))


def launched(call: BucketCall) -> int:
    """Return when the hook had returned, host ns."""
    # Without the stamp, the result was there first, and the hook is about to return.
    return call.done if call.launched is None else call.launched


def is_backward_over(calls: Iterable[BucketCall]) -> bool:
    """Whether no call of some waits for the end of its backward pass."""
    return all(call.backward_end != NOT_YET for call in calls)


def have_passed(calls: Iterable[BucketCall]) -> bool:
    """Whether the device is past all events of some calls; so it is where they have none."""
    timed = [call for call in calls if call.has_device_times]
    return all(event.query() for call in timed for event in events_of(call))


def device_times(calls: Sequence[BucketCall]) -> list[CallTimes | None]:
    """Return what the device's events say, which it has passed.

    In ns since the first event of them all; ``None`` for a call that has no times there.  Events of
    two devices cannot be compared: where a step has several, each begins when the host called its
    first hook.
    """
    first: dict[torch.device, BucketCall] = {}
    timed = [call for call in calls if call.has_device_times]
    for call in timed:
        first.setdefault(call.slot.device, call)
    origins = {device: _origin(call, timed[0]) for device, call in first.items()}
    times = [
        _on_device(call, origins[call.slot.device]) if call.has_device_times else None
        for call in calls
    ]
    _expose(calls, times, origins)
    return times


def _origin(begun: BucketCall, first: BucketCall) -> Callable[[DeviceEvent], int]:
    origin, later = (begun.events or [])[0], begun.ready - first.ready
    return lambda event: later + round(origin.elapsed_time(event) * 1e6)


def _expose(
    calls: Sequence[BucketCall],
    times: Sequence[CallTimes | None],
    origins: dict[torch.device, Callable[[DeviceEvent], int]],
) -> None:
    """Find what is exposed of units whose waits were seen."""
    waits: dict[int, tuple[int, list[CallTimes]]] = {}
    for call, own in zip(calls, times, strict=True):
        if own is None or call.before_wait is None:
            continue
        own.exposed = own.done - own.ready
        for event in call.before_wait:
            at = origins[call.slot.device](event)
            waits.setdefault(id(event), (at, []))[1].append(own)
    for begin, together in waits.values():
        spans = [(own.ready, own.done) for own in together]
        for own, exposed in zip(together, exposed_of(spans, begin), strict=True):
            own.exposed = exposed


def _on_device(call: BucketCall, at: Callable[[DeviceEvent], int]) -> CallTimes:
    ready, *marks, done = map(at, call.events or ())
    if not call.staged:  # what was recorded before that was known is of no round
        marks = []
    marks = marks if len(marks) % 2 == 0 else [*marks, done]
    collectives = [
        TimedCollective(one.collective, issued, arrived, arrived)
        for one, issued, arrived in zip(call.rounds, marks[::2], marks[1::2], strict=True)
    ]
    hidden_to = ready if call.backward_end is None else None
    if len(call.around_backward) == len(("returned", "ended")):
        hidden_to = _hidden_to(ready, *map(at, call.around_backward))
    return CallTimes(ready, ready, ready, None, collectives, done, done, hidden_to)
