"""When collectives began: a backend executes a few at once, first in first out, and others wait.

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

Span = tuple[int, int]
"""When a collective was issued and when it arrived, in ns."""


class QueueModel:
    """Starts on each backend, over the collectives of all models that use it."""

    def __init__(self) -> None:
        self._seen: defaultdict[int, deque[Span]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))

    def note(self, times: CallTimes) -> None:
        """Learn of a call's collectives, before the starts of any that they may have held up."""
        for one in times.collectives:
            if one.what.group.workers:
                self._seen[one.what.group.key].append((one.issued, one.arrived))

    def derive_starts(self, calls: Iterable[CallTimes]) -> None:
        """Set the starts of the collectives of some noted calls."""
        by_backend: defaultdict[int, list[TimedCollective]] = defaultdict(list)
        for one in (one for times in calls for one in times.collectives if one.what.group.workers):
            by_backend[one.what.group.key].append(one)
        for queue, collectives in by_backend.items():
            starts = self._starts(queue, collectives)
            for one in collectives:
                one.start = starts[one.issued, one.arrived]

    def _starts(self, queue: int, collectives: list[TimedCollective]) -> dict[Span, int]:
        spans = {(one.issued, one.arrived) for one in collectives}
        first, _ = min(spans)
        relevant = sorted(spans.union(span for span in self._seen[queue] if span[1] > first))
        launches, dones = zip(*relevant, strict=True)
        starts = fifo_starts(launches, dones, collectives[0].what.group.workers)
        return dict(zip(relevant, starts, strict=True))


def derive_device_starts(calls: Sequence[CallTimes]) -> None:
    """Set the starts of one step's collectives on a device, where no others are known."""
    model = QueueModel()
    for times in calls:
        model.note(times)
    model.derive_starts(calls)
