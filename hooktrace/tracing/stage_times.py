"""Where the time of calls went, in one clock: stages, queues, what units exposed.

    BucketCall --host_times, device_times--> CallTimes, for the records
    collectives of a whole step --QueueModel--> when each began: others wait in the queue before
    spans of the calls that one wait is for, and its begin --exposed_of--> ns of each

The only module that reads a call's stamps, its rounds and its events.

*Queue.*  A backend executes a few collectives at once, first in first out.  A worker of gloo also
runs the callback of the collective that it executed, which may decompress: until then it takes no
other.

*Exposed, of a unit on a device.*  A call exposes the time in which it was under way while the
computing stream waited for it; where several were, that time is of the one that ends first.  So no
time is counted twice.  The rest of a wait is of no call: FSDP copies and divides there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
import torch

from ..records.intervals import fifo_starts
from ..records.last_used import LastUsed
from ..staging.calls import END_UNKNOWN, NOT_YET, BucketCall, Round, events_of
from ..staging.groups import GroupInfo


def exposed_of(spans: Sequence[tuple[int, int]], wait: int) -> list[int]:
    """Return what each call exposes, ns; ``spans``: begin and end of each, one clock's ns.

    >>> exposed_of([(0, 40), (20, 90), (90, 100)], 30)
    [10, 50, 10]
    >>> exposed_of([(0, 40), (50, 60)], 70)
    [0, 0]
    >>> exposed_of([(50, 60), (40, 100)], 30)
    [10, 50]
    """
    exposed = [0] * len(spans)
    counted: list[tuple[int, int]] = []  # in order, and apart
    for i in sorted(range(len(spans)), key=lambda i: spans[i][1]):
        begin, end = max(spans[i][0], wait), spans[i][1]
        left, first = end - begin, begin
        if left <= 0:
            continue
        while counted and counted[-1][1] > begin:
            start, until = counted.pop()
            left -= until - max(start, begin)
            first = min(first, start)
        counted.append((first, end))
        exposed[i] = left
    return exposed


class CallTimes(msgspec.Struct, gc=False):
    """One call's times in one clock, in ns.

    ``ready``: DDP called the hook.  ``entered``: hooktrace had looked at the bucket.  ``started``:
    the hook got its turn.  ``launched``: it had returned; ``None`` on a device, which cannot know.
    ``done``: DDP could have the result.  ``released``: hooktrace had looked at it too.
    ``hidden_to``: until when the backward pass hides communication, as far as this call tells: to
    ``ready``, and of the last bucket to the end of backward, less the time that the hook's own call
    took.  ``exposed``: of a unit on a device, how long its stream waited.  ``None``: not known.
    """

    ready: int
    entered: int
    started: int
    launched: int | None
    collectives: list[Round]
    done: int
    released: int
    hidden_to: int | None
    exposed: int | None = None


def collectives_of(call: BucketCall) -> list[Round]:
    """Return what the host's stamps say of each collective of an ended call."""
    found = list(call.rounds)
    freed = call.done
    for one in reversed(found):
        if one.arrived_ns == NOT_YET:  # of a call that failed
            one.arrived_ns = call.done
        one.freed_ns = freed
        freed = one.issued_ns  # A worker runs its collective's callback: to the next round.
    return found


def host_times(call: BucketCall) -> CallTimes:
    """Return what the host's stamps say."""
    # The hook may return just now, and is stamped between two looks.
    returned = call.done if call.launched is None else call.launched
    # DDP has no result before that: with a step's last bucket a hook of several rounds returns
    # when all of them have ended.
    done = max(call.done, returned)
    entered = call.ready if call.entered is None else call.entered
    started = entered if call.started is None else call.started
    released = done if call.released is None else call.released
    ready, end = call.ready, call.backward_end
    hidden_to = None if end in (NOT_YET, END_UNKNOWN) else _hidden_to(ready, returned, end)
    return CallTimes(
        *(ready, entered, started, returned, collectives_of(call), done, released, hidden_to)
    )


def _hidden_to(ready: int, returned: int, backward_end: int | None) -> int:
    return ready if backward_end is None else max(ready, backward_end - (returned - ready))


def have_passed(calls: Iterable[BucketCall]) -> bool:
    """Whether the device is past all events of some calls; so it is where they have none."""
    timed = [call for call in calls if call.has_device_times]
    return all(event.query() for call in timed for event in events_of(call))


