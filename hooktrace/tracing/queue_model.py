"""When collectives began: a backend executes a few at once, first in first out, and others wait.

A worker of gloo also runs the callback of the collective that it executed, which may decompress:
until then it takes no other.

spans of each ended call's collectives --note--> the last ones of each backend
collectives of a whole step --derive_starts--> ``start`` of each
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from ..capture.calls import Collective
from ..records.intervals import fifo_starts
from ..records.last_used import LastUsed
from .stage_times import CallTimes, Span, TimedCollective

_REMEMBERED = 512
"""Collectives of one backend, of all models that use it."""


class _Seen:
    """The last collectives of one backend, each with the latest end of it and all before.

    By that the search for those that ended late, which comes with each step, stops early.
    """

    __slots__ = ("_latest", "_spans")

    def __init__(self) -> None:
        self._spans: deque[tuple[Span, int]] = deque(maxlen=_REMEMBERED)
        self._latest = -sys.maxsize

    def add(self, span: Span) -> None:
        self._latest = latest = max(self._latest, span[2])
        self._spans.append((span, latest))

    def freed_after(self, time_ns: int) -> list[Span]:
        found = []
        for span, latest in reversed(self._spans):
            if latest <= time_ns:
                break
            if span[2] > time_ns:
                found.append(span)
        return found


class QueueModel:
    """Starts on each backend, over the collectives of all models that use it."""

    def __init__(self) -> None:
        self._seen: LastUsed[int, _Seen] = LastUsed(_Seen)

    def add(self, spans: Iterable[tuple[Collective, Span]]) -> None:
        """Learn of a call's collectives, before the starts of any that they may have held up."""
        for what, span in spans:
            group = what.group
            if group.workers:
                self._seen.of(group.key).add(span)

    def derive_starts(self, collectives: Iterable[TimedCollective]) -> None:
        """Set the starts of some noted collectives."""
        by_backend: defaultdict[int, list[TimedCollective]] = defaultdict(list)
        for one in collectives:
            group = one.what.group
            if group.workers:
                by_backend[group.key].append(one)
        for queue, queued in by_backend.items():
            self._set_starts(self._seen.of(queue), queued)

    @staticmethod
    def _set_starts(seen: _Seen, collectives: list[TimedCollective]) -> None:
        spans = [(one.issued, one.arrived, one.freed) for one in collectives]
        first, *_ = min(spans)
        relevant = sorted({*spans, *seen.freed_after(first)})
        launches, dones, freed = zip(*relevant, strict=True)
        workers = collectives[0].what.group.workers
        starts = fifo_starts(launches, dones, workers, freed=freed)
        start_of = dict(zip(relevant, starts, strict=True))
        for one, span in zip(collectives, spans, strict=True):
            one.start = start_of[span]


def derive_device_starts(calls: Sequence[CallTimes]) -> None:
    """Set the starts of one step's collectives on a device, where no others are known."""
    collectives = [one for times in calls for one in times.collectives]
    model = QueueModel()
    model.add((one.what, (one.issued, one.arrived, one.freed)) for one in collectives)
    model.derive_starts(collectives)
