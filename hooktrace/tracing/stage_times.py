"""Where one call's time went, in one clock: from the stamps or events of a ``BucketCall``.

    BucketCall --host_times, device_times--> CallTimes --> queue_model, call_records

The only module that reads a call's stamps, its rounds and its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..capture.calls import BucketCall
from ..capture.clocks import DeviceEvent

__all__ = ["CallTimes", "TimedCollective", "device_times", "events_of", "host_times", "launched"]


@dataclass(slots=True)
class TimedCollective:
    """One collective of a call; ``issued`` and ``arrived`` in ns.

    ``queue``: names the backend that executes it, ``workers`` of them at once, 0 where that is not
    known.  ``start``: when it began there (``queue_model``), ``None`` where that is not known.
    """

    kind: str
    wire_bytes: int
    dtype: str
    ranks: int
    queue: int
    workers: int
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
    collectives = _collectives(call, call.marks, call.done)
    return CallTimes(call.ready, call.started, launched(call), collectives, call.done)


def launched(call: BucketCall) -> int:
    """Return when the hook had returned, host ns."""
    # Without the stamp, the result was there first, and the hook is about to return.
    return call.done if call.launched is None else call.launched


def device_times(call: BucketCall, origin: DeviceEvent) -> CallTimes:
    """Return what the device's events say, which it has passed, in ns since ``origin``."""
    ready, *marks, done = [round(origin.elapsed_time(e) * 1e6) for e in call.events or ()]
    return CallTimes(ready, ready, None, _collectives(call, marks, done), done)


def events_of(calls: Iterable[BucketCall]) -> list[DeviceEvent]:
    """Return the device events of some calls, the first one's first."""
    return [event for call in calls for event in call.events or ()]


def _collectives(call: BucketCall, marks: Sequence[int], done: int) -> list[TimedCollective]:
    # Of a call that failed the last collective may not have arrived.
    marks = marks if len(marks) % 2 == 0 else [*marks, done]
    return [
        TimedCollective(
            kind=kind,
            wire_bytes=wire_bytes,
            dtype=str(dtype).removeprefix("torch."),
            ranks=ranks,
            queue=queue,
            workers=workers,
            issued=issued,
            arrived=arrived,
        )
        for (kind, wire_bytes, dtype, ranks, queue, workers), issued, arrived in zip(
            call.rounds, marks[::2], marks[1::2], strict=True
        )
    ]