def device_times(calls: Sequence[BucketCall]) -> list[CallTimes | None]:
    """Return what the device's events say, which it has passed; ``None`` for a call without times.

    In ns since the first event of them all.  Events of two devices cannot be compared: each device
    begins when the host called its first hook.
    """
    first: dict[torch.device, BucketCall] = {}
    timed = [call for call in calls if call.has_device_times]
    for call in timed:
        first.setdefault(call.slot.device, call)

    def at(call: BucketCall, event: torch.Event) -> int:
        begun = first[call.slot.device]
        origin, later = (begun.events or [])[0], begun.ready - timed[0].ready
        return later + round(origin.elapsed_time(event) * 1e6)

    times = [
        _on_device(call, partial(at, call)) if call.has_device_times else None for call in calls
    ]
    _expose(calls, times, at)
    return times


def _expose(
    calls: Sequence[BucketCall],
    times: Sequence[CallTimes | None],
    at: Callable[[BucketCall, torch.Event], int],
) -> None:
    """Find what is exposed of units whose waits were seen."""
    waits: dict[int, tuple[int, list[CallTimes]]] = {}
    for call, own in zip(calls, times, strict=True):
        if own is None or call.before_wait is None:
            continue
        own.exposed = own.done - own.ready
        for event in call.before_wait:
            waits.setdefault(id(event), (at(call, event), []))[1].append(own)
    for begin, together in waits.values():
        spans = [(own.ready, own.done) for own in together]
        for own, exposed in zip(together, exposed_of(spans, begin), strict=True):
            own.exposed = exposed


def _on_device(call: BucketCall, at: Callable[[torch.Event], int]) -> CallTimes:
    ready, *marks, done = map(at, call.events or ())
    if not call.staged:  # what was recorded before that was known is of no round
        marks = []
    marks = marks if len(marks) % 2 == 0 else [*marks, done]
    collectives = [
        Round(one.collective, issued, arrived, arrived)
        for one, issued, arrived in zip(call.rounds, marks[::2], marks[1::2], strict=True)
    ]
    hidden_to = ready if call.backward_end is None else None
    if len(call.around_backward) == len(("returned", "ended")):
        hidden_to = _hidden_to(ready, *map(at, call.around_backward))
    return CallTimes(ready, ready, ready, None, collectives, done, done, hidden_to)


_REMEMBERED = 512
"""Collectives of one backend, of all models that use it."""


class QueueModel:
    """Starts on each backend, over the collectives of all models that use it."""

    def __init__(self) -> None:
        self._seen: LastUsed[GroupInfo, list[tuple[int, int, int]]] = LastUsed(list)
        """By backend: when each collective's worker was free, its issue and its arrival, sorted."""

    def add(self, collectives: Iterable[Round]) -> None:
        """Learn of a call's collectives, before the starts of any that they may have held up."""
        for one in collectives:
            if one.collective.group.workers:
                seen = self._seen.of(one.collective.group)
                span = one.freed_ns, one.issued_ns, one.arrived_ns
                place = bisect_left(seen, span)
                # It may be known from an earlier step's end.
                if place == len(seen) or seen[place] != span:
                    seen.insert(place, span)
                if len(seen) > _REMEMBERED:
                    del seen[0]

    def derive_starts(self, collectives: Sequence[Round]) -> None:
        """Learn of some collectives, and set their starts."""
        self.add(collectives)
        by_backend: defaultdict[GroupInfo, list[Round]] = defaultdict(list)
        for one in collectives:
            if one.collective.group.workers:
                by_backend[one.collective.group].append(one)
        for queue, queued in by_backend.items():
            own = [(one.issued_ns, one.arrived_ns, one.freed_ns) for one in queued]
            first = min([issued for issued, _, _ in own])
            seen = self._seen.of(queue)
            later = seen[bisect_left(seen, (first + 1,)) :]
            relevant = sorted(
                {*own, *((issued, arrived, freed) for freed, issued, arrived in later)}
            )
            launches, dones, freed = zip(*relevant, strict=True)
            starts = fifo_starts(launches, dones, queue.workers, freed=freed)
            start_of = dict(zip(relevant, starts, strict=True))
            for one, span in zip(queued, own, strict=True):
                one.start_ns = start_of[span]
