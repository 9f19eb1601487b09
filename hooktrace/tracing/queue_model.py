"""When collectives began: a backend executes a few at once, first in first out, and others wait.

CallTimes of each ended call --note--> the last collectives of each backend
CallTimes of a whole step --derive_starts--> ``start`` of each of its collectives
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from ..records.intervals import fifo_starts
from .stage_times import CallTimes, TimedCollective

__all__ = ["QueueModel", "derive_device_starts"]

_REMEMBERED = 512
"""Collectives of one backend, of all models that use it."""

Span = tuple[int, int]
"""When a collective was issued and when it arrived, in ns."""


class QueueModel:
    """Starts on the host's clock, over the collectives of all models that share a backend."""

    def __init__(self) -> None:
        self._seen: defaultdict[int, deque[Span]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))

    def note(self, times: CallTimes) -> None:
        """Learn of a call's collectives, before the starts of any that they may have held up."""
        for one in times.collectives:
            if one.workers:
                self._seen[one.queue].append((one.issued, one.arrived))

    def derive_starts(self, calls: Iterable[CallTimes]) -> None:
        """Set the starts of the collectives of some noted calls."""
        _by_backend(calls, self._starts)

    def _starts(self, collectives: list[TimedCollective]) -> list[int]:
        spans = [(one.issued, one.arrived) for one in collectives]
        first = min(spans)[0]
        seen = self._seen[collectives[0].queue]
        relevant = list({span for span in seen if span[1] > first}.union(spans))
        starts = dict(zip(relevant, _fifo(relevant, collectives[0].workers), strict=True))
        return [starts[span] for span in spans]


def derive_device_starts(calls: Iterable[CallTimes]) -> None:
    """Set the starts of one step's collectives on a device, where no others are known."""
    _by_backend(
        calls, lambda group: _fifo([(one.issued, one.arrived) for one in group], group[0].workers)
    )


def _by_backend(
    calls: Iterable[CallTimes], starts: Callable[[list[TimedCollective]], list[int]]
) -> None:
    groups: defaultdict[tuple[int, int], list[TimedCollective]] = defaultdict(list)
    for one in (one for times in calls for one in times.collectives if one.workers):
        groups[one.queue, one.workers].append(one)
    for group in groups.values():
        for one, start in zip(group, starts(group), strict=True):
            one.start = start


def _fifo(spans: list[Span], workers: int) -> list[int]:
    order = sorted(range(len(spans)), key=spans.__getitem__)
    launches, dones = [spans[i][0] for i in order], [spans[i][1] for i in order]
    by_place = dict(zip(order, fifo_starts(launches, dones, workers), strict=True))
    return [by_place[i] for i in range(len(spans))]
