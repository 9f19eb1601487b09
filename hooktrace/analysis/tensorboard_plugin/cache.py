"""Runs in memory: read as far as time allows, then as their files grow.

    "what is there?" --> RunCache.refresh(run, budget) --read--> Snapshot
    all other requests --> RunCache.get(run) --> the latest Snapshot --scene(model)--> Scene

Reading takes a bounded time, all ranks in turns, so that the first picture of a large run comes
early, has all ranks, and grows with the requests that follow.  Only what is new is read.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from ..timeline import Timeline, TrackFollower, timeline_of
from .runs import NotThereError
from .scene import Scene, scene_of

_PORTION = 1 << 18
_LONGEST_S = 3.0
_KEPT = 4
"""Runs that stay in memory."""


class Snapshot:
    """A run as far as it was read.

    ``version`` changes with what was read.  ``read_bytes`` of ``total_bytes`` are in it.
    ``errors``: files that cannot be read, with the reason.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        version: int,
        read_bytes: int,
        total_bytes: int,
        errors: dict[str, str],
    ) -> None:
        self.timeline = timeline
        self.version = version
        self.read_bytes = read_bytes
        self.total_bytes = total_bytes
        self.errors = errors
        self._lock = threading.Lock()
        self._scenes: dict[str, Scene] = {}

    def scene(self, model: str) -> Scene:
        """Return a model's scene; raises ``NotThereError`` where the run has no such model."""
        with self._lock:
            if model not in self._scenes:
                if model not in self.timeline.models:
                    raise NotThereError("the run has no such model")
                self._scenes[model] = scene_of(self.timeline, model)
            return self._scenes[model]


class RunReader:
    """Reads one run.  ``files`` tells what it consists of now; ``clock`` gives seconds."""

    def __init__(
        self,
        files: Callable[[], dict[int, list[Path]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._ranks: dict[int, TrackFollower] = {}
        self._versions = 0
        self._reading_s = 0.0
        self._state: object = None
        self._snapshot: Snapshot | None = None

    def refresh(self, budget_s: float) -> Snapshot:
        """Read what is new for about ``budget_s`` at first, at least a portion of each rank.

        While there is more, each call takes as long as all before, up to ``_LONGEST_S``: a picture
        of what was read costs time too, and twice as much is worth a new one.
        """
        with self._lock:
            found = self._files()
            ranks = {rank: self._ranks.get(rank) or TrackFollower() for rank in sorted(found)}
            self._ranks = ranks
            for rank, follower in ranks.items():
                follower.look(found[rank])
            began = self._clock()
            is_at_end = self._read(max(budget_s, min(self._reading_s, _LONGEST_S)))
            self._reading_s = 0.0 if is_at_end else self._reading_s + self._clock() - began
            return self._current()

    def latest(self) -> Snapshot | None:
        """Return what ``refresh`` returned last."""
        return self._snapshot

    def _read(self, budget_s: float) -> bool:
        """Read; returns whether nothing is left."""
        deadline = self._clock() + budget_s
        unread = list(self._ranks.values())
        # The first turn is short: it must not take the whole budget where there are many ranks.
        portion = _PORTION // max(1, len(unread))
        while unread:
            unread = [follower for follower in unread if follower.read(max(portion, 1 << 16))]
            if self._clock() >= deadline:
                break
            portion = _PORTION
        return not unread

    def _current(self) -> Snapshot:
        ranks = self._ranks
        state = [(rank, id(f), f.read_bytes, f.epoch) for rank, f in ranks.items()]
        errors = {name: why for f in ranks.values() for name, why in f.errors.items()}
        total = sum(f.total_bytes for f in ranks.values())
        snapshot = self._snapshot
        if snapshot is None or state != self._state:
            self._versions += 1
            self._state = state
            snapshot = self._snapshot = Snapshot(
                timeline_of([f.track() for f in ranks.values()]),
                version=self._versions,
                read_bytes=sum(f.read_bytes for f in ranks.values()),
                total_bytes=total,
                errors=errors,
            )
        snapshot.total_bytes, snapshot.errors = total, errors
        return snapshot


class RunCache:
    """The readers of the runs that were asked for last."""

    def __init__(self, files: Callable[[str], dict[int, list[Path]]], *, kept: int = _KEPT) -> None:
        self._files = files
        self._kept = kept
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, RunReader] = OrderedDict()

    def refresh(self, run: str, budget_s: float) -> Snapshot:
        """Return the run as it is now; raises ``NotThereError`` for a name that no run has."""
        return self._reader(run).refresh(budget_s)

    def get(self, run: str, budget_s: float) -> Snapshot:
        """Return the run as ``refresh`` found it last; raises as ``refresh`` does."""
        reader = self._reader(run)
        return reader.latest() or reader.refresh(budget_s)

    def _reader(self, run: str) -> RunReader:
        with self._lock:
            reader = self._readers.pop(run, None)
            if reader is None:
                self._files(run)  # raises where there is no such run
                reader = RunReader(lambda: self._files(run))
            self._readers[run] = reader
            while len(self._readers) > self._kept:
                self._readers.popitem(last=False)
            return reader
