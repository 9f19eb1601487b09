"""When collectives began: a backend executes a few at once, first in first out, and others wait.

A worker of gloo also runs the callback of the collective that it executed, which may decompress:
until then it takes no other.

CallTimes of each ended call --note--> the last collectives of each backend
CallTimes of a whole step --derive_starts--> ``start`` of each of its collectives
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from ..records.intervals import fifo_starts
from .stage_times import CallTimes, TimedCollective

_REMEMBERED = 512
"""Collectives of one backend, of all models that use it."""

Span = tuple[int, int, int]
"""When a collective was issued, when it arrived, and when its worker was free again, in ns."""


class QueueModel:
    """Starts on each backend, over the collectives of all models that use it."""

    def __init__(self) -> None:
        self._seen: defaultdict[int, deque[Span]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))

    def note(self, times: CallTimes) -> None:
        """Learn of a call's collectives, before the starts of any that they may have held up."""
        for one in times.collectives:
            if one.what.group.workers:
                self._seen[one.what.group.key].append(_span(one))

    def derive_starts(self, calls: Iterable[CallTimes]) -> None:
        """Set the starts of the collectives of some noted calls."""
        by_backend: defaultdict[int, list[TimedCollective]] = defaultdict(list)
        for one in (one for times in calls for one in times.collectives if one.what.group.workers):
            by_backend[one.what.group.key].append(one)
        for queue, collectives in by_backend.items():
            starts = self._starts(queue, collectives)
            for one in collectives:
                one.start = starts[_span(one)]

    def _starts(self, queue: int, collectives: list[TimedCollective]) -> dict[Span, int]:
        spans = set(map(_span, collectives))
        first, *_ = min(spans)
        relevant = sorted(spans.union(span for span in self._seen[queue] if span[-1] > first))
        launches, dones, freed = zip(*relevant, strict=True)
        starts = fifo_starts(launches, dones, collectives[0].what.group.workers, freed=freed)
        return dict(zip(relevant, starts, strict=True))


def _span(one: TimedCollective) -> Span:
    return one.issued, one.arrived, one.freed


def derive_device_starts(calls: Sequence[CallTimes]) -> None:
    """Set the starts of one step's collectives on a device, where no others are known."""
    model = QueueModel()
    for times in calls:
        model.note(times)
    model.derive_starts(calls)
