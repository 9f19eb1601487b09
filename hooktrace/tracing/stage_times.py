"""Where one call's time went, in one clock: from the stamps or events of a ``BucketCall``.

    BucketCall --host_times, device_times--> CallTimes --> queue_model, call_records

The only module that reads a call's stamps, its rounds and its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..capture.calls import BucketCall, Collective
from ..capture.device_events import DeviceEvent, EventPool


@dataclass(slots=True)
class TimedCollective:
    """One collective of a call; ``issued`` and ``arrived`` in ns.

    ``start``: when its backend began it (``queue_model``), ``None`` where that is not known.
    """

    what: Collective
    issued: int
    arrived: int
    start: int | None = None


@dataclass(slots=True)
class CallTimes:
    """One call's times in one clock, in ns.

    ``ready``: the hook was called.  ``started``: it got its turn.  ``launched``: it had returned;
    ``None`` on a device, which does not know.  ``done``: the bucket's result was there.
    """

    ready: int
    started: int
    launched: int | None
    collectives: list[TimedCollective]
    done: int


def host_times(call: BucketCall) -> CallTimes:
    """Return what the host's stamps say."""
    done = call.done
    # Of a call that failed the last collective may not have arrived.
    collectives = [
        TimedCollective(known, issued, done if arrived is None else arrived)
        for known, issued, arrived in call.rounds
    ]
    started = call.ready if call.started is None else call.started
    return CallTimes(call.ready, started, launched(call), collectives, done)


def launched(call: BucketCall) -> int:
    """Return when the hook had returned, host ns."""
    # Without the stamp, the result was there first, and the hook is about to return.
    return call.done if call.launched is None else call.launched


def have_passed(calls: Iterable[BucketCall]) -> bool:
    """Whether the device is past all events of some calls; so it is where they have none."""
    return all(event.query() for event in _events_of(calls))


def device_times(calls: Sequence[BucketCall], pool: EventPool) -> list[CallTimes | None]:
    """Return what the device's events say, which it has passed; gives them back to their pool.

    In ns since the first event of them all; ``None`` for a call without.  Events of two devices
    cannot be compared: where a step has several, each begins when the host called its first hook.
    """
    first: dict[torch.device, BucketCall] = {}
    for call in calls:
        if call.events:
            first.setdefault(call.slot.device, call)
    times = [_on_device(call, first) if call.events else None for call in calls]
    for call in calls:
        for event in call.events or ():
            pool.give(call.slot.device, event)
    return times


def _on_device(call: BucketCall, first: dict[torch.device, BucketCall]) -> CallTimes:
    begun = first[call.slot.device]
    origin, later = (begun.events or [])[0], begun.ready - next(iter(first.values())).ready
    ready, *marks, done = [
        later + round(origin.elapsed_time(event) * 1e6) for event in call.events or ()
    ]
    marks = marks if len(marks) % 2 == 0 else [*marks, done]
    collectives = [
        TimedCollective(one.collective, issued, arrived)
        for one, issued, arrived in zip(call.rounds, marks[::2], marks[1::2], strict=True)
    ]
    return CallTimes(ready, ready, None, collectives, done)


def _events_of(calls: Iterable[BucketCall]) -> Iterator[DeviceEvent]:
    return (event for call in calls for event in call.events or ())
